/* SPDX-License-Identifier: Apache-2.0 */
/* A folder's tokenizer files and a text, separated by the byte 0xFF: vocab.txt, tokenizer.json, tokenizer_config.json,
   special_tokens_map.json, added_tokens.json, the text, vocab.json, merges.txt. An empty part is no file. */
#include "core/utf8.h"
#include "core/utf8_repair.h"
#include "fuzz.h"
#include "model/family.h"
#include "tokenizer/tokenizer.h"

static const char *const names[] = {FUZZ_FOLDER "/vocab.txt",
                                    FUZZ_FOLDER "/tokenizer.json",
                                    FUZZ_FOLDER "/tokenizer_config.json",
                                    FUZZ_FOLDER "/special_tokens_map.json",
                                    FUZZ_FOLDER "/added_tokens.json",
                                    FUZZ_FOLDER "/vocab.json",
                                    FUZZ_FOLDER "/merges.txt"};
enum { FILES = sizeof names / sizeof *names, BEFORE_TEXT = 5 };

/* Only Unigram without unk_id refuses texts, those with a character that no piece covers, and a regular expression that
   takes too long. */
static bool encodes(const snug_context *ctx, snug_status status) {
    if (fuzz_accepts(ctx, status)) return true;
    FUZZ_CHECK(strstr(snug_error_message(ctx), "no unknown token (unk_id)") ||
               strstr(snug_error_message(ctx), "the regular expression"));
    return false;
}

static void encode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const uint8_t *text, size_t length) {
    const int64_t limit = snug_tokenizer_vocab_size(tokenizer);
    const struct snug_special_ids special = snug_tokenizer_special(tokenizer);
    const size_t specials = snug_tokenizer_specials(tokenizer, true);
    struct snug_ids ids = {0}, row = {0}, words = {0}, word_of = {0};
    char *valid;
    size_t first;
    bool truncated;
    FUZZ_CHECK(snug_utf8_repair(ctx, (const char *)text, length, &valid, &length) == SNUG_OK);
    if (encodes(ctx, snug_tokenizer_encode(ctx, tokenizer, valid, length, &ids))) {
        FUZZ_CHECK(snug_tokenizer_assemble(ctx, tokenizer, &ids, &ids, 64, &row, &first, &truncated) == SNUG_OK);
        FUZZ_CHECK(row.count <= 64 && first <= row.count && truncated == (2 * ids.count > 64 - specials));
    }
    const struct snug_word two[] = {{valid, length}, {valid, length}};
    if (encodes(ctx, snug_tokenizer_encode_words(ctx, tokenizer, two, 2, &words, &word_of)))
        FUZZ_CHECK(words.count == word_of.count && words.count % 2 == 0);
    for (size_t i = 0; i < ids.count; i++) FUZZ_CHECK(ids.ids[i] >= 0 && ids.ids[i] < limit);
    for (size_t i = 0; i < row.count; i++) FUZZ_CHECK(row.ids[i] >= 0 && row.ids[i] < limit);
    FUZZ_CHECK(special.cls < limit && special.sep < limit && special.unk < limit);
    FUZZ_CHECK(special.mask < limit && special.pad < limit);
    for (int32_t id = -1; id <= limit && id < 64; id++) FUZZ_CHECK(snug_tokenizer_token(tokenizer, id));
    for (int skip = 0; skip < 2; skip++) {
        struct snug_text decoded = {0};
        if (fuzz_accepts(ctx, snug_tokenizer_decode(ctx, tokenizer, row.ids, row.count, skip, &decoded)))
            FUZZ_CHECK(snug_utf8_invalid(decoded.text, decoded.length) == decoded.length);
        free(decoded.text);
    }
    free(valid);
    free(ids.ids);
    free(row.ids);
    free(words.ids);
    free(word_of.ids);
}

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    size_t at = 0, length;
    const uint8_t *text = NULL;
    size_t text_length = 0;
    for (int file = 0; file < FILES; file++) {
        if (file == BEFORE_TEXT) text = fuzz_part(data, size, &at, &text_length);
        const uint8_t *part = fuzz_part(data, size, &at, &length);
        fuzz_file(names[file], length ? part : NULL, length);
    }
    struct snug_tokenizer *tokenizer;
    if (!fuzz_accepts(ctx, snug_tokenizer_load(ctx, FUZZ_FOLDER, snug_family_tokenizer_class, &tokenizer))) return;
    if (text) encode(ctx, tokenizer, text, text_length);
    snug_tokenizer_free(tokenizer);
}
