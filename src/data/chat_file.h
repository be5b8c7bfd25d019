/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a JSON file as JSON values, nested ones too: what chats need, of which the columns of data/reader.h have
   only texts. */
#ifndef SNUG_DATA_CHAT_FILE_H
#define SNUG_DATA_CHAT_FILE_H

#include <jansson.h>

#include "core/context.h"

struct snug_chat_file;
/* JSON lines, or a list of objects; compressed by gzip or not; "-": standard input. */
snug_status snug_chat_file_open(snug_context *ctx, const char *path, struct snug_chat_file **out);
void snug_chat_file_close(struct snug_chat_file *file);
/* The next object, freed with json_decref(); SNUG_END after the last. *where: "file:7" (the line), or of a list
   "file, row 7"; valid until the next call. SNUG_E_INPUT names it, too. */
snug_status snug_chat_file_next(struct snug_chat_file *file, json_t **row, const char **where);

#endif
