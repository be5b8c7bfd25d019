/* SPDX-License-Identifier: Apache-2.0 */
/* A set of strings with a value each: a hash table that also finds the longest prefix of a text. */
#ifndef SNUG_TEXT_LEXICON_H
#define SNUG_TEXT_LEXICON_H

#include "core/context.h"

struct snug_lexicon_entry {
    const char *text; /* borrowed: must outlive the set */
    uint32_t length;
    int32_t value;
};

/* Zero-initialise. */
struct snug_lexicon {
    struct snug_lexicon_entry *entries;
    size_t count, capacity;
    struct snug_lexicon_slot *slots;
    size_t size;    /* of slots: 0 or a power of two */
    size_t longest; /* bytes of the longest string */
};

/* Makes room for count strings at once. */
snug_status snug_lexicon_reserve(snug_context *ctx, struct snug_lexicon *lexicon, size_t count);
/* Adds a string that is not yet in the set. If it is, nothing changes and *before is its value; otherwise -1. */
snug_status snug_lexicon_add(snug_context *ctx, struct snug_lexicon *lexicon, const char *text, size_t length,
                             int32_t value, int32_t *before);
void snug_lexicon_free(struct snug_lexicon *lexicon);
/* The value of prefix followed by text, or -1. */
int32_t snug_lexicon_find(const struct snug_lexicon *lexicon, const char *prefix, size_t prefix_length,
                          const char *text, size_t length);
/* The longest prefix of text that is in the set: its length (0 if there is none) and value. */
size_t snug_lexicon_longest(const struct snug_lexicon *lexicon, const char *text, size_t length, int32_t *value);

#endif
