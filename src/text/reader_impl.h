/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a reader: reader.c reads lines and plain text, reader_json.c JSON, reader_conll.c words with tags,
   reader_table.c CSV and TSV. */
#ifndef SNUG_TEXT_READER_IMPL_H
#define SNUG_TEXT_READER_IMPL_H

#include <jansson.h>

#include "text/data_file.h"
#include "text/reader.h"

/* A longer row is treated as an unclosed quote, or as a file that is not text. */
#define RECORD_MAX ((size_t)1 << 28)

struct span {
    size_t start, length;
};

/* A problem that does not end the job: its count and first line, logged once at the end. */
struct oddity {
    int64_t count, line;
};

struct snug_reader {
    snug_context *ctx;
    char *path;
    enum snug_data_form form;
    bool strict, words, quiet, ended;

    int fd;
    bool owns_fd;
    struct snug_data_file *file; /* of fd */
    snug_status input_status;    /* of the last refill */
    int64_t line;                /* of the next byte, from 1 */
    size_t at, filled;           /* of buffer */

    char *record; /* the row being read, always followed by a NUL */
    size_t record_size, record_capacity;
    int64_t record_line; /* where it began */
    int64_t index;

    char **names;
    size_t columns, name_capacity;
    char separator;         /* of a CSV file */
    bool quoted;            /* a TSV file whose header is quoted: all of it may be */
    struct oddity unquoted; /* TSV records with quoted fields */
    struct span *spans;     /* fields of a CSV or TSV record */
    size_t span_count, span_capacity;
    struct snug_field *fields;

    json_t *object;    /* the row of a JSON file: its strings are the fields' texts */
    json_t *column_of; /* name → number */
    char **made;       /* texts of its numbers and lists */
    size_t *set;       /* columns that the row has: missing columns take no time, for any number of columns */
    size_t set_count;
    bool peeked; /* object is the first row, read for its keys and not yet returned */
    char *added_key;

    struct snug_sentences *sentences; /* of a CoNLL file */

    struct oddity malformed, added;
    char buffer[1 << 16];
};

/* Fails with file and line. */
snug_status snug_reader_fail_at(struct snug_reader *reader, int64_t line, const char *what);
/* Reads more; false at the end of the file, or with an error in input_status. Call it only when the buffer is used up.
 */
bool snug_reader_refill(struct snug_reader *reader);
/* Appends to the record. */
snug_status snug_reader_append(struct snug_reader *reader, const char *data, size_t size);
/* Repairs the UTF-8 of the record's bytes from start on, which begin on the given line. */
snug_status snug_reader_check_utf8(struct snug_reader *reader, size_t start, int64_t line);
/* The next byte that is not a blank, without consuming it; -1 at the end or on failure. */
int snug_reader_peek(struct snug_reader *reader);
/* Appends the next line, with its end, to the record; SNUG_END if there is none. */
snug_status snug_reader_line(struct snug_reader *reader);
/* Starts a new record with the next line. */
snug_status snug_reader_first_line(struct snug_reader *reader);
/* The same with the next line that is not blank; only in text files is a blank line a row. */
snug_status snug_reader_filled_line(struct snug_reader *reader);
/* Removes the line's end from the record. */
void snug_reader_trim(struct snug_reader *reader);
/* One row of CSV or TSV; the header when columns is still 0. */
snug_status snug_reader_table_row(struct snug_reader *reader);
/* The next object of JSON; SNUG_END after the last. */
snug_status snug_reader_json(struct snug_reader *reader, bool first);
/* Its fields. */
snug_status snug_reader_json_row(struct snug_reader *reader);
/* Frees the object and its fields. */
void snug_reader_forget_row(struct snug_reader *reader);
/* Decides the columns of a CoNLL file by its first lines. */
snug_status snug_reader_begin_sentences(struct snug_reader *reader, const struct snug_conll_choice *choice);
void snug_reader_free_sentences(struct snug_reader *reader);
/* The next sentence of a CoNLL file into the fields; SNUG_END if there is none. */
snug_status snug_reader_sentence(struct snug_reader *reader);

#endif
