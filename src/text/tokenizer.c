/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/utf8.h"
#include "io/file.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

const char *const snug_tokenizer_file_names[SNUG_TOKENIZER_FILES] = {
    "vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
};

void snug_tokenizer_free(struct snug_tokenizer *tokenizer) {
    if (!tokenizer) return;
    snug_wordpiece_free(&tokenizer->model);
    snug_added_tokens_free(&tokenizer->added);
    free(tokenizer->tokens);
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) free(tokenizer->paths[file]);
    free(tokenizer);
}

snug_status snug_tokenizer_save(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                const struct snug_folder *in) {
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
        if (!tokenizer->paths[file]) continue;
        char *data;
        size_t size;
        RETURN_IF_ERROR(snug_file_read(ctx, NULL, tokenizer->paths[file], &data, &size));
        snug_status status = snug_file_replace(ctx, in, snug_tokenizer_file_names[file], data, size);
        free(data);
        RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

const char *snug_tokenizer_file(const struct snug_tokenizer *tokenizer, size_t index) {
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++)
        if (tokenizer->paths[file] && index-- == 0) return snug_tokenizer_file_names[file];
    return NULL;
}

int64_t snug_tokenizer_vocab_size(const struct snug_tokenizer *tokenizer) { return tokenizer->vocab_size; }

const char *snug_tokenizer_token(const struct snug_tokenizer *tokenizer, int32_t id) {
    bool known = id >= 0 && id < tokenizer->vocab_size && tokenizer->tokens[id];
    return known ? tokenizer->tokens[id] : "";
}

struct snug_special_ids snug_tokenizer_special(const struct snug_tokenizer *tokenizer) {
    return tokenizer->special;
}

uint64_t snug_tokenizer_fingerprint(const struct snug_tokenizer *tokenizer) { return tokenizer->fingerprint; }

/* BertPreTokenizer and the model: words end at white space, and each punctuation character is one. Ends after the word
   that makes most tokens of out. */
static snug_status encode_words(snug_context *ctx, const struct snug_wordpiece *model, const char *text, size_t length,
                                size_t most, struct snug_ids *out) {
    size_t word = 0;
    for (size_t at = 0; at < length;) {
        if (out->count >= most) return SNUG_OK;
        size_t next = at;
        unsigned flags = snug_codepoint_flags(snug_utf8_next(text, &next));
        if (flags & (SNUG_CODEPOINT_SPACE | SNUG_CODEPOINT_PUNCTUATION)) {
            if (at > word) RETURN_IF_ERROR(snug_wordpiece_encode(ctx, model, text + word, at - word, out));
            if (flags & SNUG_CODEPOINT_PUNCTUATION)
                RETURN_IF_ERROR(snug_wordpiece_encode(ctx, model, text + at, next - at, out));
            word = next;
        }
        at = next;
    }
    return length > word ? snug_wordpiece_encode(ctx, model, text + word, length - word, out) : SNUG_OK;
}

/* A piece of text without raw added tokens: normalises it and looks for the normalized ones. */
static snug_status encode_piece(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                size_t length, size_t most, struct snug_text *buffer, struct snug_ids *out) {
    RETURN_IF_ERROR(snug_normalize(ctx, &tokenizer->normalizer, text, length, buffer));
    struct snug_splitter splitter = {.tokens = &tokenizer->added,
                                     .lexicon = &tokenizer->added.normalized,
                                     .text = buffer->text,
                                     .length = buffer->length};
    const struct snug_added_token *token;
    size_t start, stop;
    while (out->count < most && snug_splitter_next(&splitter, &token, &start, &stop)) {
        if (token)
            RETURN_IF_ERROR(snug_ids_append(ctx, out, token->id));
        else
            RETURN_IF_ERROR(encode_words(ctx, &tokenizer->model, buffer->text + start, stop - start, most, out));
    }
    return SNUG_OK;
}

snug_status snug_tokenizer_encode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                  size_t length, struct snug_ids *out) {
    return snug_tokenizer_encode_begin(ctx, tokenizer, text, length, SIZE_MAX, out);
}

snug_status snug_tokenizer_encode_begin(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                        size_t length, size_t most, struct snug_ids *out) {
    most = tokenizer->truncate_left || most > SIZE_MAX - out->count ? SIZE_MAX : out->count + most;
    size_t invalid = snug_utf8_invalid(text, length);
    if (invalid < length)
        return snug_fail(ctx, SNUG_E_INPUT, "byte %zu of a text to be tokenized is not valid UTF-8", invalid);
    struct snug_text buffer = {0};
    struct snug_splitter splitter = {
        .tokens = &tokenizer->added, .lexicon = &tokenizer->added.raw, .text = text, .length = length};
    const struct snug_added_token *token;
    size_t start, stop;
    snug_status status = SNUG_OK;
    while (status == SNUG_OK && out->count < most && snug_splitter_next(&splitter, &token, &start, &stop)) {
        if (token)
            status = snug_ids_append(ctx, out, token->id);
        else
            status = encode_piece(ctx, tokenizer, text + start, stop - start, most, &buffer, out);
    }
    free(buffer.text);
    return status;
}

/* How many tokens of each stay, as truncate_encodings of the library decides: only the longer is cut while the shorter
   fits beside it; once both are cut each gets half, the odd one going to the longer (the second, if equally long). */
static void truncate_pair(size_t *first, size_t *second, size_t room) {
    if (*first + *second <= room) return;
    size_t *shorter = *first > *second ? second : first, *longer = shorter == first ? second : first;
    *longer = *shorter > room || room - *shorter < *shorter ? *shorter : room - *shorter;
    if (*shorter + *longer > room) {
        *shorter = room / 2;
        *longer = room - room / 2;
    }
}

static snug_status append_kept(snug_context *ctx, const struct snug_ids *ids, size_t kept, bool left, int32_t sep,
                               struct snug_ids *out) {
    size_t from = left ? ids->count - kept : 0;
    for (size_t i = 0; i < kept; i++) RETURN_IF_ERROR(snug_ids_append(ctx, out, ids->ids[from + i]));
    return snug_ids_append(ctx, out, sep);
}

snug_status snug_tokenizer_assemble(snug_context *ctx, const struct snug_tokenizer *tokenizer, const struct snug_ids *a,
                                    const struct snug_ids *b, size_t max_length, struct snug_ids *out,
                                    size_t *first_count, bool *truncated) {
    size_t specials = b ? 3 : 2, begin = out->count;
    if (max_length < specials)
        return snug_fail(ctx, SNUG_E_USAGE, "max_seq_length %zu leaves no room for the %zu special tokens", max_length,
                         specials);
    size_t kept_a = a->count, kept_b = b ? b->count : 0;
    truncate_pair(&kept_a, &kept_b, max_length - specials);
    *truncated = kept_a < a->count || (b && kept_b < b->count);
    bool left = tokenizer->truncate_left;
    RETURN_IF_ERROR(snug_ids_append(ctx, out, tokenizer->special.cls));
    RETURN_IF_ERROR(append_kept(ctx, a, kept_a, left, tokenizer->special.sep, out));
    *first_count = out->count - begin;
    return b ? append_kept(ctx, b, kept_b, left, tokenizer->special.sep, out) : SNUG_OK;
}
