/* SPDX-License-Identifier: Apache-2.0 */
/* Raw labels of a file: interned, numbered by first appearance. */
#ifndef SNUG_DATA_LABELS_H
#define SNUG_DATA_LABELS_H

#include <string.h>

#include "data/label_form.h"
#include "data/numbers.h"
#include "data/peek.h"

/* From this number of different labels on, if there are fractions among them, further values are not interned, because
 * there may be one per row: the label is then SNUG_LABEL_VALUE, followed by the bits of a float.
 */
enum { SNUG_LABELS_NUMBERED = 1 << 16 };
#define SNUG_LABEL_VALUE UINT32_MAX

/* Whether a row may have several labels, or none. */
static inline bool snug_labels_are_lists(enum snug_label_form form) {
    return form == SNUG_LABELS_LIST || form == SNUG_LABELS_MULTI_HOT || form == SNUG_LABELS_COLUMNS;
}
static inline bool snug_label_is_value(const uint32_t *labels, int64_t count) {
    return count == 2 && labels[0] == SNUG_LABEL_VALUE;
}
static inline float snug_label_value(const uint32_t *labels) {
    float value;
    memcpy(&value, &labels[1], sizeof value);
    return value;
}

struct snug_raw_label {
    int64_t line;    /* its first row */
    int64_t rows;    /* of the whole file; of a tag the words */
    uint64_t offset; /* of its text */
};

/* Zero-initialise; snug_raw_labels_free(). */
struct snug_raw_labels {
    char *text; /* all labels' texts, NUL-terminated */
    size_t text_size, text_capacity;
    struct snug_raw_label *items;
    size_t count, capacity;
    uint32_t *slots; /* open hash table of number + 1; only while labels are being added */
    size_t slot_count;
};
void snug_raw_labels_free(struct snug_raw_labels *raw);
const char *snug_raw_labels_text(const struct snug_raw_labels *raw, size_t number);

/* State of a label column that is being read. */
struct snug_label_column {
    struct snug_raw_labels raw;
    const char *name;      /* of the column, for messages */
    bool typed;            /* JSON distinguishes numbers from strings; in other formats the text decides */
    const char *separator; /* of the labels in a text; "": none; NULL: a text with '|' is an error */
    bool flags;            /* rows are columns of zeros and ones (snug_label_column_add_flags()) */
    int64_t hot;           /* above 0: rows are lists of as many zeros and ones (snug_label_hot()) */
    bool list, string, real, integer, nonfinite, word; /* word: a string that is no number */
    bool words;                                        /* tags of words */
    bool may_miss;                                     /* rows without a label, which are then left out, are no error */
    int64_t missing_line;                              /* the first of them without a value; 0 if none */
    int64_t empty_line;                                /* the first row whose label is the empty text; 0 if none */
    uint32_t *numbers;                                 /* of the last row; or SNUG_LABEL_VALUE and its value */
    size_t count, capacity;
    locale_t plain; /* in which numbers are read */
    int64_t rows;   /* so far */
    int64_t *seen;  /* by raw label: the last row that has it */
    size_t seen_capacity;
};
/* The length of the lists if the labels of the first rows are lists of zeros and ones, at least 2; else 0. Lists of
   several lengths are SNUG_E_INPUT. */
snug_status snug_label_hot(snug_context *ctx, const char *path, const struct snug_peek *peek, size_t column,
                           int64_t *out);
/* Begins a column of such lists: a raw label for each of its classes. */
snug_status snug_label_column_begin_hot(snug_context *ctx, struct snug_label_column *column, int64_t classes);
/* The value of a zero or one, also as 0.0 or True; -1: it is something else, -2: there is none. */
int snug_label_flag(const struct snug_field *field);
/* Begins columns of zeros and ones, of a class each: a raw label for each of their names. */
snug_status snug_label_column_begin_flags(snug_context *ctx, struct snug_label_column *column, const char *const *names,
                                          const size_t columns[], size_t count);
/* A row of them: its raw labels are the columns that hold a one. If labels are not required, a row that holds anything
   else than zeros and ones has none. */
snug_status snug_label_column_add_flags(snug_context *ctx, struct snug_label_column *column, const char *path,
                                        int64_t line, const struct snug_field *fields, const size_t columns[],
                                        bool needed);
void snug_label_column_free(struct snug_label_column *column);
/* Parses one row's label; numbers[0 … count-1] are its raw labels. A missing label gives none or, if it is required, is
   an error that names path and line. */
snug_status snug_label_column_add(snug_context *ctx, struct snug_label_column *column, const char *path, int64_t line,
                                  const struct snug_field *field, bool needed);
/* As snug_label_column_add(), for a row of tags, one per word; numbers[0 … count-1] are the words' labels in order.
   Values that are no tags are an error if tags are required; else the row has none. */
snug_status snug_label_column_add_tags(snug_context *ctx, struct snug_label_column *column, const char *path,
                                       int64_t line, const struct snug_field *field, bool needed);
/* The form of the whole column; an empty label is an error if labels are required, except among lists. Lists of which
   some are missing have no form. */
snug_status snug_label_column_form(snug_context *ctx, const struct snug_label_column *column, const char *path,
                                   bool needed, enum snug_label_form *out);

#endif
