/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that a task reads as JSON objects of some columns (snug_chat_json()), each of which becomes rows of tokens. */
#ifndef SNUG_DATA_OBJECT_ROWS_H
#define SNUG_DATA_OBJECT_ROWS_H

#include <jansson.h>

#include "data/encode.h"
#include "data/label_columns.h"
#include "data/label_form.h"

struct snug_object_rows {
    const char *kind;          /* for messages: "question" */
    enum snug_label_form form; /* of what the rows of tokens hold as labels */
    const char *const *nested; /* names of columns that hold lists and objects, up to NULL */
    const char *columns;       /* which columns a file must have, for a message */
    /* Finds them; false if there are none. */
    bool (*find)(const struct snug_column_names *list, const struct snug_dataset_options *options,
                 struct snug_columns *out);
    /* Appends the rows of the object in text to encoder->windows, encoder->numbers and encoder->out. where is for
       messages: "train.json:7". */
    snug_status (*encode)(snug_context *ctx, const struct snug_encoding *encoding, const char *where, const char *text,
                          size_t length, struct snug_encoder *encoder, struct snug_encoded *out);
};

/* For encode: parses the text, which the caller frees, and notes where the rows begin; and where they end. */
snug_status snug_object_begin(snug_context *ctx, const char *where, const char *text, size_t length,
                              const struct snug_encoder *encoder, struct snug_encoded *out, json_t **object);
void snug_object_end(const struct snug_encoder *encoder, struct snug_encoded *out);
/* Appends a text, with its NUL, to encoder->text. */
snug_status snug_object_add_text(snug_context *ctx, const char *text, struct snug_encoder *encoder);

#endif
