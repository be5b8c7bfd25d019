/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a hashes (Fowler, Noll, Vo), because they grow byte by byte: one pass over a text gives the hash of each of its
 * prefixes, so the longest one in the set is found with one look-up a character.
 */
#include "text/lexicon.h"

#include <stdlib.h>
#include <string.h>

#define FNV_BASIS 2166136261u
#define FNV_PRIME 16777619u

struct snug_lexicon_slot {
    uint32_t hash;
    uint32_t entry; /* number of the entry + 1; 0: free */
};

static inline uint32_t extend(uint32_t hash, char byte) { return (hash ^ (unsigned char)byte) * FNV_PRIME; }

static uint32_t hash_of(uint32_t hash, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) hash = extend(hash, text[i]);
    return hash;
}

/* FNV's low bits depend on the low bits of the bytes alone; the high ones are folded in. */
static inline size_t place_of(const struct snug_lexicon *lexicon, uint32_t hash) {
    return (hash ^ hash >> 15) & (lexicon->size - 1);
}

/* The entry, or NULL. */
static const struct snug_lexicon_entry *look_up(const struct snug_lexicon *lexicon, uint32_t hash, const char *prefix,
                                                size_t prefix_length, const char *text, size_t length) {
    for (size_t place = place_of(lexicon, hash); lexicon->slots[place].entry;
         place = (place + 1) & (lexicon->size - 1)) {
        if (lexicon->slots[place].hash != hash) continue;
        const struct snug_lexicon_entry *entry = &lexicon->entries[lexicon->slots[place].entry - 1];
        if (entry->length == prefix_length + length && !memcmp(entry->text, prefix, prefix_length) &&
            !memcmp(entry->text + prefix_length, text, length))
            return entry;
    }
    return NULL;
}

static void occupy(struct snug_lexicon *lexicon, uint32_t hash, uint32_t entry) {
    size_t place = place_of(lexicon, hash);
    while (lexicon->slots[place].entry) place = (place + 1) & (lexicon->size - 1);
    lexicon->slots[place] = (struct snug_lexicon_slot){hash, entry};
}

snug_status snug_lexicon_reserve(snug_context *ctx, struct snug_lexicon *lexicon, size_t count) {
    if (count >= UINT32_MAX) return snug_fail(ctx, SNUG_E_UNSUPPORTED, "more than %u tokens", UINT32_MAX - 1);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&lexicon->entries, &lexicon->capacity, count, sizeof *lexicon->entries));
    size_t size = lexicon->size ? lexicon->size : 16;
    while (size < count * 2) size *= 2; /* half full at most: what is missing is soon known to be missing */
    if (size == lexicon->size) return SNUG_OK;
    struct snug_lexicon_slot *old = lexicon->slots, *slots;
    size_t old_size = lexicon->size;
    RETURN_IF_ERROR(snug_alloc(ctx, size, sizeof *slots, (void **)&slots));
    lexicon->slots = slots;
    lexicon->size = size;
    for (size_t i = 0; i < old_size; i++)
        if (old[i].entry) occupy(lexicon, old[i].hash, old[i].entry);
    free(old);
    return SNUG_OK;
}

snug_status snug_lexicon_add(snug_context *ctx, struct snug_lexicon *lexicon, const char *text, size_t length,
                             int32_t value, int32_t *before) {
    *before = -1;
    RETURN_IF_ERROR(snug_lexicon_reserve(ctx, lexicon, lexicon->count + 1));
    uint32_t hash = hash_of(FNV_BASIS, text, length);
    const struct snug_lexicon_entry *same = look_up(lexicon, hash, "", 0, text, length);
    if (same) {
        *before = same->value;
        return SNUG_OK;
    }
    lexicon->entries[lexicon->count++] = (struct snug_lexicon_entry){text, (uint32_t)length, value};
    occupy(lexicon, hash, (uint32_t)lexicon->count);
    if (length > lexicon->longest) lexicon->longest = length;
    return SNUG_OK;
}

void snug_lexicon_free(struct snug_lexicon *lexicon) {
    free(lexicon->entries);
    free(lexicon->slots);
    *lexicon = (struct snug_lexicon){0};
}

int32_t snug_lexicon_find(const struct snug_lexicon *lexicon, const char *prefix, size_t prefix_length,
                          const char *text, size_t length) {
    if (prefix_length + length > lexicon->longest || !lexicon->size) return -1;
    uint32_t hash = hash_of(hash_of(FNV_BASIS, prefix, prefix_length), text, length);
    const struct snug_lexicon_entry *entry = look_up(lexicon, hash, prefix, prefix_length, text, length);
    return entry ? entry->value : -1;
}

/* Whether there may be a string of this hash and length: its text is not compared. */
static bool may_have(const struct snug_lexicon *lexicon, uint32_t hash, size_t length) {
    for (size_t place = place_of(lexicon, hash); lexicon->slots[place].entry; place = (place + 1) & (lexicon->size - 1))
        if (lexicon->slots[place].hash == hash && lexicon->entries[lexicon->slots[place].entry - 1].length == length)
            return true;
    return false;
}

size_t snug_lexicon_longest(const struct snug_lexicon *lexicon, const char *text, size_t length, int32_t *value) {
    size_t most = lexicon->longest < length ? lexicon->longest : length;
    for (;;) {
        uint32_t hash = FNV_BASIS, longest_hash = 0;
        size_t longest = 0;
        for (size_t i = 0; i < most; i++) {
            hash = extend(hash, text[i]);
            if (i + 1 < length && ((unsigned char)text[i + 1] & 0xc0) == 0x80) continue; /* within a character */
            if (!may_have(lexicon, hash, i + 1)) continue;
            longest = i + 1;
            longest_hash = hash;
        }
        if (!longest) return 0;
        /* Only the longest is compared: to compare each prefix would take quadratic time. */
        const struct snug_lexicon_entry *entry = look_up(lexicon, longest_hash, "", 0, text, longest);
        if (entry) {
            *value = entry->value;
            return longest;
        }
        most = longest - 1; /* another string of the same hash */
    }
}
