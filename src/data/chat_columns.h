/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of a file whose rows are chats. */
#ifndef SNUG_DATA_CHAT_COLUMNS_H
#define SNUG_DATA_CHAT_COLUMNS_H

#include "data/label_columns.h"

/* The names of those that hold lists and objects, up to NULL: snug_reader_options.nested. */
extern const char *const snug_chat_nested[];
bool snug_chat_is_nested(const char *name);

/* Whether a file has chats, whose columns then are *out. Lists of messages are seen in the first rows, in other files
   than JSON as JSON texts. alpaca: "instruction" and "output", which only names show; else "messages" and
   "conversations". */
bool snug_chat_columns_find(const struct snug_column_names *list, const struct snug_peek *peek, bool alpaca,
                            struct snug_columns *out);

#endif
