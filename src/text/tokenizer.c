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
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
        free(tokenizer->paths[file]);
        free(tokenizer->data[file]);
    }
    free(tokenizer);
}

snug_status snug_tokenizer_save(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                const struct snug_folder *in) {
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
        if (!tokenizer->paths[file]) continue;
        RETURN_IF_ERROR(
            snug_file_replace(ctx, in, snug_tokenizer_file_names[file], tokenizer->data[file], tokenizer->sizes[file]));
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

/* One text being encoded, with the buffers that its parts share. */
struct encoding {
    snug_context *ctx;
    const struct snug_tokenizer *tokenizer;
    size_t most;                               /* tokens in out after which nothing more is read */
    struct snug_text normalized;               /* of the part between two raw added tokens */
    struct snug_search raw, normalized_search; /* for added tokens, in the text and in its normalized parts */
    struct snug_search pieces;                 /* for pieces of words */
    struct snug_ids *out;
};

static snug_status encode_word(struct encoding *e, const char *word, size_t length) {
    return snug_wordpiece_encode(e->ctx, &e->tokenizer->model, word, length, &e->pieces, e->out);
}

/* BertPreTokenizer and the model: words end at white space, and each punctuation character is one. Ends after the word
   that makes most tokens of out. */
static snug_status encode_words(struct encoding *e, const char *text, size_t length) {
    size_t word = 0;
    for (size_t at = 0; at < length;) {
        if (e->out->count >= e->most) return SNUG_OK;
        size_t next = at;
        unsigned flags = snug_codepoint_flags(snug_utf8_next(text, &next));
        if (flags & (SNUG_CODEPOINT_SPACE | SNUG_CODEPOINT_PUNCTUATION)) {
            if (at > word) RETURN_IF_ERROR(encode_word(e, text + word, at - word));
            if (flags & SNUG_CODEPOINT_PUNCTUATION) RETURN_IF_ERROR(encode_word(e, text + at, next - at));
            word = next;
        }
        at = next;
    }
    return length > word ? encode_word(e, text + word, length - word) : SNUG_OK;
}

/* A part of a text in which added tokens are looked for: each becomes its id, and what lies between them is left to
   encode_between. SNUG_END at its end. */
static snug_status encode_part(struct encoding *e, struct snug_search *search,
                               snug_status (*encode_between)(struct encoding *e, const char *text, size_t length)) {
    struct snug_splitter splitter = {.tokens = &e->tokenizer->added, .search = search};
    const struct snug_added_token *token;
    size_t start, stop;
    while (e->out->count < e->most) {
        RETURN_IF_ERROR(snug_splitter_next(e->ctx, &splitter, &token, &start, &stop));
        RETURN_IF_ERROR(token ? snug_ids_append(e->ctx, e->out, token->id)
                              : encode_between(e, search->text + start, stop - start));
    }
    return SNUG_END;
}

/* A part without raw added tokens: is normalized, and the normalized tokens are looked for. */
static snug_status encode_normalized(struct encoding *e, const char *text, size_t length) {
    RETURN_IF_ERROR(snug_normalize(e->ctx, &e->tokenizer->normalizer, text, length, &e->normalized));
    snug_search_begin(&e->normalized_search, &e->tokenizer->added.normalized, e->normalized.text, e->normalized.length);
    const snug_status status = encode_part(e, &e->normalized_search, encode_words);
    return status == SNUG_END ? SNUG_OK : status;
}

snug_status snug_tokenizer_encode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                  size_t length, struct snug_ids *out) {
    return snug_tokenizer_encode_begin(ctx, tokenizer, text, length, SIZE_MAX, out);
}

snug_status snug_tokenizer_encode_begin(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                        size_t length, size_t most, struct snug_ids *out) {
    const size_t invalid = snug_utf8_invalid(text, length);
    if (invalid < length)
        return snug_fail(ctx, SNUG_E_INPUT, "byte %zu of a text to be tokenized is not valid UTF-8", invalid);
    struct encoding e = {.ctx = ctx, .tokenizer = tokenizer, .out = out};
    e.most = tokenizer->truncate_left || most > SIZE_MAX - out->count ? SIZE_MAX : out->count + most;
    snug_search_begin(&e.raw, &tokenizer->added.raw, text, length);
    const snug_status status = encode_part(&e, &e.raw, encode_normalized);
    free(e.normalized.text);
    snug_search_free(&e.raw);
    snug_search_free(&e.normalized_search);
    snug_search_free(&e.pieces);
    return status == SNUG_END ? SNUG_OK : status;
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
