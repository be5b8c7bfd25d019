/* SPDX-License-Identifier: Apache-2.0 */
/* How similar two names are, for messages about unknown ones. */
#ifndef SNUG_CORE_EDIT_DISTANCE_H
#define SNUG_CORE_EDIT_DISTANCE_H

#include <stddef.h>

enum { SNUG_EDIT_SIZE = 64 };

/* Levenshtein's distance, at most limit; both are shorter than SNUG_EDIT_SIZE. */
size_t snug_edit_distance(const char *a, const char *b, size_t limit);

#endif
