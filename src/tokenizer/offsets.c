/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tokens are in their text. The normalizer keeps no origins, so each character is normalized by itself, and the
 * tokens' texts are found in what results, in order and without white space: of a byte-level tokenizer its bytes
 * without spaces, of WordPiece without ##, of SentencePiece without its mark.
 */
#include <stdlib.h>
#include <string.h>

#include "core/call.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"

/* The longest text of a token that is compared. */
enum { TOKEN_MOST = 1024 };
typedef char token_text[TOKEN_MOST + 4]; /* and the rest of its last character */

/* The normalized text without white space: by byte, the character of the text that it comes from. */
struct origins {
    char *bytes;
    uint32_t *begin, *end;
    bool *breaks; /* a word begins here: after white space, or at punctuation or after it */
    size_t count, byte_capacity, begin_capacity, end_capacity, break_capacity;
};

static void free_origins(struct origins *o) {
    free(o->bytes);
    free(o->begin);
    free(o->end);
    free(o->breaks);
}

static snug_status reserve(snug_context *ctx, struct origins *o, size_t more) {
    const size_t count = o->count + more;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&o->bytes, &o->byte_capacity, count, 1));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&o->begin, &o->begin_capacity, count, sizeof *o->begin));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&o->end, &o->end_capacity, count, sizeof *o->end));
    return snug_grow(ctx, (void **)&o->breaks, &o->break_capacity, count, sizeof *o->breaks);
}

static bool is_mark(const char *text) { return !strncmp(text, "\xe2\x96\x81", 3); }

static bool is_byte_level(const struct snug_tokenizer *tokenizer) {
    return tokenizer->kind == SNUG_MODEL_BPE && tokenizer->bpe.byte_level;
}

/* Copies length bytes without white space and SentencePiece's marks, or without spaces; returns how many. */
static size_t copy_solid(const struct snug_tokenizer *tokenizer, char *to, const char *text, size_t length) {
    size_t count = 0;
    for (size_t at = 0, next; at < length; at = next) {
        next = at;
        const bool space = snug_codepoint_flags(snug_utf8_next(text, &next)) & SNUG_CODEPOINT_SPACE;
        if (is_byte_level(tokenizer) ? text[at] == ' ' : space || is_mark(text + at)) continue;
        memcpy(to + count, text + at, next - at);
        count += next - at;
    }
    return count;
}

static snug_status find_origins(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                size_t length, struct snug_text *scratch, struct origins *o) {
    const unsigned apart = SNUG_CODEPOINT_PUNCTUATION | SNUG_CODEPOINT_IDEOGRAPH;
    bool breaks = true;
    for (size_t at = 0, next; at < length; at = next) {
        next = at;
        const unsigned flags = snug_codepoint_flags(snug_utf8_next(text, &next));
        RETURN_IF_ERROR(snug_normalize(ctx, &tokenizer->normalizer, text + at, next - at, scratch));
        RETURN_IF_ERROR(reserve(ctx, o, scratch->length + 1));
        const size_t first = o->count;
        o->count += copy_solid(tokenizer, o->bytes + first, scratch->text, scratch->length);
        for (size_t i = first; i < o->count; i++) {
            o->begin[i] = (uint32_t)at;
            o->end[i] = (uint32_t)next;
            o->breaks[i] = i == first && (breaks || flags & apart);
        }
        if (o->count > first || flags & SNUG_CODEPOINT_SPACE) breaks = flags & (apart | SNUG_CODEPOINT_SPACE);
    }
    return SNUG_OK;
}

/* A token's text as it is in the normalized one; returns its length. */
static size_t surface(const struct snug_tokenizer *tokenizer, const uint16_t byte_of[512], const char *token,
                      char *out) {
    const size_t whole = strlen(token), length = whole < TOKEN_MOST ? whole : TOKEN_MOST;
    if (tokenizer->kind == SNUG_MODEL_WORDPIECE && length > 2 && !strncmp(token, "##", 2)) {
        memcpy(out, token + 2, length - 2);
        return length - 2;
    }
    if (!is_byte_level(tokenizer)) return copy_solid(tokenizer, out, token, length);
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        const uint32_t code = snug_utf8_next(token, &at);
        if (code >= 512 || byte_of[code] > 255) return copy_solid(tokenizer, out, token, length); /* an added token */
        if (byte_of[code] != ' ') out[count++] = (char)byte_of[code];
    }
    return count;
}

static size_t characters(const char *text) {
    size_t count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static bool is_at(const struct origins *o, size_t at, const char *text, size_t length) {
    return length && length <= o->count - at && !memcmp(o->bytes + at, text, length);
}

/* Where a token ends that does not have the characters at `at`: an added token, which is not normalized, has those of
   the text; others, such as the unknown one, have what is left up to the next word or the next token. */
static size_t find_end(const struct snug_tokenizer *tokenizer, const char *text, const struct origins *o, size_t at,
                       const char *token, const char *next, size_t follows) {
    const size_t length = strlen(token);
    size_t end = at;
    if (at == o->count) return at;
    if (snug_added_tokens_find(&tokenizer->added, token) && !strncmp(text + o->begin[at], token, length)) {
        while (end < o->count && o->begin[end] < o->begin[at] + length) end++;
        return end;
    }
    for (end = at + 1; end < o->count && !o->breaks[end]; end++)
        if (is_at(o, end, next, follows)) break;
    return end;
}

static snug_status find_tokens(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                               const int32_t *ids, size_t count, const struct origins *o, struct snug_ids *bytes) {
    uint16_t byte_of[512];
    token_text own, next;
    size_t at = 0;
    snug_bpe_alphabet(byte_of);
    for (size_t i = 0; i < count; i++) {
        const char *token = snug_tokenizer_token(tokenizer, ids[i]);
        const size_t length = surface(tokenizer, byte_of, token, own);
        size_t end = at + length;
        if (length && !is_at(o, at, own, length)) {
            const size_t follows =
                i + 1 < count ? surface(tokenizer, byte_of, snug_tokenizer_token(tokenizer, ids[i + 1]), next) : 0;
            end = find_end(tokenizer, text, o, at, token, next, follows);
        }
        /* A token of white space alone ends where its own does. */
        const bool none = end == at;
        const uint32_t before = (at ? o->end[at - 1] : 0) + (length ? 0 : (uint32_t)characters(token));
        const uint32_t begin = at < o->count && (!none || o->begin[at] < before) ? o->begin[at] : before;
        RETURN_IF_ERROR(snug_ids_append(ctx, bytes, (int32_t)begin));
        RETURN_IF_ERROR(snug_ids_append(ctx, bytes, (int32_t)(none ? begin : o->end[end - 1])));
        at = end;
    }
    return SNUG_OK;
}

snug_status snug_tokenizer_offsets(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                   size_t length, const int32_t *ids, size_t count, struct snug_ids *bytes) {
    struct origins origins = {0};
    struct snug_text scratch = {0};
    snug_status status = find_origins(ctx, tokenizer, text, length, &scratch, &origins);
    if (status == SNUG_OK) status = find_tokens(ctx, tokenizer, text, ids, count, &origins, bytes);
    free(scratch.text);
    free_origins(&origins);
    return status;
}
