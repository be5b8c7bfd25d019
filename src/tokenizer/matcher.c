/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aho and Corasick, "Efficient string matching" (1975), over reversed patterns. The text is read backwards. At position
 * p the state is the longest string that begins at p in the text and is, reversed, a prefix of a reversed pattern. The
 * longest pattern that begins at p belongs to that state or to a state of its failure chain: best[] stores it. The text
 * is read in windows, each from one pattern length after its end, so that the results need memory for the longest
 * pattern only; windows are read on demand.
 */
#include "tokenizer/matcher.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Minimum positions of a window, so that short patterns do not cause a call for each position. */
#define WINDOW 64
/* Number of patterns up to which insertion sort is faster than counting sort. */
#define FEW 32

snug_status snug_matcher_add(snug_context *ctx, struct snug_matcher *matcher, const char *text, size_t length,
                             int32_t value) {
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&matcher->patterns, &matcher->capacity, matcher->count + 1, sizeof *matcher->patterns));
    matcher->patterns[matcher->count++] = (struct snug_pattern){text, (uint32_t)length, value};
    matcher->first[(unsigned char)text[0]] = true;
    if (length > matcher->longest) matcher->longest = length;
    return SNUG_OK;
}

void snug_matcher_free(struct snug_matcher *matcher) {
    free(matcher->patterns);
    free(matcher->children);
    free(matcher->failure);
    free(matcher->best);
    free(matcher->bytes);
    *matcher = (struct snug_matcher){0};
}

/* The state after one more byte. */
static inline uint32_t next_state(const struct snug_matcher *matcher, uint32_t state, unsigned char byte) {
    while (state) {
        const uint32_t from = matcher->children[state], to = matcher->children[state + 1];
        const unsigned char *child = to > from ? memchr(matcher->bytes + from, byte, to - from) : NULL;
        if (child) return (uint32_t)(child - matcher->bytes);
        state = matcher->failure[state];
    }
    return matcher->root[byte];
}

/* ---- building ---- */

/* Patterns order[low] … order[high - 1] end with the string of one state. */
struct range {
    uint32_t low, high;
};

struct build {
    snug_context *ctx;
    struct snug_matcher *matcher;
    uint32_t *order, *sorted;     /* [count] numbers of patterns */
    struct range *level, *deeper; /* [count] of the states of one depth, and of the next */
    uint32_t added;               /* ranges in deeper */
};

/* The sort key at a depth: 0 if the pattern ends, else its next byte from the end + 1. */
static inline unsigned key_of(const struct snug_matcher *matcher, uint32_t number, uint32_t depth) {
    const struct snug_pattern *pattern = &matcher->patterns[number];
    return depth == pattern->length ? 0 : 1u + (unsigned char)pattern->text[pattern->length - 1 - depth];
}

static void sort_range(const struct build *build, struct range range, uint32_t depth) {
    uint32_t *order = build->order + range.low, *sorted = build->sorted;
    const uint32_t count = range.high - range.low;
    if (count <= FEW) {
        for (uint32_t i = 1; i < count; i++) {
            const uint32_t number = order[i];
            const unsigned key = key_of(build->matcher, number, depth);
            uint32_t to = i;
            for (; to > 0 && key_of(build->matcher, order[to - 1], depth) > key; to--) order[to] = order[to - 1];
            order[to] = number;
        }
        return;
    }
    uint32_t place[258] = {0};
    for (uint32_t i = 0; i < count; i++) place[key_of(build->matcher, order[i], depth) + 1]++;
    for (int key = 0; key < 257; key++) place[key + 1] += place[key];
    for (uint32_t i = 0; i < count; i++) sorted[place[key_of(build->matcher, order[i], depth)]++] = order[i];
    memcpy(order, sorted, count * sizeof *order);
}

/* Reserves memory for more states, and for the end of the last one's children. */
static snug_status reserve_states(snug_context *ctx, struct snug_matcher *matcher, size_t more) {
    const size_t need = (size_t)matcher->states + more + 1;
    void **const arrays[] = {(void **)&matcher->children, (void **)&matcher->failure, (void **)&matcher->best,
                             (void **)&matcher->bytes};
    const size_t sizes[] = {sizeof *matcher->children, sizeof *matcher->failure, sizeof *matcher->best, 1};
    size_t room = matcher->room;
    for (int i = 0; i < 4; i++) {
        room = matcher->room;
        RETURN_IF_ERROR(snug_grow(ctx, arrays[i], &room, need, sizes[i]));
    }
    matcher->room = room;
    return SNUG_OK;
}

/* Gives a state its best pattern and its children. The states that its failure leads to were expanded before. */
static snug_status expand(struct build *build, uint32_t state, struct range range, uint32_t depth) {
    struct snug_matcher *matcher = build->matcher;
    sort_range(build, range, depth);
    matcher->children[state] = matcher->states;
    matcher->best[state] = state ? matcher->best[matcher->failure[state]] : 0;
    for (uint32_t low = range.low, high; low < range.high; low = high) {
        const unsigned key = key_of(matcher, build->order[low], depth);
        for (high = low + 1; high < range.high && key_of(matcher, build->order[high], depth) == key;) high++;
        if (!key) {
            matcher->best[state] = build->order[low] + 1;
            continue;
        }
        RETURN_IF_ERROR(reserve_states(build->ctx, matcher, 1));
        const uint32_t child = matcher->states++; /* texts of files below 256 MiB do not have 2^32 bytes */
        matcher->bytes[child] = (unsigned char)(key - 1);
        matcher->failure[child] = state ? next_state(matcher, matcher->failure[state], matcher->bytes[child]) : 0;
        if (!state) matcher->root[key - 1] = child;
        build->deeper[build->added++] = (struct range){low, high};
    }
    return SNUG_OK;
}

static snug_status expand_all(struct build *build) {
    struct snug_matcher *matcher = build->matcher;
    RETURN_IF_ERROR(reserve_states(build->ctx, matcher, 1));
    matcher->states = 1;
    matcher->failure[0] = 0;
    for (uint32_t i = 0; i < matcher->count; i++) build->order[i] = i;
    build->level[0] = (struct range){0, (uint32_t)matcher->count};
    for (uint32_t state = 0, end = 1, depth = 0; state < end; end = matcher->states, depth++) {
        build->added = 0;
        for (const uint32_t begin = state; state < end; state++)
            RETURN_IF_ERROR(expand(build, state, build->level[state - begin], depth));
        struct range *level = build->level;
        build->level = build->deeper;
        build->deeper = level;
    }
    matcher->children[matcher->states] = matcher->states;
    return SNUG_OK;
}

snug_status snug_matcher_finish(snug_context *ctx, struct snug_matcher *matcher) {
    if (!matcher->count) return SNUG_OK;
    assert(matcher->count < UINT32_MAX); /* a pattern takes more than a byte of a file below 256 MiB */
    struct build build = {.ctx = ctx, .matcher = matcher};
    snug_status status = snug_alloc(ctx, matcher->count, sizeof *build.order, (void **)&build.order);
    if (status == SNUG_OK) status = snug_alloc(ctx, matcher->count, sizeof *build.sorted, (void **)&build.sorted);
    if (status == SNUG_OK) status = snug_alloc(ctx, matcher->count, sizeof *build.level, (void **)&build.level);
    if (status == SNUG_OK) status = snug_alloc(ctx, matcher->count, sizeof *build.deeper, (void **)&build.deeper);
    if (status == SNUG_OK) status = expand_all(&build);
    free(build.order);
    free(build.sorted);
    free(build.level);
    free(build.deeper);
    return status;
}

/* ---- searching ---- */

void snug_search_begin(struct snug_search *search, const struct snug_matcher *matcher, const char *text,
                       size_t length) {
    search->matcher = matcher;
    search->text = text;
    search->length = length;
    search->begin = search->end = 0;
}

void snug_search_free(struct snug_search *search) {
    free(search->found);
    *search = (struct snug_search){0};
}

/* Finds the patterns of the window that begins at text[at]. */
static snug_status read_window(snug_context *ctx, struct snug_search *search, size_t at) {
    const struct snug_matcher *matcher = search->matcher;
    const unsigned char *text = (const unsigned char *)search->text;
    const size_t rest = search->length - at, most = matcher->longest > WINDOW ? matcher->longest : WINDOW;
    const size_t size = rest < most ? rest : most, after = rest - size;
    size_t place = at + size + (after < matcher->longest - 1 ? after : matcher->longest - 1);
    uint32_t state = 0;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&search->found, &search->capacity, size, sizeof *search->found));
    while (place > at + size) state = next_state(matcher, state, text[--place]);
    while (place > at) {
        state = next_state(matcher, state, text[--place]);
        search->found[place - at] = matcher->best[state];
    }
    search->begin = at;
    search->end = at + size;
    return SNUG_OK;
}

snug_status snug_search_at(snug_context *ctx, struct snug_search *search, size_t at,
                           const struct snug_pattern **pattern) {
    const struct snug_matcher *matcher = search->matcher;
    *pattern = NULL;
    if (!matcher->first[(unsigned char)search->text[at]]) return SNUG_OK;
    if (at >= search->end) RETURN_IF_ERROR(read_window(ctx, search, at));
    const uint32_t number = search->found[at - search->begin];
    if (number) *pattern = &matcher->patterns[number - 1];
    return SNUG_OK;
}
