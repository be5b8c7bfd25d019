/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A word's tokens are a linked list. A heap has the pairs that can be merged, by rank in the list of merges and then
 * from left to right; a pair whose tokens have since been merged with others is skipped. Most words are tokens
 * themselves: whether merges make that token of them is computed once.
 *
 * SentencePiece's models have whole texts as words, in which a word begins with ▁. Hardly any of their merges joins a
 * character with a ▁ after it, so that the parts of a text that begin with ▁ are encoded one by one.
 */
#include "tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"

struct snug_symbol {
    int32_t id; /* -1: merged into the one before it */
    uint32_t previous, next;
};

/* A possible merge of the symbol at `place` and the next one. */
struct snug_candidate {
    uint64_t order; /* rank << 32 | place */
    int32_t id;
};

#define NONE UINT32_MAX

/* Of a word that is a token. */
enum { UNKNOWN, WHOLE, DIVIDED };

/* ---- merges ---- */

static inline uint64_t pair_of(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

/* The slot of a pair, or the free slot for it. */
static inline struct snug_merge *slot_of(const struct snug_bpe *model, uint64_t pair) {
    size_t place = (size_t)((pair * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (model->merge_slots - 1);
    while (model->merges[place].id >= 0 && model->merges[place].pair != pair)
        place = (place + 1) & (model->merge_slots - 1);
    return &model->merges[place];
}

snug_status snug_bpe_reserve(snug_context *ctx, struct snug_bpe *model, size_t count) {
    size_t slots = model->merge_slots ? model->merge_slots : 16;
    while (slots < count * 2) slots *= 2;
    if (slots == model->merge_slots) return SNUG_OK;
    struct snug_merge *old = model->merges;
    const size_t old_slots = model->merge_slots;
    void *merges;
    RETURN_IF_ERROR(snug_alloc(ctx, slots, sizeof *model->merges, &merges));
    model->merges = merges;
    model->merge_slots = slots;
    for (size_t i = 0; i < slots; i++) model->merges[i].id = -1;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].id >= 0) *slot_of(model, old[i].pair) = old[i];
    free(old);
    return SNUG_OK;
}

static int32_t find(const struct snug_bpe *model, const char *left, size_t left_length, const char *right,
                    size_t right_length) {
    return snug_hash_map_find(&model->vocabulary->ids, left, left_length, right, right_length);
}

static bool is_token(const struct snug_bpe *model, int32_t id, const char *left, size_t left_length, const char *right,
                     size_t right_length) {
    const char *token = id < model->vocabulary->size ? model->vocabulary->tokens[id] : NULL;
    return token && !strncmp(token, left, left_length) && !strncmp(token + left_length, right, right_length) &&
           !token[left_length + right_length];
}

/* The id of a merged token. Lists of merges have the order of ids, and all merges of a token one after the other, so
   that it is most often the last one or the next. */
static int32_t find_merged(const struct snug_bpe *model, const char *left, size_t left_length, const char *right,
                           size_t right_length) {
    for (int32_t id = model->last_id; id < model->last_id + 2; id++)
        if (is_token(model, id, left, left_length, right, right_length)) return id;
    return find(model, left, left_length, right, right_length);
}

snug_status snug_bpe_add(snug_context *ctx, struct snug_bpe *model, const char *path, const char *left,
                         size_t left_length, const char *right, size_t right_length) {
    const int32_t first = find(model, "", 0, left, left_length), second = find(model, "", 0, right, right_length);
    const int32_t id = find_merged(model, left, left_length, right, right_length);
    if (first < 0 || second < 0 || id < 0) {
        const bool whole = first >= 0 && second >= 0;
        return snug_fail(ctx, SNUG_E_INPUT, "%s: merge %u needs the token \"%.*s%.*s\", which the vocabulary lacks",
                         path, model->next_rank + 1, whole || first < 0 ? (int)left_length : 0, left,
                         whole || first >= 0 ? (int)right_length : 0, right);
    }
    if (model->next_rank == NONE - 1) return snug_fail(ctx, SNUG_E_INPUT, "%s: more than %u merges", path, NONE - 1);
    RETURN_IF_ERROR(snug_bpe_reserve(ctx, model, model->merge_count + 1));
    const uint64_t pair = pair_of(first, second);
    struct snug_merge *slot = slot_of(model, pair);
    if (slot->id < 0) model->merge_count++;
    model->last_id = id;
    *slot = (struct snug_merge){.pair = pair, .rank = model->next_rank++, .id = id}; /* the last of equal ones counts */
    return SNUG_OK;
}

snug_status snug_bpe_read(snug_context *ctx, struct snug_bpe *model, const char *path, const char *text,
                          size_t length) {
    static const char version[] = "#version";
    size_t number = 0;
    for (size_t start = 0; start < length;) {
        const char *line = text + start, *newline = memchr(line, '\n', length - start);
        size_t size = newline ? (size_t)(newline - line) : length - start;
        start += size + 1;
        number++;
        if (size && line[size - 1] == '\r') size--;
        if (!size || (size >= sizeof version - 1 && !memcmp(line, version, sizeof version - 1))) continue;
        const char *space = memchr(line, ' ', size);
        const size_t left = space ? (size_t)(space - line) : 0, right = space ? size - left - 1 : 0;
        if (!left || !right || memchr(space + 1, ' ', right))
            return snug_fail(ctx, SNUG_E_INPUT, "%s, line %zu: not two tokens with a space between them", path, number);
        RETURN_IF_ERROR(snug_bpe_add(ctx, model, path, line, left, space + 1, right));
    }
    return SNUG_OK;
}

/* ---- encoding ---- */

void snug_bpe_scratch_free(struct snug_bpe_scratch *scratch) {
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct snug_bpe_scratch){0};
}

static inline snug_status push_symbol(snug_context *ctx, struct snug_bpe_scratch *scratch, int32_t id) {
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&scratch->symbols, &scratch->capacity, scratch->count + 1, sizeof *scratch->symbols));
    const uint32_t place = (uint32_t)scratch->count++;
    scratch->symbols[place] = (struct snug_symbol){.id = id, .previous = place - 1, .next = place + 1};
    return SNUG_OK;
}

/* The tokens of an unknown character's bytes; false if some byte has none. */
static snug_status push_bytes(snug_context *ctx, const struct snug_bpe *model, const char *text, size_t length,
                              struct snug_bpe_scratch *scratch, bool *done) {
    *done = false;
    for (size_t i = 0; i < length; i++)
        if (model->byte_ids[(unsigned char)text[i]] < 0) return SNUG_OK;
    for (size_t i = 0; i < length; i++)
        RETURN_IF_ERROR(push_symbol(ctx, scratch, model->byte_ids[(unsigned char)text[i]]));
    *done = true;
    return SNUG_OK;
}

/* The tokens of a word's single bytes or characters. */
static snug_status begin(snug_context *ctx, const struct snug_bpe *model, const char *word, size_t length,
                         struct snug_bpe_scratch *scratch) {
    bool unknown = false; /* an unknown token is pending: more unknown characters may be fused with it */
    scratch->count = 0;
    for (size_t at = 0, next = 0; at < length; at = next) {
        if (model->byte_level)
            next++;
        else
            snug_utf8_next(word, &next);
        const int32_t id =
            model->byte_level ? model->byte_ids[(unsigned char)word[at]] : find(model, "", 0, word + at, next - at);
        if (id >= 0) {
            if (unknown) RETURN_IF_ERROR(push_symbol(ctx, scratch, model->unk));
            unknown = false;
            RETURN_IF_ERROR(push_symbol(ctx, scratch, id));
            continue;
        }
        bool done = false;
        if (model->byte_fallback && !model->byte_level)
            RETURN_IF_ERROR(push_bytes(ctx, model, word + at, next - at, scratch, &done));
        if (done || model->unk < 0) continue;
        if (unknown && !model->fuse_unk) RETURN_IF_ERROR(push_symbol(ctx, scratch, model->unk));
        unknown = true;
    }
    return unknown ? push_symbol(ctx, scratch, model->unk) : SNUG_OK;
}

/* Adds the merge of the symbol at place and the next one to the heap, if it exists. */
static inline snug_status push_candidate(snug_context *ctx, const struct snug_bpe *model,
                                         struct snug_bpe_scratch *scratch, uint32_t place) {
    const struct snug_symbol *symbols = scratch->symbols;
    const uint32_t next = symbols[place].next;
    if (next == NONE) return SNUG_OK;
    const struct snug_merge *merge = slot_of(model, pair_of(symbols[place].id, symbols[next].id));
    if (merge->id < 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&scratch->heap, &scratch->heap_capacity, scratch->heap_count + 1,
                              sizeof *scratch->heap));
    struct snug_candidate *heap = scratch->heap;
    const struct snug_candidate added = {.order = (uint64_t)merge->rank << 32 | place, .id = merge->id};
    size_t at = scratch->heap_count++;
    for (; at && added.order < heap[(at - 1) / 2].order; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = added;
    return SNUG_OK;
}

static inline struct snug_candidate pop_candidate(struct snug_bpe_scratch *scratch) {
    struct snug_candidate *heap = scratch->heap;
    const struct snug_candidate first = heap[0], last = heap[--scratch->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < scratch->heap_count; at = child) {
        child += child + 1 < scratch->heap_count && heap[child + 1].order < heap[child].order;
        if (last.order <= heap[child].order) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return first;
}

static snug_status merge_all(snug_context *ctx, const struct snug_bpe *model, struct snug_bpe_scratch *scratch) {
    scratch->heap_count = 0;
    if (!scratch->count) return SNUG_OK;
    struct snug_symbol *symbols = scratch->symbols;
    symbols[scratch->count - 1].next = NONE;
    for (uint32_t i = 0; i + 1 < scratch->count; i++) RETURN_IF_ERROR(push_candidate(ctx, model, scratch, i));
    while (scratch->heap_count) {
        const struct snug_candidate best = pop_candidate(scratch);
        const uint32_t place = (uint32_t)best.order;
        struct snug_symbol *left = &symbols[place];
        if (left->id < 0 || left->next == NONE) continue;
        struct snug_symbol *right = &symbols[left->next];
        if (slot_of(model, pair_of(left->id, right->id))->id != best.id) continue;
        left->id = best.id;
        left->next = right->next;
        right->id = -1;
        if (left->next != NONE) symbols[left->next].previous = place;
        if (left->previous != NONE) RETURN_IF_ERROR(push_candidate(ctx, model, scratch, left->previous));
        RETURN_IF_ERROR(push_candidate(ctx, model, scratch, place));
    }
    return SNUG_OK;
}

/* Encodes a word by merges only. */
static snug_status encode_by_merges(snug_context *ctx, const struct snug_bpe *model, const char *word, size_t length,
                                    struct snug_bpe_scratch *scratch, struct snug_ids *out) {
    if (length >= NONE) return snug_fail(ctx, SNUG_E_INPUT, "a word of %zu bytes is too long to be tokenized", length);
    RETURN_IF_ERROR(begin(ctx, model, word, length, scratch));
    RETURN_IF_ERROR(merge_all(ctx, model, scratch));
    for (size_t i = 0; i < scratch->count; i++)
        if (scratch->symbols[i].id >= 0) RETURN_IF_ERROR(snug_ids_append(ctx, out, scratch->symbols[i].id));
    return SNUG_OK;
}

/* A word that is a token: whether merges make it of its text is computed when the word first occurs. All threads would
   find the same. */
static snug_status encode_part(snug_context *ctx, const struct snug_bpe *model, const char *word, size_t length,
                               struct snug_bpe_scratch *scratch, struct snug_ids *out) {
    const struct snug_hash_map *words = model->byte_level ? &model->words : &model->vocabulary->ids;
    const int32_t id = snug_hash_map_find(words, "", 0, word, length);
    if (id < 0) return encode_by_merges(ctx, model, word, length, scratch, out);
    atomic_uchar *state = &model->states[id];
    const unsigned char known = atomic_load_explicit(state, memory_order_relaxed);
    if (known == WHOLE) return snug_ids_append(ctx, out, id);
    const size_t before = out->count;
    RETURN_IF_ERROR(encode_by_merges(ctx, model, word, length, scratch, out));
    const bool whole = out->count == before + 1 && out->ids[before] == id;
    if (known == UNKNOWN) atomic_store_explicit(state, whole ? WHOLE : DIVIDED, memory_order_relaxed);
    return SNUG_OK;
}

static const char mark[] = "▁";
enum { MARK = sizeof mark - 1 };

/* The next ▁ of text[from … length), from 1, that is not after another one; length if there is none. */
static size_t find_mark(const char *text, size_t length, size_t from) {
    for (const char *at = text + from; (at = memmem(at, length - (size_t)(at - text), mark, MARK)); at += MARK) {
        const size_t place = (size_t)(at - text);
        if (place < MARK || memcmp(at - MARK, mark, MARK) != 0) return place;
    }
    return length;
}

snug_status snug_bpe_encode(snug_context *ctx, const struct snug_bpe *model, const char *word, size_t length,
                            size_t most, struct snug_bpe_scratch *scratch, struct snug_ids *out) {
    if (!model->breaks) return encode_part(ctx, model, word, length, scratch, out);
    for (size_t start = 0, end; start < length && out->count < most; start = end) {
        end = find_mark(word, length, start + 1);
        while (end < length && model->joined[(unsigned char)word[end - 1]]) end = find_mark(word, length, end + 1);
        RETURN_IF_ERROR(encode_part(ctx, model, word + start, end - start, scratch, out));
    }
    return SNUG_OK;
}

/* ---- loading ---- */

/* A whole word is looked up where merges are ignored, and unknown characters are fused across a ▁ that is unknown. */
static void find_breaks(struct snug_bpe *model) {
    const struct snug_vocabulary *vocabulary = model->vocabulary;
    model->breaks = !model->byte_level && !model->ignore_merges && snug_vocabulary_find(vocabulary, mark) >= 0;
    for (int64_t id = 0; id < vocabulary->size && model->breaks; id++) {
        const char *token = vocabulary->tokens[id];
        const size_t length = token ? strlen(token) : 0;
        for (size_t at = 0; at < length && (at = find_mark(token, length, at + 1)) < length;)
            model->joined[(unsigned char)token[at - 1]] = true;
    }
}

/* A byte that is printable in Latin-1 is itself, the others are U+0100 and following. */
void snug_bpe_alphabet(uint16_t byte_of[512]) {
    uint32_t next = 0x100;
    for (int i = 0; i < 512; i++) byte_of[i] = NONE & 0xffff;
    for (uint32_t byte = 0; byte < 256; byte++) {
        const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        byte_of[printable ? byte : next++] = (uint16_t)byte;
    }
}

/* The bytes of a byte-level BPE token; 0 if it has a character outside the alphabet. */
static size_t decode(const uint16_t byte_of[512], const char *token, char *out) {
    size_t length = 0;
    for (size_t at = 0; token[at];) {
        const uint32_t code = snug_utf8_next(token, &at);
        if (code >= 512 || byte_of[code] > 255) return 0;
        out[length++] = (char)byte_of[code];
    }
    return length;
}

static void find_byte_tokens(struct snug_bpe *model, const uint16_t byte_of[512]) {
    for (int byte = 0; byte < 256; byte++) model->byte_ids[byte] = -1;
    for (uint32_t code = 0; code < 512 && model->byte_level; code++) {
        char text[4];
        if (byte_of[code] <= 255) model->byte_ids[byte_of[code]] = find(model, "", 0, text, snug_utf8_put(text, code));
    }
    for (int byte = 0; byte < 256 && !model->byte_level; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        model->byte_ids[byte] = snug_vocabulary_find(model->vocabulary, text);
    }
}

/* The words of a byte-level model. */
static snug_status add_words(snug_context *ctx, struct snug_bpe *model, const uint16_t byte_of[512]) {
    const struct snug_vocabulary *vocabulary = model->vocabulary;
    size_t bytes = 1;
    for (int64_t id = 0; id < vocabulary->size; id++)
        if (vocabulary->tokens[id]) bytes += strlen(vocabulary->tokens[id]);
    RETURN_IF_ERROR(snug_alloc(ctx, bytes, 1, (void **)&model->texts));
    RETURN_IF_ERROR(snug_hash_map_reserve(ctx, &model->words, (size_t)vocabulary->count));
    char *to = model->texts;
    for (int64_t id = 0; id < vocabulary->size; id++) {
        const size_t length = vocabulary->tokens[id] ? decode(byte_of, vocabulary->tokens[id], to) : 0;
        if (length) RETURN_IF_ERROR(snug_hash_map_add(ctx, &model->words, to, length, (int32_t)id, &(int32_t){0}));
        to += length;
    }
    return SNUG_OK;
}

snug_status snug_bpe_finish(snug_context *ctx, struct snug_bpe *model) {
    uint16_t byte_of[512];
    const size_t size = (size_t)model->vocabulary->size;
    snug_bpe_alphabet(byte_of);
    find_byte_tokens(model, byte_of);
    RETURN_IF_ERROR(snug_bpe_reserve(ctx, model, 1));
    find_breaks(model);
    RETURN_IF_ERROR(snug_alloc(ctx, size, sizeof *model->states, (void **)&model->states));
    for (size_t id = 0; id < size; id++) atomic_init(&model->states[id], model->ignore_merges ? WHOLE : UNKNOWN);
    return model->byte_level ? add_words(ctx, model, byte_of) : SNUG_OK;
}

void snug_bpe_free(struct snug_bpe *model) {
    free(model->merges);
    free(model->texts);
    free(model->states);
    snug_hash_map_free(&model->words);
    *model = (struct snug_bpe){0};
}
