/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a text file, one at a time in constant memory: CSV (RFC 4180, quotes with newlines; separated by semicolons
 * if the header has no comma), TSV (as GLUE's files, in which a quote is a character, or as pandas writes them), JSON
 * (data/json_layout.h), plain text (each line a row with the one column "text").
 * The format is given or follows from the name (data/data_file.h).
 *
 * If rows are words with tags: JSON Lines, whose lists are not joined then, and CoNLL files (.conll .tsv .txt), of
 * which a sentence is a row, with the values of each column (data/conll.h).
 */
#ifndef SNUG_DATA_READER_H
#define SNUG_DATA_READER_H

#include "core/context.h"
#include "data/conll.h"
#include "data/data_file.h"
#include "data/field.h"

struct snug_reader;

struct snug_row {
    int64_t index, line; /* row from 0; first line of the row from 1, a greater one in each row */
    size_t count;        /* = columns */
    const struct snug_field *fields;
};

struct snug_reader_options {
    const char *format; /* one of SNUG_DATA_FORMATS, or NULL: by the name */
    bool strict;    /* malformed UTF-8 is an error that names file and line; otherwise it is replaced, counted, and the
                       first line logged once at the end */
    bool words;     /* rows are words */
    bool keep_ends; /* plain text: a line's end is part of its text, as a newline */
    bool quiet;     /* nothing is logged: another reader of the same file does it */
    const char *const *nested; /* names of columns of a JSON file, up to NULL, whose lists and objects are kept as JSON
                                  texts; NULL: none */
    const struct snug_conll_choice *conll; /* columns of a CoNLL file; NULL: as they are found */
    struct snug_rows *rows;                /* read instead of the file, with path for messages; NULL: none */
};
/* The form of a file, as snug_data_form_of(), or of rows that are read in its place. */
snug_status snug_reader_form(snug_context *ctx, const char *path, const char *format, const struct snug_rows *rows,
                             enum snug_data_form *out);
snug_status snug_reader_open(snug_context *ctx, const char *path, const struct snug_reader_options *options,
                             struct snug_reader **out);
/* As snug_reader_open(), for an open file (snug_data_open()), which the caller closes after the reader. */
snug_status snug_reader_open_file(snug_context *ctx, const char *path, int fd,
                                  const struct snug_reader_options *options, struct snug_reader **out);
void snug_reader_close(struct snug_reader *reader);
/* As snug_reader_close(), for a reader whose rows are not used: what it has replaced or ignored is not logged. */
void snug_reader_discard(struct snug_reader *reader);
/* Column names: header of CSV/TSV; keys of the first object of JSON (later rows may lack or add keys: an added
   key is counted and logged once); "text". */
size_t snug_reader_columns(const struct snug_reader *reader, const char *const **names);
/* The column of that name, of a CoNLL file also as snug_conll_find() has it; SIZE_MAX. */
size_t snug_reader_find(const struct snug_reader *reader, const char *name, size_t length);
/* Bytes of the file read so far, compressed ones if it is compressed, and its size: 0 if unknown, as for a pipe. */
int64_t snug_reader_position(const struct snug_reader *reader, int64_t *size);
/* SNUG_END after the last row. A ragged row (more or fewer fields than the header) is SNUG_E_INPUT naming file and
 * line. */
snug_status snug_reader_next(struct snug_reader *reader, struct snug_row *row);
/* The columns of a CoNLL file; NULL: it is none. */
const struct snug_conll *snug_reader_conll(const struct snug_reader *reader);
/* Its lines that are no words, so far; zeros for other files. */
void snug_reader_skipped(const struct snug_reader *reader, int64_t skipped[SNUG_CONLL_SKIPPED]);
/* Lines with malformed UTF-8 so far, and rows with ignored keys. */
void snug_reader_oddities(const struct snug_reader *reader, int64_t *malformed, int64_t *added);

#endif
