/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map from strings to values that also finds the longest prefix of a text. */
#ifndef SNUG_TOKENIZER_HASH_MAP_H
#define SNUG_TOKENIZER_HASH_MAP_H

#include "core/context.h"

struct snug_hash_map_entry {
    const char *text; /* borrowed: must outlive the map */
    uint32_t length;
    int32_t value;
};

/* Zero-initialise. */
struct snug_hash_map {
    struct snug_hash_map_entry *entries;
    size_t count, capacity;
    struct snug_hash_map_slot *slots;
    size_t size;    /* of slots: 0 or a power of two */
    size_t longest; /* bytes of the longest string */
};

/* Reserves memory for count strings. */
snug_status snug_hash_map_reserve(snug_context *ctx, struct snug_hash_map *map, size_t count);
/* Adds a string that is not yet in the map. If it is, nothing changes and *before is its value; otherwise -1. */
snug_status snug_hash_map_add(snug_context *ctx, struct snug_hash_map *map, const char *text, size_t length,
                              int32_t value, int32_t *before);
void snug_hash_map_free(struct snug_hash_map *map);
/* The value of prefix followed by text, or -1. */
int32_t snug_hash_map_find(const struct snug_hash_map *map, const char *prefix, size_t prefix_length, const char *text,
                           size_t length);
/* The longest prefix of text that is in the map: its length (0 if there is none) and value. */
size_t snug_hash_map_longest(const struct snug_hash_map *map, const char *text, size_t length, int32_t *value);

#endif
