/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of data that a program gives (snug_rows of snug.h): JSON Lines in a file in memory, read as any other file. */
#ifndef SNUG_TEXT_ROWS_H
#define SNUG_TEXT_ROWS_H

#include "core/context.h"

/* As snug_rows_create(), snug_rows_json() and snug_rows_destroy(), for use inside a call of the program's. */
snug_status snug_rows_make(snug_context *ctx, struct snug_rows **out);
snug_status snug_rows_add(struct snug_rows *rows, const char *object);
void snug_rows_free(struct snug_rows *rows);
/* Opens the rows for reading from the first one; path is for messages, *fd is closed by the caller. Its position is
   that of all readers of these rows: one reads at a time. SNUG_E_USAGE: the last row was not ended. */
snug_status snug_rows_open(snug_context *ctx, struct snug_rows *rows, const char *path, int *fd);

#endif
