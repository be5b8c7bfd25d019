/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.txt and a text, separated by the byte 0xFF; the first byte chooses how text is cleaned. Pieces are compared
   with those of a search that tries every length. */
#include "core/utf8.h"
#include "core/utf8_repair.h"
#include "fuzz.h"
#include "tokenizer/bert_normalizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/wordpiece.h"

/* The length of the longest piece at word, tried one by one; 0 if there is none. */
static size_t longest_piece(const struct snug_wordpiece *model, bool first, const char *word, size_t length,
                            int32_t *id) {
    const char *prefix = first ? "" : model->prefix;
    for (size_t size = length; size > 0; size--) {
        if (size < length && ((unsigned char)word[size] & 0xC0) == 0x80) continue;
        for (int64_t i = 0; i < model->vocabulary->size; i++) {
            const char *token = model->vocabulary->tokens[i];
            if (!token || strlen(token) != strlen(prefix) + size || strncmp(token, prefix, strlen(prefix)) != 0)
                continue;
            if (memcmp(token + strlen(prefix), word, size) != 0) continue;
            *id = (int32_t)i;
            return size;
        }
    }
    return 0;
}

static void check_word(snug_context *ctx, const struct snug_wordpiece *model, const char *word, size_t length) {
    struct snug_ids ids = {0};
    struct snug_search search = {0};
    size_t at = 0, count = 0;
    int32_t id;
    FUZZ_CHECK(snug_wordpiece_encode(ctx, model, word, length, &search, &ids) == SNUG_OK);
    for (size_t piece; at < length && count < ids.count; at += piece, count++) {
        piece = longest_piece(model, at == 0, word + at, length - at, &id);
        if (!piece || ids.ids[count] != id) break;
    }
    if (at < length)
        FUZZ_CHECK(ids.count == 1 && ids.ids[0] == model->unk);
    else
        FUZZ_CHECK(count == ids.count);
    snug_search_free(&search);
    free(ids.ids);
}

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    if (!size) return;
    const struct snug_bert_normalizer normalizer = {data[0] & 1, data[0] & 2, data[0] & 4, data[0] & 8};
    struct snug_vocabulary vocabulary = {0};
    struct snug_wordpiece model = {0};
    size_t at = 1, length;
    const uint8_t *part = fuzz_part(data, size, &at, &length);
    snug_status status = snug_vocabulary_read(ctx, &vocabulary, "vocab.txt", (const char *)part, length);
    if (status == SNUG_OK) status = snug_wordpiece_init(ctx, &model, &vocabulary, "vocab.txt", "?", "##", 20);
    const bool usable = fuzz_accepts(ctx, status);
    part = fuzz_part(data, size, &at, &length);
    if (usable && part) {
        struct snug_text text = {0};
        char *valid;
        FUZZ_CHECK(snug_utf8_repair(ctx, (const char *)part, length, &valid, &length) == SNUG_OK);
        FUZZ_CHECK(snug_utf8_invalid(valid, length) == length);
        FUZZ_CHECK(snug_bert_normalize(ctx, &normalizer, valid, length, &text) == SNUG_OK);
        FUZZ_CHECK(snug_utf8_invalid(text.text, text.length) == text.length);
        if (text.length && text.length < 64) check_word(ctx, &model, text.text, text.length);
        free(valid);
        free(text.text);
    }
    snug_wordpiece_free(&model);
    snug_vocabulary_free(&vocabulary);
}
