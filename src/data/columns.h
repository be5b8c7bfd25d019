/* SPDX-License-Identifier: Apache-2.0 */
/* Which columns of a file hold the texts and the label. */
#ifndef SNUG_DATA_COLUMNS_H
#define SNUG_DATA_COLUMNS_H

#include "data/dataset_row.h"
#include "data/label_columns.h"

/* What options say of the columns of a file with a word a line, for its reader. */
struct snug_conll_choice snug_columns_choice(const struct snug_dataset_options *options);
/* As options name them; else as they are known from GLUE, or as the model was trained; else the only column that can be
   a text. Names decide before values do. Identifiers are not texts: columns with a usual name of one, and columns of
   numbers that all differ in the rows of peek. Of a file with a word a line, those that its reader has decided. */
snug_status snug_columns_find(snug_context *ctx, const struct snug_dataset_options *options, const char *const *names,
                              size_t count, const struct snug_peek *peek, struct snug_columns *out);
/* Their names. */
snug_status snug_columns_describe(snug_context *ctx, const struct snug_columns *columns,
                                  const struct snug_dataset_options *options, const char *const *names, size_t count,
                                  struct snug_used_columns *out);
/* What a value is, for messages: "a number". */
const char *snug_columns_value(const struct snug_field *field);
/* Where texts come from, for messages, and how they are joined. */
struct snug_text_source {
    struct snug_columns columns;
    const char *path;
    const char *const *names; /* of all columns */
    const char *delimiter;    /* between joined texts */
    bool words;               /* rows are words */
    const char *object;       /* rows are objects of this kind, for messages; NULL: they are not */
};
/* Text number i of a row (1: the second of a pair): that of one column, or those of several, joined into *buffer; or
   its words. SNUG_E_INPUT names path, line and the column that has no text. */
snug_status snug_columns_text(snug_context *ctx, const struct snug_text_source *source, const struct snug_row *row,
                              size_t i, struct snug_row_buffer *buffer, struct snug_field *out);

#endif
