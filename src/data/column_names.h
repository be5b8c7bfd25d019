/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a file's columns. */
#ifndef SNUG_DATA_COLUMN_NAMES_H
#define SNUG_DATA_COLUMN_NAMES_H

#include "core/context.h"

struct snug_column_names {
    const char *const *names;
    size_t count;
    char text[512]; /* for messages: "a, b, c", truncated if it is long */
};
void snug_column_names_init(struct snug_column_names *out, const char *const *names, size_t count);
/* Appends a name to a list in a message: ", a", or in quotes if it has blanks and the like. */
void snug_column_names_add(char *text, size_t size, const char *name);

/* The column called name (length bytes); count if there is none. */
size_t snug_column_find(const struct snug_column_names *list, const char *name, size_t length);
/* As snug_column_find(), in upper or lower case, with blanks around it. */
size_t snug_column_find_alike(const struct snug_column_names *list, const char *name, size_t length);
/* The first of the usual names (up to NULL) that a column has, else that a column has alike. */
size_t snug_column_find_usual(const struct snug_column_names *list, const char *const usual[]);
/* Whether a column has one of the usual names, or a name that is alike. */
bool snug_column_is_usual(const char *name, const char *const usual[]);

#endif
