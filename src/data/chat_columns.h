/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of a file whose rows are chats. */
#ifndef SNUG_DATA_CHAT_COLUMNS_H
#define SNUG_DATA_CHAT_COLUMNS_H

#include "data/label_columns.h"

/* The names of those that hold lists and objects, up to NULL: snug_reader_options.nested. */
extern const char *const snug_chat_nested[];
bool snug_chat_is_nested(const char *name);

/* Whether the first row that has a value in the column has a list, or its JSON text. */
bool snug_chat_has_lists(const struct snug_peek *peek, size_t column);

enum snug_chat_layout {
    SNUG_CHAT_PROMPTS,  /* "prompt" and "completion", if both are lists of messages */
    SNUG_CHAT_MESSAGES, /* "messages" or "conversations" */
    SNUG_CHAT_ALPACA    /* "instruction" and "output", which only names show */
};
/* Whether a file has chats, whose columns then are *out. Lists of messages are seen in the first rows, in other files
   than JSON as JSON texts. */
bool snug_chat_columns_find(const struct snug_column_names *list, const struct snug_peek *peek,
                            enum snug_chat_layout layout, struct snug_columns *out);

#endif
