/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's four passes over the text (clean, space out ideographs, decompose and strip, lower) in one pass. Only
 * the canonical reordering of combining marks depends on adjacent code points. Non-spacing marks are dropped before it,
 * because dropping does not change the order of the rest; few marks remain to be reordered.
 */
#include "tokenizer/bert_normalizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tokenizer/unicode.h"
#include "tokenizer/unicode_forms.h"

/* One code point adds at most two spaces and four decomposed code points that are lowered to at most two, each of at
   most four bytes: 34 bytes. */
#define ROOM 64

struct state {
    const struct snug_bert_normalizer *normalizer;
    struct snug_text *out;
    struct snug_marks run;
};

static void put(struct snug_text *out, uint32_t code) { out->length += snug_utf8_put(out->text + out->length, code); }

static void put_lowered(const struct state *state, uint32_t code, unsigned flags) {
    if (!state->normalizer->lowercase || !(flags & SNUG_CODEPOINT_LOWER)) {
        put(state->out, code);
        return;
    }
    uint32_t lower[2];
    int count = snug_codepoint_lower(code, lower);
    for (int i = 0; i < count; i++) put(state->out, lower[i]);
}

/* Grows the buffer for `rest` more bytes of input and the longest output of one code point. */
static snug_status reserve(snug_context *ctx, struct snug_text *out, size_t rest) {
    return snug_grow(ctx, (void **)&out->text, &out->capacity, out->length + rest + ROOM, 1);
}

/* Writes the pending marks in canonical order. */
static snug_status flush_run(snug_context *ctx, struct state *state, size_t rest) {
    struct snug_marks *run = &state->run;
    if (!run->count) return SNUG_OK;
    RETURN_IF_ERROR(reserve(ctx, state->out, run->count * 8 + rest));
    RETURN_IF_ERROR(snug_marks_sort(ctx, run));
    for (size_t i = 0; i < run->count; i++) {
        const uint32_t code = run->codes[i] & 0xffffffu;
        put_lowered(state, code, snug_codepoint_flags(code));
    }
    run->count = 0;
    return SNUG_OK;
}

static snug_status decompose(snug_context *ctx, struct state *state, uint32_t code, size_t rest) {
    /* Canonical decompositions have one to four code points, and Unicode never changes them. */
    utf8proc_int32_t parts[8];
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)code, parts, 8, UTF8PROC_DECOMPOSE, NULL);
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        uint32_t part = (uint32_t)parts[i];
        unsigned flags = snug_codepoint_flags(part);
        uint32_t class = 0;
        if (flags & SNUG_CODEPOINT_NFD) class = (uint32_t)utf8proc_get_property(parts[i])->combining_class;
        if (class && (flags & SNUG_CODEPOINT_MARK)) continue;
        if (class) {
            struct snug_marks *run = &state->run;
            RETURN_IF_ERROR(snug_marks_add(ctx, run, part, class));
            continue;
        }
        RETURN_IF_ERROR(flush_run(ctx, state, rest));
        if (!(flags & SNUG_CODEPOINT_MARK)) put_lowered(state, part, flags);
    }
    return SNUG_OK;
}

/* One code point after clean-up and spacing. */
static snug_status put_stripped(snug_context *ctx, struct state *state, uint32_t code, unsigned flags, size_t rest) {
    if (state->normalizer->strip_accents) {
        if (flags & SNUG_CODEPOINT_NFD) return decompose(ctx, state, code, rest);
        RETURN_IF_ERROR(flush_run(ctx, state, rest));
        if (flags & SNUG_CODEPOINT_MARK) return SNUG_OK;
    }
    put_lowered(state, code, flags);
    return SNUG_OK;
}

static snug_status put_code(snug_context *ctx, struct state *state, uint32_t code, size_t rest) {
    const struct snug_bert_normalizer *normalizer = state->normalizer;
    unsigned flags = snug_codepoint_flags(code);
    if (normalizer->clean_text) {
        if (flags & SNUG_CODEPOINT_REMOVED) return SNUG_OK;
        if (flags & SNUG_CODEPOINT_SPACE) code = ' ', flags = SNUG_CODEPOINT_SPACE;
    }
    bool spaced = normalizer->handle_chinese_chars && (flags & SNUG_CODEPOINT_IDEOGRAPH);
    if (spaced) {
        RETURN_IF_ERROR(flush_run(ctx, state, rest));
        put(state->out, ' ');
    }
    RETURN_IF_ERROR(put_stripped(ctx, state, code, flags, rest));
    if (spaced) put(state->out, ' ');
    return SNUG_OK;
}

/* The normalized form of an ASCII character: 0 if it is removed. */
static char ascii(const struct snug_bert_normalizer *normalizer, char c) {
    if (normalizer->clean_text && (c < ' ' || c == 0x7f)) return c == '\t' || c == '\n' || c == '\r' ? ' ' : '\0';
    return normalizer->lowercase && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

snug_status snug_bert_normalize(snug_context *ctx, const struct snug_bert_normalizer *normalizer, const char *text,
                                size_t length, struct snug_text *out) {
    struct state state = {.normalizer = normalizer, .out = out};
    out->length = 0;
    snug_status status = reserve(ctx, out, length);
    for (size_t i = 0; i < length && status == SNUG_OK;) {
        if ((unsigned char)text[i] < 0x80) {
            if (state.run.count) status = flush_run(ctx, &state, length - i);
            char c = ascii(normalizer, text[i]);
            out->text[out->length] = c;
            out->length += c || !normalizer->clean_text;
            i++;
        } else {
            uint32_t code = snug_utf8_next(text, &i);
            status = put_code(ctx, &state, code, length - i);
            if (status == SNUG_OK) status = reserve(ctx, out, length - i);
        }
    }
    if (status == SNUG_OK) status = flush_run(ctx, &state, 0);
    free(state.run.codes);
    free(state.run.sorted);
    return status;
}
