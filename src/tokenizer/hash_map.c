/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a hashes (Fowler, Noll, Vo), because they grow byte by byte: one pass over a text gives the hash of each of its
 * prefixes, so the longest prefix in the map is found with one look-up per character.
 */
#include "tokenizer/hash_map.h"

#include <stdlib.h>
#include <string.h>

#define FNV_BASIS 2166136261u
#define FNV_PRIME 16777619u

struct snug_hash_map_slot {
    uint32_t hash;
    uint32_t entry; /* number of the entry + 1; 0: free */
};

static inline uint32_t extend(uint32_t hash, char byte) { return (hash ^ (unsigned char)byte) * FNV_PRIME; }

static uint32_t hash_of(uint32_t hash, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) hash = extend(hash, text[i]);
    return hash;
}

/* FNV's low bits depend only on the low bits of the bytes, so the high bits are folded in. */
static inline size_t place_of(const struct snug_hash_map *map, uint32_t hash) {
    return (hash ^ hash >> 15) & (map->size - 1);
}

/* The entry, or NULL. */
static const struct snug_hash_map_entry *look_up(const struct snug_hash_map *map, uint32_t hash, const char *prefix,
                                                 size_t prefix_length, const char *text, size_t length) {
    for (size_t place = place_of(map, hash); map->slots[place].entry; place = (place + 1) & (map->size - 1)) {
        if (map->slots[place].hash != hash) continue;
        const struct snug_hash_map_entry *entry = &map->entries[map->slots[place].entry - 1];
        if (entry->length == prefix_length + length && !memcmp(entry->text, prefix, prefix_length) &&
            !memcmp(entry->text + prefix_length, text, length))
            return entry;
    }
    return NULL;
}

static void occupy(struct snug_hash_map *map, uint32_t hash, uint32_t entry) {
    size_t place = place_of(map, hash);
    while (map->slots[place].entry) place = (place + 1) & (map->size - 1);
    map->slots[place] = (struct snug_hash_map_slot){hash, entry};
}

snug_status snug_hash_map_reserve(snug_context *ctx, struct snug_hash_map *map, size_t count) {
    if (count >= UINT32_MAX) return snug_fail(ctx, SNUG_E_UNSUPPORTED, "more than %u tokens", UINT32_MAX - 1);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&map->entries, &map->capacity, count, sizeof *map->entries));
    size_t size = map->size ? map->size : 16;
    while (size < count * 2) size *= 2; /* at most half full, so a search for a missing string is short */
    if (size == map->size) return SNUG_OK;
    struct snug_hash_map_slot *old = map->slots, *slots;
    size_t old_size = map->size;
    RETURN_IF_ERROR(snug_alloc(ctx, size, sizeof *slots, (void **)&slots));
    map->slots = slots;
    map->size = size;
    for (size_t i = 0; i < old_size; i++)
        if (old[i].entry) occupy(map, old[i].hash, old[i].entry);
    free(old);
    return SNUG_OK;
}

snug_status snug_hash_map_add(snug_context *ctx, struct snug_hash_map *map, const char *text, size_t length,
                              int32_t value, int32_t *before) {
    *before = -1;
    RETURN_IF_ERROR(snug_hash_map_reserve(ctx, map, map->count + 1));
    uint32_t hash = hash_of(FNV_BASIS, text, length);
    const struct snug_hash_map_entry *same = look_up(map, hash, "", 0, text, length);
    if (same) {
        *before = same->value;
        return SNUG_OK;
    }
    map->entries[map->count++] = (struct snug_hash_map_entry){text, (uint32_t)length, value};
    occupy(map, hash, (uint32_t)map->count);
    if (length > map->longest) map->longest = length;
    return SNUG_OK;
}

void snug_hash_map_free(struct snug_hash_map *map) {
    free(map->entries);
    free(map->slots);
    *map = (struct snug_hash_map){0};
}

int32_t snug_hash_map_find(const struct snug_hash_map *map, const char *prefix, size_t prefix_length, const char *text,
                           size_t length) {
    if (prefix_length + length > map->longest || !map->size) return -1;
    uint32_t hash = hash_of(hash_of(FNV_BASIS, prefix, prefix_length), text, length);
    const struct snug_hash_map_entry *entry = look_up(map, hash, prefix, prefix_length, text, length);
    return entry ? entry->value : -1;
}

/* Whether there may be a string of this hash and length: its text is not compared. */
static bool may_have(const struct snug_hash_map *map, uint32_t hash, size_t length) {
    for (size_t place = place_of(map, hash); map->slots[place].entry; place = (place + 1) & (map->size - 1))
        if (map->slots[place].hash == hash && map->entries[map->slots[place].entry - 1].length == length) return true;
    return false;
}

size_t snug_hash_map_longest(const struct snug_hash_map *map, const char *text, size_t length, int32_t *value) {
    size_t most = map->longest < length ? map->longest : length;
    for (;;) {
        uint32_t hash = FNV_BASIS, longest_hash = 0;
        size_t longest = 0;
        for (size_t i = 0; i < most; i++) {
            hash = extend(hash, text[i]);
            if (i + 1 < length && ((unsigned char)text[i + 1] & 0xc0) == 0x80) continue; /* within a character */
            if (!may_have(map, hash, i + 1)) continue;
            longest = i + 1;
            longest_hash = hash;
        }
        if (!longest) return 0;
        /* Only the longest is compared: comparing each prefix would take quadratic time. */
        const struct snug_hash_map_entry *entry = look_up(map, longest_hash, "", 0, text, longest);
        if (entry) {
            *value = entry->value;
            return longest;
        }
        most = longest - 1; /* another string of the same hash */
    }
}
