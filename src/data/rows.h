/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of data that a program gives (snug_rows of snug.h), in a file in memory, whose pages are not the process's own.
 * A row is there as its size, its number of values, and of each the column, the kind, the length and the text with a
 * NUL after it; of a list the length is the number of its items, which follow. Numbers are in the machine's byte order.
 */
#ifndef SNUG_DATA_ROWS_H
#define SNUG_DATA_ROWS_H

#include "core/context.h"

struct snug_rows_head {
    uint32_t bytes, values; /* of the row, without this head */
};

struct snug_rows_value {
    uint32_t column, kind, length; /* kind: enum snug_field_kind; column 0 for an item */
};

/* As snug_rows_create(), snug_rows_set(), snug_rows_end() and snug_rows_destroy(), for use inside a call of the
   program's. */
snug_status snug_rows_make(snug_context *ctx, struct snug_rows **out);
snug_status snug_rows_put(struct snug_rows *rows, const char *column, const snug_value *value);
snug_status snug_rows_complete(struct snug_rows *rows);
void snug_rows_free(struct snug_rows *rows);

/* Opens the rows for reading; path is for messages, *fd is closed by the caller. SNUG_E_USAGE: the last row was not
   ended. */
snug_status snug_rows_open(snug_context *ctx, struct snug_rows *rows, const char *path, int *fd);
int64_t snug_rows_count(const struct snug_rows *rows);
/* Their columns, those of all rows. */
size_t snug_rows_columns(const struct snug_rows *rows, const char *const **names);
/* The names of the classes that a column's whole numbers are (snug_rows_classes()), NULL: they are numbers. */
const char *const *snug_rows_class_names(const struct snug_rows *rows, size_t column, size_t *count);

#endif
