/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "tokenizer/unicode.h"

/* Ids index a table: an invalid id in a file must not allocate gigabytes. */
#define MAX_IDS (1 << 24)
#define MOST_GAPS 64 /* ids per token, on average */

snug_status snug_vocabulary_reserve(snug_context *ctx, struct snug_vocabulary *vocabulary, const char *path,
                                    int64_t count, int64_t size, size_t bytes) {
    if (size < 1) return snug_fail(ctx, SNUG_E_INPUT, "%s: the vocabulary is empty", path);
    if (size > MAX_IDS)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the vocabulary has ids up to %" PRId64 "; at most %d are supported",
                         path, size - 1, MAX_IDS - 1);
    if (size > MOST_GAPS * (count + 1000)) /* a small file must not need much memory */
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the vocabulary has %" PRId64 " tokens, and ids up to %" PRId64, path,
                         count, size - 1);
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)size, sizeof *vocabulary->tokens, (void **)&vocabulary->tokens));
    vocabulary->size = size;
    RETURN_IF_ERROR(snug_hash_map_reserve(ctx, &vocabulary->ids, (size_t)count));
    return vocabulary->texts ? SNUG_OK : snug_alloc(ctx, bytes, 1, (void **)&vocabulary->texts);
}

snug_status snug_vocabulary_add(snug_context *ctx, struct snug_vocabulary *vocabulary, const char *path,
                                const char *text, size_t length, int64_t id) {
    if (vocabulary->tokens[id])
        return snug_fail(ctx, SNUG_E_INPUT, "%s: tokens \"%s\" and \"%.*s\" have the same id %" PRId64, path,
                         vocabulary->tokens[id], (int)length, text, id);
    int32_t before;
    RETURN_IF_ERROR(snug_hash_map_add(ctx, &vocabulary->ids, text, length, (int32_t)id, &before));
    if (before >= 0)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: token \"%.*s\" is listed twice, as number %d and %" PRId64
                         " (counted from 0); remove one",
                         path, (int)length, text, before, id);
    vocabulary->tokens[id] = text;
    vocabulary->count++;
    return SNUG_OK;
}

int32_t snug_vocabulary_find(const struct snug_vocabulary *vocabulary, const char *token) {
    return snug_hash_map_find(&vocabulary->ids, "", 0, token, strlen(token));
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

snug_status snug_vocabulary_read(snug_context *ctx, struct snug_vocabulary *vocabulary, const char *path,
                                 const char *text, size_t length) {
    int64_t lines = length > 0 && text[length - 1] != '\n';
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    RETURN_IF_ERROR(snug_vocabulary_reserve(ctx, vocabulary, path, lines, lines, length + 1));
    memcpy(vocabulary->texts, text, length);
    size_t start = 0;
    for (int64_t id = 0; id < lines; id++) {
        char *token = vocabulary->texts + start;
        const char *newline = memchr(token, '\n', length - start);
        size_t size = newline ? (size_t)(newline - token) : length - start;
        if (snug_utf8_invalid(token, size) < size || memchr(token, 0, size))
            return snug_fail(ctx, SNUG_E_INPUT, "%s, line %" PRId64 ": not valid UTF-8 text", path, id + 1);
        size_t end = trim_end(token, 0, size);
        token[end] = '\0';
        RETURN_IF_ERROR(snug_vocabulary_add(ctx, vocabulary, path, token, end, id));
        start += size + 1;
    }
    return SNUG_OK;
}

void snug_vocabulary_free(struct snug_vocabulary *vocabulary) {
    free(vocabulary->texts);
    free(vocabulary->tokens);
    snug_hash_map_free(&vocabulary->ids);
    *vocabulary = (struct snug_vocabulary){0};
}
