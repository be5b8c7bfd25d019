/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/bert_normalizer.h"
#include "tokenizer/precompiled.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_forms.h"

snug_status snug_normalizer_add(snug_context *ctx, struct snug_normalizer *normalizer,
                                const struct snug_normalizer_step *step) {
    struct snug_normalizer_step added = *step;
    const snug_status status = snug_grow(ctx, (void **)&normalizer->steps, &normalizer->capacity, normalizer->count + 1,
                                         sizeof *normalizer->steps);
    if (status == SNUG_OK)
        normalizer->steps[normalizer->count++] = added;
    else
        snug_normalizer_step_free(&added);
    return status;
}

snug_status snug_normalizer_add_charsmap(snug_context *ctx, struct snug_normalizer *normalizer, const char *path,
                                         const void *data, size_t size, bool base64) {
    struct snug_normalizer_step step = {.kind = SNUG_NORMALIZER_PRECOMPILED};
    char *name;
    RETURN_IF_ERROR(snug_format(ctx, &name, "%s: precompiled_charsmap", path));
    snug_status status = snug_alloc(ctx, 1, sizeof *step.precompiled, (void **)&step.precompiled);
    if (status == SNUG_OK)
        status = base64 ? snug_precompiled_read_base64(ctx, step.precompiled, name, data, size)
                        : snug_precompiled_read(ctx, step.precompiled, name, data, size);
    free(name);
    if (status == SNUG_OK) return snug_normalizer_add(ctx, normalizer, &step);
    snug_normalizer_step_free(&step);
    return status;
}

void snug_normalizer_step_free(struct snug_normalizer_step *step) {
    free(step->pattern);
    free(step->content);
    snug_regex_free(step->regex);
    if (step->precompiled) snug_precompiled_free(step->precompiled);
    free(step->precompiled);
}

void snug_normalizer_free(struct snug_normalizer *normalizer) {
    for (size_t i = 0; i < normalizer->count; i++) snug_normalizer_step_free(&normalizer->steps[i]);
    free(normalizer->steps);
    *normalizer = (struct snug_normalizer){0};
}

static snug_status reserve(snug_context *ctx, struct snug_text *out, size_t length) {
    return snug_grow(ctx, (void **)&out->text, &out->capacity, length + 1, 1);
}

static snug_status append(snug_context *ctx, struct snug_text *out, const char *text, size_t length) {
    RETURN_IF_ERROR(reserve(ctx, out, out->length + length));
    if (length) memcpy(out->text + out->length, text, length);
    out->length += length;
    return SNUG_OK;
}

static snug_status lowercase(snug_context *ctx, const char *text, size_t length, struct snug_text *out) {
    RETURN_IF_ERROR(reserve(ctx, out, length));
    for (size_t at = 0; at < length;) {
        const size_t begin = at;
        const uint32_t code = snug_utf8_next(text, &at);
        RETURN_IF_ERROR(reserve(ctx, out, out->length + 8));
        if (code < 0x80) {
            out->text[out->length++] = (char)(code - 'A' < 26 ? code + 32 : code);
        } else if (!(snug_codepoint_flags(code) & SNUG_CODEPOINT_LOWER)) {
            memcpy(out->text + out->length, text + begin, at - begin);
            out->length += at - begin;
        } else {
            uint32_t lower[2];
            const int count = snug_codepoint_lower(code, lower);
            for (int i = 0; i < count; i++) out->length += snug_utf8_put(out->text + out->length, lower[i]);
        }
    }
    return SNUG_OK;
}

/* Characters that Nmt drops, and those that it replaces by a space, as listed in the library. */
static bool nmt_drops(uint32_t code) {
    return (code >= 0x01 && code <= 0x08) || code == 0x0b || (code >= 0x0e && code <= 0x1f) || code == 0x7f ||
           code == 0x8f || code == 0x9f;
}
static bool nmt_is_space(uint32_t code) {
    return code == 0x09 || code == 0x0a || code == 0x0c || code == 0x0d || code == 0x1680 ||
           (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xfeff ||
           code == 0xfffd;
}

/* Copies the characters that the step keeps. */
static snug_status filter(snug_context *ctx, enum snug_normalizer_kind kind, const char *text, size_t length,
                          struct snug_text *out) {
    RETURN_IF_ERROR(reserve(ctx, out, length));
    for (size_t at = 0; at < length;) {
        const size_t begin = at;
        const uint32_t code = snug_utf8_next(text, &at);
        if (kind == SNUG_NORMALIZER_NMT && nmt_is_space(code)) {
            out->text[out->length++] = ' ';
            continue;
        }
        if (kind == SNUG_NORMALIZER_NMT ? nmt_drops(code) : snug_codepoint_flags(code) & SNUG_CODEPOINT_COMBINING)
            continue;
        memcpy(out->text + out->length, text + begin, at - begin);
        out->length += at - begin;
    }
    return SNUG_OK;
}

/* The next match: text[*start … *end). SNUG_END if there is none. */
static snug_status find(snug_context *ctx, const struct snug_normalizer_step *step, const char *text, size_t length,
                        size_t at, struct snug_regex_scratch *scratch, size_t *start, size_t *end) {
    if (step->regex) return snug_regex_find(ctx, step->regex, text, length, at, scratch, start, end);
    const char *found = memmem(text + at, length - at, step->pattern, step->pattern_length);
    if (!found) return SNUG_END;
    *start = (size_t)(found - text);
    *end = *start + step->pattern_length;
    return SNUG_OK;
}

static snug_status replace(snug_context *ctx, const struct snug_normalizer_step *step, const char *text, size_t length,
                           struct snug_text *out) {
    struct snug_regex_scratch scratch = {0};
    size_t done = 0, start, end;
    snug_status status;
    while ((status = find(ctx, step, text, length, done, &scratch, &start, &end)) == SNUG_OK) {
        status = append(ctx, out, text + done, start - done);
        if (status == SNUG_OK) status = append(ctx, out, step->content, step->content_length);
        if (status != SNUG_OK) break;
        done = end;
    }
    snug_regex_scratch_free(&scratch);
    return status == SNUG_END ? append(ctx, out, text + done, length - done) : status;
}

static snug_status strip(snug_context *ctx, const struct snug_normalizer_step *step, const char *text, size_t length,
                         struct snug_text *out) {
    size_t begin = 0, end = length;
    for (size_t next = 0; step->left && begin < end; begin = next)
        if (!(snug_codepoint_flags(snug_utf8_next(text, &next)) & SNUG_CODEPOINT_SPACE)) break;
    while (step->right && end > begin) {
        size_t last = snug_utf8_previous(text, end), position = last;
        if (!(snug_codepoint_flags(snug_utf8_next(text, &position)) & SNUG_CODEPOINT_SPACE)) break;
        end = last;
    }
    return append(ctx, out, text + begin, end - begin);
}

static snug_status prepend(snug_context *ctx, const struct snug_normalizer_step *step, const char *text, size_t length,
                           struct snug_text *out) {
    if (length) RETURN_IF_ERROR(append(ctx, out, step->content, step->content_length));
    return append(ctx, out, text, length);
}

static snug_status run(snug_context *ctx, const struct snug_normalizer_step *step, const char *text, size_t length,
                       struct snug_text *out) {
    out->length = 0;
    switch (step->kind) {
    case SNUG_NORMALIZER_BERT: return snug_bert_normalize(ctx, &step->bert, text, length, out);
    case SNUG_NORMALIZER_FORM: return snug_unicode_form(ctx, step->compatible, step->composed, text, length, out);
    case SNUG_NORMALIZER_LOWERCASE: return lowercase(ctx, text, length, out);
    case SNUG_NORMALIZER_STRIP_ACCENTS:
    case SNUG_NORMALIZER_NMT: return filter(ctx, step->kind, text, length, out);
    case SNUG_NORMALIZER_REPLACE:
    case SNUG_NORMALIZER_REPLACE_REGEX: return replace(ctx, step, text, length, out);
    case SNUG_NORMALIZER_PREPEND: return prepend(ctx, step, text, length, out);
    case SNUG_NORMALIZER_STRIP: return strip(ctx, step, text, length, out);
    case SNUG_NORMALIZER_PRECOMPILED: break;
    }
    return snug_precompiled_normalize(ctx, step->precompiled, text, length, out);
}

static bool is_ascii(const char *text, size_t length) {
    unsigned char all = 0;
    for (size_t i = 0; i < length; i++) all |= (unsigned char)text[i];
    return all < 0x80;
}

/* Whether a step does not change any ASCII text. */
static bool keeps_ascii(const struct snug_normalizer_step *step) {
    return step->kind == SNUG_NORMALIZER_FORM || step->kind == SNUG_NORMALIZER_STRIP_ACCENTS;
}

snug_status snug_normalize(snug_context *ctx, const struct snug_normalizer *normalizer, const char *text, size_t length,
                           struct snug_text *out) {
    struct snug_text spare = {0};
    const char *from = text;
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < normalizer->count && status == SNUG_OK; i++) {
        const struct snug_normalizer_step *step = &normalizer->steps[i];
        if (keeps_ascii(step) && is_ascii(from, length)) continue;
        if (from != text) { /* out is the text so far */
            const struct snug_text swapped = spare;
            spare = *out;
            *out = swapped;
            from = spare.text;
        }
        status = run(ctx, step, from, length, out);
        from = out->text;
        length = out->length;
    }
    free(spare.text);
    if (from != text || status != SNUG_OK) return status;
    out->length = 0;
    return append(ctx, out, text, length);
}
