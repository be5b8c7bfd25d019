/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/fingerprint.h"

#include <string.h>
#include <xxhash.h>

#include "tokenizer/precompiled.h"
#include "tokenizer/unicode.h"

/* Part of the fingerprint; incremented whenever the code gives other tokens for the same files. */
#define CODE_VERSION 1

static void hash_text(XXH3_state_t *hash, const char *text, size_t length) {
    const uint64_t size = length;
    XXH3_64bits_update(hash, &size, sizeof size);
    if (length) XXH3_64bits_update(hash, text, length);
}

static void hash_normalizer(XXH3_state_t *hash, const struct snug_normalizer *normalizer) {
    for (size_t i = 0; i < normalizer->count; i++) {
        const struct snug_normalizer_step *step = &normalizer->steps[i];
        const int64_t facts[] = {step->kind,
                                 step->bert.clean_text,
                                 step->bert.handle_chinese_chars,
                                 step->bert.strip_accents,
                                 step->bert.lowercase,
                                 step->compatible,
                                 step->composed,
                                 step->left,
                                 step->right};
        XXH3_64bits_update(hash, facts, sizeof facts);
        /* The one expression that CODE_VERSION 1 knew, " {2,}", had no pattern. */
        const bool spaces = step->regex && !strcmp(step->pattern, " {2,}");
        hash_text(hash, step->pattern, spaces ? 0 : step->pattern_length);
        hash_text(hash, step->content, step->content_length);
        const struct snug_precompiled *map = step->precompiled;
        if (!map) continue;
        hash_text(hash, (const char *)map->units, map->count * sizeof *map->units);
        hash_text(hash, map->texts, map->size);
    }
}

static void hash_rows(XXH3_state_t *hash, const struct snug_template *template) {
    XXH3_64bits_update(hash, template->pieces, template->count * sizeof *template->pieces);
    XXH3_64bits_update(hash, &template->count, sizeof template->count);
}

static void hash_parts(XXH3_state_t *hash, const struct snug_tokenizer *tokenizer) {
    const struct snug_bpe *bpe = &tokenizer->bpe;
    const struct snug_unigram *unigram = &tokenizer->unigram;
    const int64_t facts[] = {tokenizer->kind,
                             (int64_t)tokenizer->normalizer.count,
                             (int64_t)tokenizer->pretokenizer.count,
                             tokenizer->prefix_words,
                             bpe->byte_level,
                             bpe->ignore_merges,
                             bpe->fuse_unk,
                             bpe->byte_fallback,
                             bpe->unk,
                             unigram->unk,
                             unigram->byte_fallback};
    XXH3_64bits_update(hash, facts, sizeof facts);
    hash_normalizer(hash, &tokenizer->normalizer);
    for (size_t i = 0; i < tokenizer->pretokenizer.count; i++) {
        const struct snug_pretokenizer_step *step = &tokenizer->pretokenizer.steps[i];
        const int64_t step_facts[] = {step->kind, step->behavior, step->invert, step->split, step->prefix};
        XXH3_64bits_update(hash, step_facts, sizeof step_facts);
        hash_text(hash, step->pattern, step->length);
    }
    hash_text(hash, (const char *)bpe->merges, bpe->merge_slots * sizeof *bpe->merges);
    for (size_t i = 0; i < unigram->count; i++)
        XXH3_64bits_update(hash, &unigram->pieces[i].score, sizeof unigram->pieces[i].score);
    hash_rows(hash, &tokenizer->post_processor.single);
    hash_rows(hash, &tokenizer->post_processor.pair);
}

/* Whether the parts are BertTokenizer's, which the common part of the fingerprint describes. */
static bool is_bert(const struct snug_tokenizer *tokenizer) {
    const struct snug_normalizer *normalizer = &tokenizer->normalizer;
    const struct snug_pretokenizer *splitting = &tokenizer->pretokenizer;
    const struct snug_template_piece cls = {tokenizer->special.cls, 0}, a = {SNUG_PIECE_A, 0},
                                     sep = {tokenizer->special.sep, 0}, b = {SNUG_PIECE_B, 1},
                                     end = {tokenizer->special.sep, 1};
    const struct snug_template single = {{cls, a, sep}, 3}, pair = {{cls, a, sep, b, end}, 5};
    return tokenizer->kind == SNUG_MODEL_WORDPIECE && normalizer->count <= 1 &&
           (!normalizer->count || normalizer->steps[0].kind == SNUG_NORMALIZER_BERT) && splitting->count == 1 &&
           splitting->steps[0].kind == SNUG_SPLITTING_BERT &&
           !memcmp(&single, &tokenizer->post_processor.single, sizeof single) &&
           !memcmp(&pair, &tokenizer->post_processor.pair, sizeof pair);
}

static bool is_blank(const char *text) {
    for (size_t at = 0; text[at];)
        if (!(snug_codepoint_flags(snug_utf8_next(text, &at)) & SNUG_CODEPOINT_SPACE)) return false;
    return true;
}

/* Rules that came after CODE_VERSION 1, where they matter: so the fingerprints of all other tokenizers stay the same,
   and with them their caches and checkpoints. */
static uint64_t later_rules(const struct snug_tokenizer *tokenizer) {
    bool strips = false;
    for (size_t i = 0; i < tokenizer->added.count; i++)
        strips |= tokenizer->added.items[i].lstrip && is_blank(tokenizer->added.items[i].content);
    const bool typed = snug_template_has_types(&tokenizer->post_processor.pair);
    return (typed && !tokenizer->types ? 1 : 0) | (strips ? 2 : 0);
}

snug_status snug_fingerprint_compute(snug_context *ctx, struct snug_tokenizer *tokenizer) {
    XXH3_state_t *hash = XXH3_createState();
    if (!hash) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while hashing a tokenizer");
    const bool bert = is_bert(tokenizer);
    const struct snug_bert_normalizer none = {0}, *normalizer = bert && tokenizer->normalizer.count
                                                                    ? &tokenizer->normalizer.steps[0].bert
                                                                    : &none;
    const struct snug_special_ids *special = &tokenizer->special;
    const int64_t facts[] = {CODE_VERSION,
                             normalizer->clean_text,
                             normalizer->handle_chinese_chars,
                             normalizer->strip_accents,
                             normalizer->lowercase,
                             tokenizer->wordpiece.unk,
                             tokenizer->wordpiece.max_word,
                             tokenizer->vocabulary.size,
                             tokenizer->added.ignore_special,
                             tokenizer->truncate_left,
                             special->cls,
                             special->sep};
    const char *prefix = tokenizer->wordpiece.prefix ? tokenizer->wordpiece.prefix : "";
    XXH3_64bits_reset(hash);
    XXH3_64bits_update(hash, facts, sizeof facts);
    XXH3_64bits_update(hash, prefix, strlen(prefix) + 1);
    for (int64_t id = 0; id < tokenizer->vocabulary.size; id++) {
        const char *token = tokenizer->vocabulary.tokens[id];
        XXH3_64bits_update(hash, token ? token : "", token ? strlen(token) + 1 : 1);
    }
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const struct snug_added_token *token = &tokenizer->added.items[i];
        const int32_t flags[] = {token->id,     token->single_word, token->lstrip,
                                 token->rstrip, token->normalized,  token->special};
        XXH3_64bits_update(hash, token->content, strlen(token->content) + 1);
        XXH3_64bits_update(hash, flags, sizeof flags);
    }
    if (!bert) hash_parts(hash, tokenizer);
    const uint64_t later = later_rules(tokenizer);
    if (later) XXH3_64bits_update(hash, &later, sizeof later);
    tokenizer->fingerprint = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return SNUG_OK;
}
