/* SPDX-License-Identifier: Apache-2.0 */
#include "data/encode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void snug_encoder_free(struct snug_encoder *encoder) {
    free(encoder->a.ids);
    free(encoder->b.ids);
    free(encoder->out.ids);
    free(encoder->a_word_of.ids);
    free(encoder->word_of.ids);
    free(encoder->words);
    free(encoder->has_loss.ids);
    free(encoder->prompt.ids);
    free(encoder->text);
    *encoder = (struct snug_encoder){0};
}

snug_status snug_encoding_check(snug_context *ctx, const struct snug_encoding *encoding, int64_t max_length,
                                bool joins) {
    const int64_t specials = (int64_t)snug_tokenizer_specials(encoding->tokenizer, encoding->pair);
    const int64_t least = joins || !specials ? 1 : specials;
    if (max_length >= least && max_length <= INT32_MAX) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_USAGE,
                     "--max_seq_length %" PRId64 " leaves no room for a text: it must be more than %" PRId64,
                     max_length, least);
}

snug_status snug_encode_texts(snug_context *ctx, const struct snug_encoding *encoding, const char *const texts[2],
                              const size_t lengths[2], struct snug_encoder *encoder, struct snug_encoded *out) {
    const struct snug_tokenizer *tokenizer = encoding->tokenizer;
    const bool pair = encoding->pair;
    /* One more token than the limit is enough to know that the text is truncated. The truncation of a pair depends on
     * both lengths.
     */
    const size_t most = pair || encoding->max_length == INT32_MAX ? SIZE_MAX : encoding->max_length;
    *out = (struct snug_encoded){.ids = encoder->out.count};
    encoder->a.count = encoder->b.count = 0;
    RETURN_IF_ERROR(snug_tokenizer_encode_begin(ctx, tokenizer, texts[0], lengths[0], most, &encoder->a));
    if (pair) RETURN_IF_ERROR(snug_tokenizer_encode(ctx, tokenizer, texts[1], lengths[1], &encoder->b));
    if (encoding->skips_empty && !encoder->a.count) return SNUG_OK;
    RETURN_IF_ERROR(snug_tokenizer_assemble(ctx, tokenizer, &encoder->a, pair ? &encoder->b : NULL,
                                            encoding->max_length, &encoder->out, &out->first_count, &out->truncated));
    out->count = encoder->out.count - out->ids;
    return SNUG_OK;
}

/* The texts one after the other, and the end unless they end with it. */
static snug_status put_text(snug_context *ctx, const struct snug_encoding *encoding, const char *const texts[2],
                            const size_t lengths[2], struct snug_encoder *encoder, size_t *length) {
    const size_t last = encoding->completes, size = encoding->end ? strlen(encoding->end) : 0;
    const bool ends =
        !size || (lengths[last] >= size && !memcmp(texts[last] + lengths[last] - size, encoding->end, size));
    *length = 0;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->text, &encoder->text_capacity,
                              lengths[0] + (last ? lengths[1] : 0) + size + 1, 1));
    for (size_t i = 0; i <= last; *length += lengths[i++]) memcpy(encoder->text + *length, texts[i], lengths[i]);
    if (ends) return SNUG_OK;
    memcpy(encoder->text + *length, encoding->end, size);
    *length += size;
    return SNUG_OK;
}

/* The tokens of a row that begin as those of the first text alone. */
static snug_status count_prompt(snug_context *ctx, const struct snug_encoding *encoding, const char *text,
                                size_t length, size_t most, const int32_t *row, size_t count,
                                struct snug_encoder *encoder, struct snug_encoded *out, size_t *prompt) {
    encoder->b.count = encoder->prompt.count = *prompt = 0;
    RETURN_IF_ERROR(snug_tokenizer_encode_begin(ctx, encoding->tokenizer, text, length, most, &encoder->b));
    RETURN_IF_ERROR(snug_tokenizer_assemble_once(ctx, encoding->tokenizer, &encoder->b, true, &encoder->prompt));
    const size_t least = encoder->prompt.count < count ? encoder->prompt.count : count;
    while (*prompt < least && encoder->prompt.ids[*prompt] == row[*prompt]) ++*prompt;
    out->across = *prompt < least;
    return SNUG_OK;
}

snug_status snug_encode_causal(snug_context *ctx, const struct snug_encoding *encoding, const char *const texts[2],
                               const size_t lengths[2], struct snug_encoder *encoder, struct snug_encoded *out) {
    const size_t most = encoding->max_length == INT32_MAX ? SIZE_MAX : encoding->max_length + 1;
    size_t length, prompt = 0;
    *out = (struct snug_encoded){.ids = encoder->out.count};
    encoder->a.count = 0;
    RETURN_IF_ERROR(put_text(ctx, encoding, texts, lengths, encoder, &length));
    RETURN_IF_ERROR(snug_tokenizer_encode_begin(ctx, encoding->tokenizer, encoder->text, length, most, &encoder->a));
    RETURN_IF_ERROR(snug_tokenizer_assemble_once(ctx, encoding->tokenizer, &encoder->a, false, &encoder->out));
    out->count = encoder->out.count - out->ids;
    out->truncated = out->count > encoding->max_length;
    if (out->truncated) out->count = encoding->max_length;
    if (encoding->completes && encoding->completion_only)
        RETURN_IF_ERROR(count_prompt(ctx, encoding, texts[0], lengths[0], most, encoder->out.ids + out->ids, out->count,
                                     encoder, out, &prompt));
    /* The first token is predicted by none. */
    out->without_loss = !encoding->joins && out->count <= (prompt ? prompt : 1);
    if (out->without_loss) out->count = 0;
    out->first_count = out->count;
    encoder->out.count = out->ids + out->count;
    for (size_t i = 0; i < out->count; i++) RETURN_IF_ERROR(snug_ids_append(ctx, &encoder->has_loss, i >= prompt));
    return SNUG_OK;
}

snug_status snug_encode_words(snug_context *ctx, const struct snug_encoding *encoding, const char *texts, size_t words,
                              struct snug_encoder *encoder, struct snug_encoded *out) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->words, &encoder->word_capacity, words, sizeof *encoder->words));
    for (size_t i = 0; i < words; i++) {
        encoder->words[i] = (struct snug_word){texts, strlen(texts)};
        texts += encoder->words[i].length + 1;
    }
    *out = (struct snug_encoded){.ids = encoder->out.count};
    encoder->a.count = encoder->a_word_of.count = 0;
    RETURN_IF_ERROR(
        snug_tokenizer_encode_words(ctx, encoding->tokenizer, encoder->words, words, &encoder->a, &encoder->a_word_of));
    RETURN_IF_ERROR(snug_tokenizer_assemble_words(ctx, encoding->tokenizer, &encoder->a, &encoder->a_word_of,
                                                  encoding->max_length, &encoder->out, &encoder->word_of,
                                                  &out->first_count, &out->truncated));
    out->count = encoder->out.count - out->ids;
    return SNUG_OK;
}
