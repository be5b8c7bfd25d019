/* SPDX-License-Identifier: Apache-2.0 */
/* The longest of many patterns at each position of a text, in time linear in the text. */
#ifndef SNUG_TOKENIZER_MATCHER_H
#define SNUG_TOKENIZER_MATCHER_H

#include "core/context.h"

struct snug_pattern {
    const char *text; /* borrowed; read until snug_matcher_finish() returns */
    uint32_t length;  /* bytes, at least 1 */
    int32_t value;
};

/* An Aho-Corasick automaton of the reversed patterns. Zero-initialise; snug_matcher_free also after a failure. */
struct snug_matcher {
    struct snug_pattern *patterns;
    size_t count, capacity;
    size_t longest;  /* bytes of the longest pattern */
    bool first[256]; /* first bytes of patterns */

    /* By state, in breadth-first order; 0 is the root. The children of state s are children[s] … children[s + 1] - 1,
       sorted by their bytes. About 14 bytes a state, and at most one state for each byte of the patterns. */
    uint32_t states;
    uint32_t *children;
    uint32_t *failure;    /* the state of the longest proper suffix of the state's string */
    uint32_t *best;       /* number of the longest pattern that is a suffix of the state's string, + 1; 0: none */
    unsigned char *bytes; /* the last byte of the state's string */
    size_t room;          /* states that the arrays have memory for */
    uint32_t root[256];   /* the root's children by byte; 0: none */
};

/* Adds a pattern; no pattern may be added twice. */
snug_status snug_matcher_add(snug_context *ctx, struct snug_matcher *matcher, const char *text, size_t length,
                             int32_t value);
/* Builds the automaton, in time linear in the bytes of the patterns. */
snug_status snug_matcher_finish(snug_context *ctx, struct snug_matcher *matcher);
void snug_matcher_free(struct snug_matcher *matcher);

/* A search in one text after another. Zero-initialise; the buffer is reused for every text and freed by
   snug_search_free(). One for each thread. */
struct snug_search {
    const struct snug_matcher *matcher;
    const char *text;
    size_t length;
    size_t begin, end; /* range of positions with known longest patterns */
    uint32_t *found;   /* [end - begin] as in best */
    size_t capacity;
};

/* Starts with a text, in constant time. matcher and text are borrowed. */
void snug_search_begin(struct snug_search *search, const struct snug_matcher *matcher, const char *text, size_t length);
/* The first position from at on where a pattern may begin, by its first byte; the length of the text if there is
   none. */
static inline size_t snug_search_skip(const struct snug_search *search, size_t at) {
    while (at < search->length && !search->matcher->first[(unsigned char)search->text[at]]) at++;
    return at;
}
/* *pattern: the longest that begins at text[at], or NULL. Calls with ascending at take linear time in total. */
snug_status snug_search_at(snug_context *ctx, struct snug_search *search, size_t at,
                           const struct snug_pattern **pattern);
void snug_search_free(struct snug_search *search);

#endif
