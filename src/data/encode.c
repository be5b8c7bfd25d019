/* SPDX-License-Identifier: Apache-2.0 */
#include "data/encode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"

void snug_encoder_free(struct snug_encoder *encoder) {
    free(encoder->a.ids);
    free(encoder->b.ids);
    free(encoder->out.ids);
    free(encoder->a_word_of.ids);
    free(encoder->word_of.ids);
    free(encoder->words);
    free(encoder->counts.ids);
    free(encoder->has_loss.ids);
    free(encoder->prompt.ids);
    free(encoder->text);
    free(encoder->windows);
    free(encoder->offsets.ids);
    free(encoder->numbers);
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

/* A text after its prompt, which is in the encoder until the next one. */
static snug_status put_prompt(snug_context *ctx, const char *prompt, const char *text, size_t length,
                              struct snug_encoder *encoder) {
    const size_t before = strlen(prompt);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->text, &encoder->text_capacity, before + length + 1, 1));
    memcpy(encoder->text, prompt, before);
    memcpy(encoder->text + before, text, length);
    return SNUG_OK;
}

snug_status snug_encode_apart(snug_context *ctx, const struct snug_encoding *encoding, const char *text,
                              const uint32_t *lengths, size_t count, struct snug_encoder *encoder,
                              struct snug_encoded *out) {
    struct snug_encoded row = {.ids = encoder->out.count};
    for (size_t i = 0; i < count; text += lengths[i++]) {
        const char *own = encoding->prompts ? encoding->prompts[i] : encoding->prompt, *prompt = own ? own : "";
        struct snug_encoded one;
        if (*prompt) RETURN_IF_ERROR(put_prompt(ctx, prompt, text, lengths[i], encoder));
        RETURN_IF_ERROR(snug_encode_texts(ctx, encoding, (const char *const[]){*prompt ? encoder->text : text, ""},
                                          (const size_t[]){strlen(prompt) + lengths[i], 0}, encoder, &one));
        row.count += one.count;
        row.truncated |= one.truncated;
        RETURN_IF_ERROR(snug_ids_append(ctx, &encoder->counts, (int32_t)one.count));
    }
    row.first_count = row.count;
    *out = row;
    return SNUG_OK;
}

static bool is_special(const struct snug_tokenizer *tokenizer, int32_t id) {
    const struct snug_special_ids s = snug_tokenizer_special(tokenizer);
    const int32_t ids[] = {s.cls, s.sep, s.pad, s.unk, s.mask, s.bos, s.eos};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (id == ids[i]) return true;
    return false;
}

snug_status snug_count_prompt(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *prompt,
                              int32_t *out) {
    const struct snug_encoding encoding = {.tokenizer = tokenizer, .max_length = INT32_MAX};
    struct snug_encoder encoder = {0};
    struct snug_encoded row;
    *out = 0;
    if (!prompt || !*prompt) return SNUG_OK;
    const snug_status status = snug_encode_texts(ctx, &encoding, (const char *const[]){prompt, ""},
                                                 (const size_t[]){strlen(prompt), 0}, &encoder, &row);
    if (status == SNUG_OK && row.count)
        *out = (int32_t)row.count - is_special(tokenizer, encoder.out.ids[row.count - 1]);
    snug_encoder_free(&encoder);
    return status;
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

/* The tokens of a row with which those of its prompt begin, too. */
static size_t common_tokens(const int32_t *row, size_t count, const struct snug_ids *prompt, bool *across) {
    const size_t least = prompt->count < count ? prompt->count : count;
    size_t same = 0;
    while (same < least && prompt->ids[same] == row[same]) same++;
    *across = same < least;
    return same;
}

/* The tokens of a row that begin as those of the first text alone. */
static snug_status count_prompt(snug_context *ctx, const struct snug_encoding *encoding, const char *text,
                                size_t length, size_t most, const int32_t *row, size_t count,
                                struct snug_encoder *encoder, struct snug_encoded *out, size_t *prompt) {
    encoder->b.count = encoder->prompt.count = 0;
    RETURN_IF_ERROR(snug_tokenizer_encode_begin(ctx, encoding->tokenizer, text, length, most, &encoder->b));
    RETURN_IF_ERROR(snug_tokenizer_assemble_once(ctx, encoding->tokenizer, &encoder->b, true, &encoder->prompt));
    *prompt = common_tokens(row, count, &encoder->prompt, &out->across);
    return SNUG_OK;
}

/* Ends a row whose tokens are in out: it is cut, and is none if the tokens from `first` on, those with a loss, are cut.
 */
static void end_row(const struct snug_encoding *encoding, size_t first, struct snug_encoder *encoder,
                    struct snug_encoded *out) {
    out->count = encoder->out.count - out->ids;
    out->truncated = out->count > encoding->max_length;
    if (out->truncated) out->count = encoding->max_length;
    /* The first token is predicted by none. */
    out->without_loss = !encoding->joins && out->count <= (first ? first : 1);
    if (out->without_loss) out->count = 0;
    out->first_count = out->count;
    encoder->out.count = out->ids + out->count;
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
    const size_t all = encoder->out.count - out->ids, count = all < encoding->max_length ? all : encoding->max_length;
    if (encoding->completes && encoding->completion_only)
        RETURN_IF_ERROR(count_prompt(ctx, encoding, texts[0], lengths[0], most, encoder->out.ids + out->ids, count,
                                     encoder, out, &prompt));
    end_row(encoding, prompt, encoder, out);
    for (size_t i = 0; i < out->count; i++) RETURN_IF_ERROR(snug_ids_append(ctx, &encoder->has_loss, i >= prompt));
    return SNUG_OK;
}

/* ---- chats ---- */

/* The tokens of a chat's text, without more special tokens, and which of them have a loss. */
static snug_status put_chat(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                            const struct snug_chat_row *row, struct snug_encoder *encoder) {
    const size_t first = encoder->has_loss.count;
    struct snug_chat_text text;
    RETURN_IF_ERROR(encoding->assistant_only ? snug_chat_spans(ctx, encoding->chat, where, row, &text)
                                             : snug_chat_render(ctx, encoding->chat, where, row, &text));
    const snug_status status =
        snug_chat_tokens(ctx, encoding->tokenizer, &text, &encoder->a, &encoder->out, &encoder->has_loss);
    snug_chat_text_free(&text);
    for (size_t i = first; i < encoder->has_loss.count; i++) encoder->has_loss.ids[i] |= !encoding->assistant_only;
    return status;
}

/* Tokens of a chat's prompt, which those of the chat begin with, have no loss. */
static snug_status leave_prompt(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                const struct snug_chat_row *row, int32_t *has_loss, struct snug_encoder *encoder,
                                struct snug_encoded *out) {
    struct snug_chat_text text;
    encoder->prompt.count = 0;
    RETURN_IF_ERROR(snug_chat_render_prompt(ctx, encoding->chat, where, row, &text));
    const snug_status status =
        snug_tokenizer_encode(ctx, encoding->tokenizer, text.text, text.length, &encoder->prompt);
    snug_chat_text_free(&text);
    RETURN_IF_ERROR(status);
    const size_t count =
        common_tokens(encoder->out.ids + out->ids, encoder->out.count - out->ids, &encoder->prompt, &out->across);
    for (size_t i = 0; i < count; i++) has_loss[i] = 0;
    return SNUG_OK;
}

snug_status snug_encode_chat(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                             const char *text, size_t length, struct snug_encoder *encoder, struct snug_encoded *out) {
    const size_t has_loss = encoder->has_loss.count;
    struct snug_chat_row row;
    json_error_t error;
    *out = (struct snug_encoded){.ids = encoder->out.count};
    json_t *json = snug_json_parse(text, length, 0, &error);
    if (!json)
        return snug_fail(ctx, snug_json_status(&error), "%s: the row cannot be read as JSON: %s", where, error.text);
    snug_status status = snug_chat_row_read(ctx, where, json, &row);
    json_decref(json);
    RETURN_IF_ERROR(status);
    out->other_roles = row.other_roles;
    status = put_chat(ctx, encoding, where, &row, encoder);
    if (status == SNUG_OK && row.prompt && encoding->completion_only)
        status = leave_prompt(ctx, encoding, where, &row, encoder->has_loss.ids + has_loss, encoder, out);
    snug_chat_row_free(&row);
    RETURN_IF_ERROR(status);
    size_t first = 1;
    while (has_loss + first < encoder->has_loss.count && !encoder->has_loss.ids[has_loss + first]) first++;
    end_row(encoding, first, encoder, out);
    encoder->has_loss.count = has_loss + out->count;
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
