/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Viterbi's algorithm over the automaton of Aho and Corasick, "Efficient string matching" (1975): after each character,
 * the state gives all pieces that end there, from the longest to the shortest. Scores are summed in double from left to
 * right, and a path replaces another only where its score is larger, so that of equal paths the one with the longest
 * last piece wins, as in the library.
 *
 * If no piece can extend over a position, every path goes through it: the text before it is output, and the nodes are
 * reused.
 */
#include "tokenizer/unigram.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "tokenizer/wordpiece.h"

/* An unknown character's score is the lowest score of a piece minus this. */
#define UNKNOWN_PENALTY 10.0
/* Number of children up to which a loop finds a byte faster than memchr. */
#define FEW 8
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The best path to a position: its score and last piece. */
struct snug_unigram_node {
    double score;
    uint32_t length;
    int32_t id;
};

snug_status snug_unigram_add(snug_context *ctx, struct snug_unigram *model, const char *path, const char *text,
                             size_t length, double score) {
    const size_t id = model->count;
    assert(id < INT32_MAX && length < UINT32_MAX); /* pieces are from files below 256 MiB */
    if (snug_utf8_invalid(text, length) < length)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: piece %zu of the vocabulary is not valid UTF-8", path, id);
    if (!isfinite(score))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: piece %zu of the vocabulary, \"%.*s\", has no finite score", path, id,
                         (int)length, text);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&model->pieces, &model->capacity, id + 1, sizeof *model->pieces));
    model->pieces[id] = (struct snug_unigram_piece){text, score, (uint32_t)length};
    if (!id || score < model->min_score) model->min_score = score;
    if (length > model->longest) model->longest = length;
    model->count++;
    return SNUG_OK;
}

void snug_unigram_free(struct snug_unigram *model) {
    free(model->pieces);
    free(model->automaton);
    free(model->bytes);
    *model = (struct snug_unigram){0};
}

void snug_unigram_scratch_free(struct snug_unigram_scratch *scratch) {
    free(scratch->nodes);
    *scratch = (struct snug_unigram_scratch){0};
}

/* The state of the string of state and one more byte; 0 if there is none. */
static inline uint32_t child_of(const struct snug_unigram *model, uint32_t state, unsigned char byte) {
    if (!state) return model->root[byte];
    const uint32_t from = model->automaton[state].children, to = model->automaton[state + 1].children;
    if (to - from > FEW) {
        const unsigned char *child = memchr(model->bytes + from, byte, to - from);
        return child ? (uint32_t)(child - model->bytes) : 0;
    }
    for (uint32_t child = from; child < to; child++)
        if (model->bytes[child] == byte) return child;
    return 0;
}

/* The state of the longest suffix of that string that has one. */
static inline uint32_t next_state(const struct snug_unigram *model, uint32_t state, unsigned char byte) {
    uint32_t child = child_of(model, state, byte);
    while (!child && state) {
        state = model->automaton[state].failure;
        child = child_of(model, state, byte);
    }
    return child;
}

int32_t snug_unigram_find(const struct snug_unigram *model, const char *text, size_t length) {
    uint32_t state = 0;
    if (!length || length > model->longest) return -1;
    for (size_t i = 0; i < length; i++)
        if (!(state = child_of(model, state, (unsigned char)text[i]))) return -1;
    return model->automaton[state].id;
}

/* ---- building ---- */

/* Pieces order[low] … order[high - 1] begin with the string of one state. */
struct range {
    uint32_t low, high;
};

struct build {
    snug_context *ctx;
    struct snug_unigram *model;
    uint32_t *order;              /* [count] ids, sorted by text; of equal texts the later one last */
    struct range *level, *deeper; /* [count] of the states of one depth, and of the next */
    uint32_t added;               /* ranges in deeper */
};

static int compare(const void *left, const void *right, void *pieces) {
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const struct snug_unigram_piece *p = (const struct snug_unigram_piece *)pieces + a,
                                    *q = (const struct snug_unigram_piece *)pieces + b;
    const int order = memcmp(p->text, q->text, p->length < q->length ? p->length : q->length);
    if (order) return order;
    if (p->length != q->length) return p->length < q->length ? -1 : 1;
    return (a > b) - (a < b);
}

/* Reserves memory for one more state, and for the end of the last one's children. */
static snug_status reserve_state(snug_context *ctx, struct snug_unigram *model) {
    const size_t need = (size_t)model->states + 2;
    size_t room = model->room;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&model->automaton, &room, need, sizeof *model->automaton));
    room = model->room;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&model->bytes, &room, need, 1));
    model->room = room;
    return SNUG_OK;
}

/* Gives a state, of a string of depth bytes, its piece and its children. The states that its failure leads to were
   expanded before. */
static snug_status expand(struct build *build, uint32_t state, struct range range, uint32_t depth) {
    struct snug_unigram *model = build->model;
    const uint32_t failure = model->automaton[state].failure;
    model->automaton[state].children = model->states;
    model->automaton[state].id = -1;
    model->automaton[state].shorter =
        !state || model->automaton[failure].id >= 0 ? failure : model->automaton[failure].shorter;
    for (uint32_t low = range.low, high; low < range.high; low = high) {
        const struct snug_unigram_piece *piece = &model->pieces[build->order[low]];
        high = low + 1;
        if (piece->length == depth) { /* pieces that end here come first */
            if (depth) model->automaton[state].id = (int32_t)build->order[low];
            continue;
        }
        const unsigned char byte = (unsigned char)piece->text[depth];
        while (high < range.high && (unsigned char)model->pieces[build->order[high]].text[depth] == byte) high++;
        RETURN_IF_ERROR(reserve_state(build->ctx, model));
        const uint32_t child = model->states++; /* texts of files below 256 MiB do not have 2^32 bytes */
        model->bytes[child] = byte;
        model->automaton[child].failure = state ? next_state(model, failure, byte) : 0;
        if (!state) model->root[byte] = child;
        build->deeper[build->added++] = (struct range){low, high};
    }
    return SNUG_OK;
}

static snug_status build_trie(struct build *build) {
    struct snug_unigram *model = build->model;
    for (uint32_t i = 0; i < model->count; i++) build->order[i] = i;
    qsort_r(build->order, model->count, sizeof *build->order, compare, model->pieces);
    RETURN_IF_ERROR(reserve_state(build->ctx, model));
    model->states = 1;
    model->automaton[0].failure = 0;
    build->level[0] = (struct range){0, (uint32_t)model->count};
    for (uint32_t state = 0, depth = 0; state < model->states; depth++) {
        const uint32_t begin = state, end = model->states;
        build->added = 0;
        for (size_t deeper = depth; deeper < COUNT(model->up_to); deeper++) model->up_to[deeper] = end;
        for (; state < end; state++) RETURN_IF_ERROR(expand(build, state, build->level[state - begin], depth));
        struct range *level = build->level;
        build->level = build->deeper;
        build->deeper = level;
    }
    model->automaton[model->states].children = model->states;
    return SNUG_OK;
}

static void find_byte_tokens(struct snug_unigram *model) {
    for (int byte = 0; byte < 256; byte++) {
        char token[8];
        const int length = snprintf(token, sizeof token, "<0x%02X>", (unsigned)byte);
        model->byte_ids[byte] = snug_unigram_find(model, token, (size_t)length);
    }
}

snug_status snug_unigram_finish(snug_context *ctx, struct snug_unigram *model, const char *path, int64_t unk,
                                bool byte_fallback) {
    if (!model->count) return snug_fail(ctx, SNUG_E_INPUT, "%s: the vocabulary is empty", path);
    if (unk < -1 || unk >= (int64_t)model->count)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: unk_id is %" PRId64 ", and the vocabulary has %zu pieces", path, unk,
                         model->count);
    model->unk = (int32_t)unk;
    model->byte_fallback = byte_fallback;
    struct build build = {.ctx = ctx, .model = model};
    snug_status status = snug_alloc(ctx, model->count, sizeof *build.order, (void **)&build.order);
    if (status == SNUG_OK) status = snug_alloc(ctx, model->count, sizeof *build.level, (void **)&build.level);
    if (status == SNUG_OK) status = snug_alloc(ctx, model->count, sizeof *build.deeper, (void **)&build.deeper);
    if (status == SNUG_OK) status = build_trie(&build);
    free(build.order);
    free(build.level);
    free(build.deeper);
    RETURN_IF_ERROR(status);
    for (size_t id = 0; id < model->count; id++) model->pieces[id].text = NULL;
    find_byte_tokens(model);
    return SNUG_OK;
}

/* ---- encoding ---- */

/* A word while it is encoded. */
struct encoding {
    snug_context *ctx;
    const struct snug_unigram *model;
    const char *word;
    struct snug_unigram_scratch *scratch;
    struct snug_ids *out;
    size_t base;                    /* position of nodes[0] in the word */
    size_t unknown, unknown_length; /* pending: consecutive unknown characters, not output yet */
};

static size_t character_length(char first) {
    const unsigned char byte = (unsigned char)first;
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/* Outputs the pending unknown characters: as one piece if their text is one, else as bytes, or as one unknown token. */
static snug_status flush_unknown(struct encoding *encoding) {
    const struct snug_unigram *model = encoding->model;
    const size_t length = encoding->unknown_length;
    if (!length) return SNUG_OK; /* the word may be empty, and NULL */
    const char *text = encoding->word + encoding->unknown;
    encoding->unknown_length = 0;
    const int32_t id = snug_unigram_find(model, text, length);
    if (id >= 0) return snug_ids_append(encoding->ctx, encoding->out, id);
    bool bytes = model->byte_fallback;
    for (size_t i = 0; i < length && bytes; i++) bytes = model->byte_ids[(unsigned char)text[i]] >= 0;
    if (!bytes) return snug_ids_append(encoding->ctx, encoding->out, model->unk);
    for (size_t i = 0; i < length; i++)
        RETURN_IF_ERROR(snug_ids_append(encoding->ctx, encoding->out, model->byte_ids[(unsigned char)text[i]]));
    return SNUG_OK;
}

/* Outputs the best path to word[place], and restarts there. */
static snug_status flush_path(struct encoding *encoding, size_t place) {
    struct snug_unigram_node *nodes = encoding->scratch->nodes;
    const size_t end = place - encoding->base;
    const double score = nodes[end].score;
    /* Reverses the path: each node then has the piece that begins at it. */
    struct snug_unigram_node piece = nodes[end];
    for (size_t at = end; at > 0;) {
        at -= piece.length;
        const struct snug_unigram_node before = nodes[at];
        nodes[at] = piece;
        piece = before;
    }
    for (size_t at = 0; at < end; at += nodes[at].length) {
        if (nodes[at].id == encoding->model->unk) {
            if (!encoding->unknown_length) encoding->unknown = encoding->base + at;
            encoding->unknown_length += nodes[at].length;
            continue;
        }
        RETURN_IF_ERROR(flush_unknown(encoding));
        RETURN_IF_ERROR(snug_ids_append(encoding->ctx, encoding->out, nodes[at].id));
    }
    encoding->base = place;
    nodes[0] = (struct snug_unigram_node){.score = score};
    return SNUG_OK;
}

/* Finds the best path to word[at + length], the end of the character at word[at]; state is the automaton's there. */
static snug_status find_path(struct encoding *encoding, size_t at, size_t length, uint32_t state) {
    const struct snug_unigram *model = encoding->model;
    struct snug_unigram_scratch *scratch = encoding->scratch;
    const size_t end = at + length - encoding->base;
    if (end >= scratch->capacity)
        RETURN_IF_ERROR(
            snug_grow(encoding->ctx, (void **)&scratch->nodes, &scratch->capacity, end + 1, sizeof *scratch->nodes));
    struct snug_unigram_node *nodes = scratch->nodes, best = {.length = 0};
    bool known = false; /* the character is a piece */
    if (model->automaton[state].id < 0) state = model->automaton[state].shorter;
    for (; state; state = model->automaton[state].shorter) {
        const int32_t id = model->automaton[state].id;
        const uint32_t size = model->pieces[id].length;
        const double score = model->pieces[id].score + nodes[end - size].score;
        if (!best.length || score > best.score) best = (struct snug_unigram_node){score, size, id};
        known = size == length;
    }
    if (!known) {
        const double score = model->min_score - UNKNOWN_PENALTY + nodes[end - length].score;
        if (!best.length || score > best.score) best = (struct snug_unigram_node){score, (uint32_t)length, model->unk};
        if (best.id < 0)
            return snug_fail(
                encoding->ctx, SNUG_E_INPUT,
                "the tokenizer's vocabulary has no piece for \"%.*s\", and it has no unknown token (unk_id)",
                (int)length, encoding->word + at);
    }
    nodes[end] = best;
    return SNUG_OK;
}

snug_status snug_unigram_encode(snug_context *ctx, const struct snug_unigram *model, const char *word, size_t length,
                                struct snug_unigram_scratch *scratch, struct snug_ids *out) {
    struct encoding encoding = {.ctx = ctx, .model = model, .word = word, .scratch = scratch, .out = out};
    uint32_t state = 0;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&scratch->nodes, &scratch->capacity, 1, sizeof *scratch->nodes));
    scratch->nodes[0] = (struct snug_unigram_node){0};
    for (size_t at = 0, character; at < length; at += character) {
        character = character_length(word[at]);
        for (size_t i = 0; i < character; i++) state = next_state(model, state, (unsigned char)word[at + i]);
        /* No piece began before this character and ends with it or later. */
        if (state < model->up_to[character]) RETURN_IF_ERROR(flush_path(&encoding, at));
        RETURN_IF_ERROR(find_path(&encoding, at, character, state));
    }
    RETURN_IF_ERROR(flush_path(&encoding, length));
    return flush_unknown(&encoding);
}
