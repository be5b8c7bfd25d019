/* SPDX-License-Identifier: Apache-2.0 */
#include "text/wordpiece.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "text/unicode.h"

/* Ids index a table, so that an absurd one in a file must not ask for gigabytes. */
#define MAX_IDS (1 << 24)
#define MOST_GAPS 64 /* ids for each token, in the mean */

snug_status snug_ids_append(snug_context *ctx, struct snug_ids *ids, int32_t id) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&ids->ids, &ids->capacity, ids->count + 1, sizeof *ids->ids));
    ids->ids[ids->count++] = id;
    return SNUG_OK;
}

snug_status snug_wordpiece_reserve(snug_context *ctx, struct snug_wordpiece *model, const char *path, int64_t count,
                                   int64_t size, size_t bytes) {
    if (size < 1) return snug_fail(ctx, SNUG_E_INPUT, "%s: the vocabulary is empty", path);
    if (size > MAX_IDS)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the vocabulary has ids up to %" PRId64 "; at most %d are taken", path,
                         size - 1, MAX_IDS - 1);
    if (size > MOST_GAPS * (count + 1000)) /* a small file must not take much memory */
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the vocabulary has %" PRId64 " tokens, and ids up to %" PRId64, path,
                         count, size - 1);
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)size, sizeof *model->tokens, (void **)&model->tokens));
    model->size = size;
    RETURN_IF_ERROR(snug_lexicon_reserve(ctx, &model->lexicon, (size_t)count));
    return snug_alloc(ctx, bytes, 1, (void **)&model->texts);
}

snug_status snug_wordpiece_add(snug_context *ctx, struct snug_wordpiece *model, const char *path, const char *text,
                               size_t length, int64_t id) {
    if (model->tokens[id])
        return snug_fail(ctx, SNUG_E_INPUT, "%s: tokens \"%s\" and \"%.*s\" have the same id %" PRId64, path,
                         model->tokens[id], (int)length, text, id);
    int32_t before;
    RETURN_IF_ERROR(snug_lexicon_add(ctx, &model->lexicon, text, length, (int32_t)id, &before));
    if (before >= 0)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: token \"%.*s\" stands there twice, as number %d and %" PRId64
                         " (counted from 0); remove one",
                         path, (int)length, text, before, id);
    model->tokens[id] = text;
    model->count++;
    return SNUG_OK;
}

int32_t snug_wordpiece_find(const struct snug_wordpiece *model, const char *token) {
    return snug_lexicon_find(&model->lexicon, "", 0, token, strlen(token));
}

/* The end of text[start … end) without trailing white space. */
static size_t trim_end(const char *text, size_t start, size_t end) {
    while (end > start) {
        size_t last = snug_utf8_previous(text, end), position = last;
        if (!(snug_codepoint_flags(snug_utf8_next(text, &position)) & SNUG_CODEPOINT_SPACE)) break;
        end = last;
    }
    return end;
}

snug_status snug_wordpiece_read(snug_context *ctx, struct snug_wordpiece *model, const char *path, const char *text,
                                size_t length) {
    int64_t lines = length > 0 && text[length - 1] != '\n';
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    RETURN_IF_ERROR(snug_wordpiece_reserve(ctx, model, path, lines, lines, length + 1));
    memcpy(model->texts, text, length);
    size_t start = 0;
    for (int64_t id = 0; id < lines; id++) {
        char *token = model->texts + start;
        const char *newline = memchr(token, '\n', length - start);
        size_t size = newline ? (size_t)(newline - token) : length - start;
        if (snug_utf8_invalid(token, size) < size || memchr(token, 0, size))
            return snug_fail(ctx, SNUG_E_INPUT, "%s, line %" PRId64 ": not valid UTF-8 text", path, id + 1);
        size_t end = trim_end(token, 0, size);
        token[end] = '\0';
        RETURN_IF_ERROR(snug_wordpiece_add(ctx, model, path, token, end, id));
        start += size + 1;
    }
    return SNUG_OK;
}

static int64_t characters(const char *text, size_t length) {
    int64_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Pieces that are longer than any word have no use. */
static snug_status add_pieces(snug_context *ctx, struct snug_wordpiece *model) {
    const size_t prefix = strlen(model->prefix);
    for (int64_t id = 0; id < model->size; id++) {
        const char *token = model->tokens[id];
        if (!token || strncmp(token, model->prefix, prefix) != 0) continue;
        const size_t length = strlen(token + prefix);
        if (!length || characters(token + prefix, length) > model->max_word) continue;
        RETURN_IF_ERROR(snug_matcher_add(ctx, &model->pieces, token + prefix, length, (int32_t)id));
    }
    return snug_matcher_finish(ctx, &model->pieces);
}

snug_status snug_wordpiece_finish(snug_context *ctx, struct snug_wordpiece *model, const char *path, const char *unk,
                                  const char *prefix, int64_t max_word) {
    model->unk = snug_wordpiece_find(model, unk);
    if (model->unk < 0)
        return snug_fail(
            ctx, SNUG_E_INPUT,
            "%s: the unknown token \"%s\" is not in the vocabulary; add it, or name another as unk_token in "
            "tokenizer_config.json",
            path, unk);
    model->max_word = max_word;
    RETURN_IF_ERROR(snug_strdup(ctx, prefix, &model->prefix));
    return add_pieces(ctx, model);
}

void snug_wordpiece_free(struct snug_wordpiece *model) {
    free(model->texts);
    free(model->tokens);
    free(model->prefix);
    snug_lexicon_free(&model->lexicon);
    snug_matcher_free(&model->pieces);
    *model = (struct snug_wordpiece){0};
}

snug_status snug_wordpiece_encode(snug_context *ctx, const struct snug_wordpiece *model, const char *word,
                                  size_t length, struct snug_search *search, struct snug_ids *out) {
    if ((int64_t)length > model->max_word && characters(word, length) > model->max_word)
        return snug_ids_append(ctx, out, model->unk);
    /* Most words are in the vocabulary, and the whole word is the longest piece of itself. */
    int32_t id = snug_lexicon_find(&model->lexicon, "", 0, word, length);
    if (id >= 0) return snug_ids_append(ctx, out, id);
    const size_t before = out->count;
    size_t at = snug_lexicon_longest(&model->lexicon, word, length, &id);
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
