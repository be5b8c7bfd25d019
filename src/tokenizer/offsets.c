/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tokens are in their text. The normalizer keeps no origins, so each character is normalized by itself, and the
 * tokens' texts are found in what results, in order and without white space: of BPE without spaces alone, of WordPiece
 * without ##, of SentencePiece without its mark.
 */
#include <stdlib.h>
#include <string.h>

#include "core/call.h"
#include "core/min_max.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"

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

static bool is_byte_token(const struct snug_tokenizer *tokenizer, const char *token, size_t length) {
    const bool fallback =
        tokenizer->kind == SNUG_MODEL_BPE ? tokenizer->bpe.byte_fallback : tokenizer->unigram.byte_fallback;
    return fallback && snug_byte_token(token, length) >= 0;
}

/* Copies length bytes without white space and SentencePiece's marks; returns how many. BPE has tokens of white space
   other than spaces. */
static size_t copy_solid(const struct snug_tokenizer *tokenizer, char *to, const char *text, size_t length) {
    const bool spaces = tokenizer->kind == SNUG_MODEL_BPE;
    const bool marks = tokenizer->kind != SNUG_MODEL_WORDPIECE && !is_byte_level(tokenizer);
    size_t count = 0;
    for (size_t at = 0, next; at < length; at = next) {
        next = at;
        const bool space = snug_codepoint_flags(snug_utf8_next(text, &next)) & SNUG_CODEPOINT_SPACE;
        if ((spaces ? text[at] == ' ' : space) || (marks && is_mark(text + at))) continue;
        memcpy(to + count, text + at, next - at);
        count += next - at;
    }
    return count;
}

static snug_status find_origins(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                size_t length, struct snug_text *scratch, struct origins *o) {
    bool breaks = true;
    for (size_t at = 0, next; at < length; at = next) {
        next = at;
        const unsigned flags = snug_codepoint_flags(snug_utf8_next(text, &next));
        RETURN_IF_ERROR(snug_normalize(ctx, &tokenizer->normalizer, text + at, next - at, scratch));
        RETURN_IF_ERROR(reserve(ctx, o, scratch->length + 1));
        const size_t first = o->count;
        o->count += copy_solid(tokenizer, o->bytes + first, scratch->text, scratch->length);
        /* WordPiece's normalizer puts spaces around the ideographs that are split. */
        const bool spaced = flags & SNUG_CODEPOINT_IDEOGRAPH && o->count - first < scratch->length;
        const bool apart = tokenizer->kind == SNUG_MODEL_WORDPIECE && (spaced || flags & SNUG_CODEPOINT_PUNCTUATION);
        for (size_t i = first; i < o->count; i++) {
            o->begin[i] = (uint32_t)at;
            o->end[i] = (uint32_t)next;
            o->breaks[i] = i == first && (breaks || apart);
        }
        if (o->count > first || flags & SNUG_CODEPOINT_SPACE) breaks = apart || flags & SNUG_CODEPOINT_SPACE;
    }
    return SNUG_OK;
}

/* A token's text as it is in the normalized one, no longer than the token; returns its length. */
static size_t surface(const struct snug_tokenizer *tokenizer, const uint16_t byte_of[512], const char *token,
                      char *out) {
    const size_t length = strlen(token);
    if (tokenizer->kind == SNUG_MODEL_WORDPIECE && length > 2 && !strncmp(token, "##", 2)) {
        memcpy(out, token + 2, length - 2);
        return length - 2;
    }
    if (is_byte_token(tokenizer, token, length)) {
        *out = (char)snug_byte_token(token, length);
        return 1;
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

/* texts: room for two tokens of so many bytes. */
static snug_status find_tokens(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                               uint32_t size, const int32_t *ids, size_t count, const struct origins *o, char *texts,
                               size_t longest, struct snug_ids *bytes) {
    uint16_t byte_of[512];
    char *own = texts, *next = texts + longest;
    uint32_t last = 0; /* where the token before ends */
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
        const uint32_t limit = at < o->count ? o->begin[at] : size;
        /* White space alone ends where its own does, and SentencePiece's mark has the character that it precedes. */
        uint32_t begin = (uint32_t)snug_min(limit, last + (length ? 0 : characters(token))), stop = begin;
        if (at < o->count && (end > at || tokenizer->kind == SNUG_MODEL_UNIGRAM)) {
            begin = limit;
            stop = o->end[end > at ? end - 1 : at];
        }
        RETURN_IF_ERROR(snug_ids_append(ctx, bytes, (int32_t)begin));
        RETURN_IF_ERROR(snug_ids_append(ctx, bytes, (int32_t)stop));
        last = stop;
        at = end;
    }
    return SNUG_OK;
}

snug_status snug_tokenizer_offsets(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                   size_t length, const int32_t *ids, size_t count, struct snug_ids *bytes) {
    struct origins origins = {0};
    struct snug_text scratch = {0};
    size_t longest = 1;
    for (size_t i = 0; i < count; i++)
        longest = (size_t)snug_max((int64_t)longest, (int64_t)strlen(snug_tokenizer_token(tokenizer, ids[i])));
    snug_status status = find_origins(ctx, tokenizer, text, length, &scratch, &origins);
    if (status == SNUG_OK) status = snug_grow(ctx, (void **)&scratch.text, &scratch.capacity, 2 * longest, 1);
    if (status == SNUG_OK)
        status =
            find_tokens(ctx, tokenizer, text, (uint32_t)length, ids, count, &origins, scratch.text, longest, bytes);
    free(scratch.text);
    free_origins(&origins);
    return status;
}
