/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a file of chats as the JSON text that snug_encode_chat() reads. */
#ifndef SNUG_DATA_CHAT_JSON_H
#define SNUG_DATA_CHAT_JSON_H

#include "data/columns.h"

/* An object of the row's columns (data/chat_columns.h), in *buffer. SNUG_E_INPUT names path, line and the column whose
   value no chat can have. */
snug_status snug_chat_json(snug_context *ctx, const struct snug_text_source *source, const struct snug_row *row,
                           struct snug_row_buffer *buffer, struct snug_field *out);

#endif
