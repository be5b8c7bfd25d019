/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed as a whole: a template's tree, or the values of a rendering. */
#ifndef SNUG_JINJA_ARENA_H
#define SNUG_JINJA_ARENA_H

#include "core/context.h"

struct snug_arena {
    struct snug_arena_chunk *last;
    char *at, *end; /* the free part of the last chunk */
    size_t bytes;   /* of all chunks */
};

/* size bytes, not zeroed, aligned for any type; NULL if the allocation fails. */
void *snug_arena_take(struct snug_arena *arena, size_t size);
void snug_arena_free(struct snug_arena *arena);

#endif
