/* SPDX-License-Identifier: Apache-2.0 */
/* Which columns of a file are used; and of them the label's, or those that have a zero or a one for each class. */
#ifndef SNUG_DATA_LABEL_COLUMNS_H
#define SNUG_DATA_LABEL_COLUMNS_H

#include "data/column_names.h"
#include "data/dataset_options.h"
#include "data/peek.h"

/* Maximum number of columns of zeros and ones. */
enum { SNUG_FLAGS_MOST = 256 };

struct snug_columns {
    size_t text[SNUG_TEXTS_MOST], texts;
    bool pair;        /* text[0] and text[1] are a pair of texts; else the texts of all are joined into one */
    bool apart;       /* text[] are sequences of their own, if there are several */
    bool chat;        /* text[] are the columns of a chat (data/chat_columns.h) */
    bool objects;     /* text[] are those of the task's objects (data/object_rows.h) */
    bool preferences; /* text[] are those of preferences (data/preferences.h) */
    size_t label;
    bool has_label;
    size_t flag[SNUG_FLAGS_MOST], flags; /* instead of one label: columns of zeros and ones, of a class each */
};

/* Adds the column of this name to the texts, or the first of these names, up to NULL, that is there. False if there is
   none, or no room for it. */
bool snug_columns_add(const struct snug_column_names *list, const char *name, struct snug_columns *out);
bool snug_columns_add_any(const struct snug_column_names *list, const char *const names[], struct snug_columns *out);

/* As options name it; else as the model was trained; else by the names that the task knows. Without one has_label is
   false; if labels are needed that is SNUG_E_INPUT, unless the task finds it by its values, after the text
   (snug_tag_column_find()). */
snug_status snug_label_columns_find(snug_context *ctx, const struct snug_dataset_options *options,
                                    const struct snug_column_names *list, const struct snug_peek *peek,
                                    struct snug_columns *out);
/* Tags of words that no name shows: the first column with lists that is not the text. */
snug_status snug_tag_column_find(snug_context *ctx, const struct snug_dataset_options *options,
                                 const struct snug_column_names *list, const struct snug_peek *peek,
                                 struct snug_columns *out);
/* Whether a column has the label, or a class. */
bool snug_columns_is_label(const struct snug_columns *columns, size_t column);
/* Whether the column's values in the first rows that have any are of this kind; false where no row has one. */
bool snug_column_has_kind(const struct snug_peek *peek, size_t column, enum snug_field_kind a, enum snug_field_kind b);

#endif
