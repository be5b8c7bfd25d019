/* SPDX-License-Identifier: Apache-2.0 */
#include "data/masking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_parts.h"

#define BERT_MASK_ID 103    /* for dummy data, which may come without a tokenizer */
#define BYTE_SPACE "\u0120" /* a space in byte-level BPE */

/* ---- words ----------------------------------------------------------------------------------------------------- */

/* The text that stands for a space at the beginning of a word; NULL: none. */
static const char *space_mark(const struct snug_tokenizer *tokenizer) {
    const struct snug_pretokenizer *splitting = &tokenizer->pretokenizer;
    const struct snug_normalizer *normalizer = &tokenizer->normalizer;
    for (size_t i = 0; i < splitting->count; i++) {
        if (splitting->steps[i].kind == SNUG_SPLITTING_BYTE_LEVEL) return BYTE_SPACE;
        if (splitting->steps[i].kind == SNUG_SPLITTING_METASPACE) return splitting->steps[i].pattern;
    }
    for (size_t i = 0; i < normalizer->count; i++)
        if (normalizer->steps[i].kind == SNUG_NORMALIZER_REPLACE && !strcmp(normalizer->steps[i].pattern, " ") &&
            *normalizer->steps[i].content)
            return normalizer->steps[i].content;
    return NULL;
}

snug_status snug_word_mark_find(snug_context *ctx, const struct snug_tokenizer *tokenizer, struct snug_word_mark *out) {
    *out = (struct snug_word_mark){0};
    if (!tokenizer) return SNUG_OK;
    out->continues = tokenizer->kind == SNUG_MODEL_WORDPIECE;
    out->mark = out->continues ? tokenizer->wordpiece.prefix : space_mark(tokenizer);
    if (!out->mark || !*out->mark)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "--whole_word_mask needs tokens that show where a word begins, as those of WordPiece, "
                         "byte-level BPE and Metaspace do, and this tokenizer's do not: leave it out");
    out->bytes = !strcmp(out->mark, BYTE_SPACE);
    return SNUG_OK;
}

static bool begins_with(const char *text, const char *mark) { return strncmp(text, mark, strlen(mark)) == 0; }

bool snug_word_begins(const struct snug_word_mark *mark, const struct snug_tokenizer *tokenizer, int32_t id) {
    if (!mark->mark) return true;
    const char *token = snug_tokenizer_token(tokenizer, id);
    if (mark->continues) return !begins_with(token, mark->mark);
    /* \t … \r of byte-level BPE are U+0109 … U+010D; an added token begins with the characters themselves. */
    if (mark->bytes && token[0] == '\xc4' && token[1] >= '\x89' && token[1] <= '\x8d') return true;
    return begins_with(token, mark->mark) || strchr(" \t\n\v\f\r", *token);
}

/* ---- a heap whose first word has the smallest number --------------------------------------------------------------
 */

static void sift(uint64_t *words, int64_t count, int64_t at) {
    const uint64_t word = words[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && words[child + 1] < words[child]) child++;
        if (word <= words[child]) break; /* they differ: each has another token */
        words[at] = words[child];
    }
    words[at] = word;
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

snug_status snug_masking_init(snug_context *ctx, const struct snug_loader_options *options, int64_t longest,
                              struct snug_masking *out) {
    void *chosen, *words;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)longest, sizeof *out->chosen, &chosen));
    out->chosen = chosen;
    if (!options->whole_words || options->predict) return SNUG_OK;
    RETURN_IF_ERROR(snug_word_mark_find(ctx, options->tokenizer, &out->mark));
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)longest, sizeof *out->words, &words));
    out->words = words;
    return SNUG_OK;
}

void snug_masking_free(struct snug_masking *masking) {
    free(masking->words);
    free(masking->chosen);
    *masking = (struct snug_masking){0};
}

struct snug_philox_block snug_masking_draw(const struct snug_loader_options *options, int64_t epoch, int64_t row,
                                           int64_t position) {
    return snug_philox((uint32_t)position, (uint32_t)row, (uint32_t)((uint64_t)row >> 32),
                       (uint32_t)SNUG_PHILOX_MASKING << 29, snug_philox_key(options->seed), (uint32_t)epoch);
}

int32_t snug_masking_mask(const struct snug_loader_options *options) {
    if (options->tokenizer) return snug_tokenizer_special(options->tokenizer).mask;
    return options->vocab_size > BERT_MASK_ID ? BERT_MASK_ID : (int32_t)options->vocab_size - 1;
}

/* run_mlm.py's special_tokens_mask: the tokens that the template adds. */
static bool is_special(const struct snug_loader_options *options, int32_t id) {
    if (!options->tokenizer) return false;
    const struct snug_special_ids special = snug_tokenizer_special(options->tokenizer);
    return id == special.cls || id == special.sep || id == special.pad;
}

/* Lists the words of a row: each begins after a special token, or where its first token says so. */
static int64_t list_words(struct snug_masking *masking, const struct snug_loader_options *options, int64_t epoch,
                          int64_t row, const int32_t *ids, int64_t count) {
    int64_t words = 0;
    for (int64_t i = 0; i < count; i++) {
        if (is_special(options, ids[i])) continue;
        if (i && !is_special(options, ids[i - 1]) && !snug_word_begins(&masking->mark, options->tokenizer, ids[i]))
            continue;
        const uint64_t random = snug_masking_draw(options, epoch, row, i).word[0];
        masking->words[words++] = random << 32 | (uint64_t)i;
    }
    return words;
}

/*
 * DataCollatorForWholeWordMask of run_mlm_wwm.py: the words in random order, until mlm_probability of the row's tokens,
 * at least one, are chosen; a word that would exceed this number is passed over.
 */
static int64_t choose_words(struct snug_masking *masking, const struct snug_loader_options *options, int64_t epoch,
                            int64_t row, const int32_t *ids, int64_t count) {
    const double share = rint((double)count * options->mlm_probability); /* half to even, as Python's round() */
    const int64_t most = share < 1 ? 1 : (int64_t)share;
    int64_t words = list_words(masking, options, epoch, row, ids, count), chosen = 0;
    for (int64_t at = words / 2; at-- > 0;) sift(masking->words, words, at);
    while (words && chosen < most) {
        const int64_t first = (int64_t)(uint32_t)masking->words[0];
        int64_t end = first + 1;
        while (end < count && !is_special(options, ids[end]) &&
               !snug_word_begins(&masking->mark, options->tokenizer, ids[end]))
            end++;
        masking->words[0] = masking->words[--words];
        sift(masking->words, words, 0);
        if (chosen + end - first > most) continue;
        for (int64_t i = first; i < end; i++) masking->chosen[i] = true;
        chosen += end - first;
    }
    return chosen;
}

int64_t snug_masking_choose(struct snug_masking *masking, const struct snug_loader_options *options, int64_t epoch,
                            int64_t row, const int32_t *ids, int64_t count) {
    int64_t chosen = 0;
    memset(masking->chosen, 0, (size_t)count * sizeof *masking->chosen);
    if (options->whole_words && !options->predict) return choose_words(masking, options, epoch, row, ids, count);
    for (int64_t i = 0; i < count; i++) {
        const bool drawn = options->predict ? ids[i] == snug_masking_mask(options)
                                            : (double)snug_masking_draw(options, epoch, row, i).word[0] <
                                                      options->mlm_probability * 4294967296.0 &&
                                                  !is_special(options, ids[i]);
        masking->chosen[i] = drawn;
        chosen += drawn;
    }
    return chosen;
}
