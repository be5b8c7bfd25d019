/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/arena.h"

#include <stdlib.h>

struct snug_arena_chunk {
    struct snug_arena_chunk *before;
    max_align_t memory[];
};

enum { CHUNK = 1 << 14, CHUNK_MOST = 1 << 20, ALIGNMENT = _Alignof(max_align_t) };

void *snug_arena_take(struct snug_arena *arena, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!arena->last || (size_t)(arena->end - arena->at) < size) {
        size_t room = arena->bytes < CHUNK ? CHUNK : arena->bytes > CHUNK_MOST ? CHUNK_MOST : arena->bytes;
        if (size > room) room = size;
        struct snug_arena_chunk *chunk = malloc(sizeof *chunk + room);
        if (!chunk) return NULL;
        chunk->before = arena->last;
        arena->last = chunk;
        arena->bytes += room;
        arena->at = (char *)chunk->memory;
        arena->end = arena->at + room;
    }
    char *block = arena->at;
    arena->at += size;
    return block;
}

void snug_arena_free(struct snug_arena *arena) {
    while (arena->last) {
        struct snug_arena_chunk *before = arena->last->before;
        free(arena->last);
        arena->last = before;
    }
    *arena = (struct snug_arena){0};
}
