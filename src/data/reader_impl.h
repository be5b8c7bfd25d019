/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a reader: reader.c reads lines and plain text, reader_json.c JSON, reader_conll.c words with tags,
   reader_table.c CSV and TSV. */
#ifndef SNUG_DATA_READER_IMPL_H
#define SNUG_DATA_READER_IMPL_H

#include <string.h>

#include "data/reader.h"

/* A longer row is treated as an unclosed quote, or as a file that is not text. */
#define RECORD_MAX ((size_t)1 << 28)

/* A value's place in the record, or a text that does not depend on the row. */
struct snug_value_place {
    enum snug_field_kind kind;
    const char *fixed; /* NULL: in the record */
    size_t start, length;
};

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
    bool strict, words, keep_ends, quiet, ended;
    const char *const *nested;

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

    struct snug_json_rows *json; /* of a JSON file */

    struct snug_sentences *sentences; /* of a CoNLL file */

    struct snug_rows *rows; /* that are read in place of a file; then file is NULL */
    int64_t rows_taken;     /* bytes of them that were read */
    char *row;              /* one of them */
    size_t row_capacity;
    struct snug_value_place *places; /* of its values, by column */

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
/* Repairs bytes that are malformed, all on the given line. */
snug_status snug_reader_repair(struct snug_reader *reader, size_t start, int64_t line);
/* Appends the next line, with its end, to the record; SNUG_END if there is none. */
snug_status snug_reader_line(struct snug_reader *reader);
/* Starts a new record with the next line. */
snug_status snug_reader_first_line(struct snug_reader *reader);
/* Starts a new record with the next line that is not blank; only in text files is a blank line a row. */
snug_status snug_reader_filled_line(struct snug_reader *reader);
/* Removes the line's end from the record. */
void snug_reader_trim(struct snug_reader *reader);
/* One row of CSV or TSV; the header when columns is still 0. */
snug_status snug_reader_table_row(struct snug_reader *reader);
/* Adds a column. */
snug_status snug_reader_add_name(struct snug_reader *reader, const char *name);
/* A field of the current row, whose value is complete in the record. */
static inline void snug_reader_set_field(struct snug_reader *reader, size_t column,
                                         const struct snug_value_place *value) {
    reader->fields[column] =
        (struct snug_field){value->kind, value->fixed ? value->fixed : reader->record + value->start, value->length};
}
/* The columns of rows in memory. SNUG_END: there is no row. */
snug_status snug_reader_rows_open(struct snug_reader *reader);
/* The next of them into the fields; SNUG_END after the last. */
snug_status snug_reader_rows_row(struct snug_reader *reader);
/* Finds how a JSON file holds its rows, and the names of their columns. SNUG_END: it has no row. */
snug_status snug_reader_json_open(struct snug_reader *reader);
/* Its next row into the fields; SNUG_END after the last. */
snug_status snug_reader_json_row(struct snug_reader *reader);
/* Whether lists and objects of the column of this name are kept as JSON texts. */
static inline bool snug_reader_keeps(const struct snug_reader *reader, const char *name) {
    const char *const *next = reader->nested;
    while (next && *next && strcmp(*next, name) != 0) next++;
    return next && *next;
}
/* The first key that the first row does not have, if a row has one. */
const char *snug_reader_json_added(const struct snug_reader *reader);
void snug_reader_json_free(struct snug_json_rows *rows);
/* Decides the columns of a CoNLL file by its first lines. */
snug_status snug_reader_begin_sentences(struct snug_reader *reader, const struct snug_conll_choice *choice);
void snug_reader_free_sentences(struct snug_reader *reader);
/* The next sentence of a CoNLL file into the fields; SNUG_END if there is none. */
snug_status snug_reader_sentence(struct snug_reader *reader);

#endif
