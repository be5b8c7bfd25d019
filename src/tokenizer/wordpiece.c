/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/wordpiece.h"

#include <stdlib.h>
#include <string.h>

static int64_t characters(const char *text, size_t length) {
    int64_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Pieces that are longer than any word are never used. */
static snug_status add_pieces(snug_context *ctx, struct snug_wordpiece *model) {
    const size_t prefix = strlen(model->prefix);
    for (int64_t id = 0; id < model->vocabulary->size; id++) {
        const char *token = model->vocabulary->tokens[id];
        if (!token || strncmp(token, model->prefix, prefix) != 0) continue;
        const size_t length = strlen(token + prefix);
        if (!length || characters(token + prefix, length) > model->max_word) continue;
        RETURN_IF_ERROR(snug_matcher_add(ctx, &model->pieces, token + prefix, length, (int32_t)id));
    }
    return snug_matcher_finish(ctx, &model->pieces);
}

snug_status snug_wordpiece_init(snug_context *ctx, struct snug_wordpiece *model,
                                const struct snug_vocabulary *vocabulary, const char *path, const char *unk,
                                const char *prefix, int64_t max_word) {
    model->vocabulary = vocabulary;
    model->unk = snug_vocabulary_find(vocabulary, unk);
    if (model->unk < 0)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: the unknown token \"%s\" is not in the vocabulary; add it, or set another unk_token in "
                         "tokenizer_config.json",
                         path, unk);
    model->max_word = max_word;
    RETURN_IF_ERROR(snug_strdup(ctx, prefix, &model->prefix));
    return add_pieces(ctx, model);
}

void snug_wordpiece_free(struct snug_wordpiece *model) {
    free(model->prefix);
    snug_matcher_free(&model->pieces);
    *model = (struct snug_wordpiece){0};
}

snug_status snug_wordpiece_encode(snug_context *ctx, const struct snug_wordpiece *model, const char *word,
                                  size_t length, struct snug_search *search, struct snug_ids *out) {
    if ((int64_t)length > model->max_word && characters(word, length) > model->max_word)
        return snug_ids_append(ctx, out, model->unk);
    /* Most words are in the vocabulary, and the whole word is the longest piece of itself. */
    int32_t id = snug_hash_map_find(&model->vocabulary->ids, "", 0, word, length);
    if (id >= 0) return snug_ids_append(ctx, out, id);
    const size_t before = out->count;
    size_t at = snug_hash_map_longest(&model->vocabulary->ids, word, length, &id);
    if (at) RETURN_IF_ERROR(snug_ids_append(ctx, out, id));
    snug_search_begin(search, &model->pieces, word, length);
    while (at > 0 && at < length) {
        const struct snug_pattern *piece;
        RETURN_IF_ERROR(snug_search_at(ctx, search, at, &piece));
        if (piece) RETURN_IF_ERROR(snug_ids_append(ctx, out, piece->value));
        at = piece ? at + piece->length : 0;
    }
    if (at) return SNUG_OK;
    out->count = before;
    return snug_ids_append(ctx, out, model->unk);
}
