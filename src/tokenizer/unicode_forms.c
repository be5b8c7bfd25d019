/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Unicode Standard, 3.11. utf8proc gives decompositions and combining classes, which are never changed once a code
 * point is assigned; the tables generated from the library have the code points that it decomposes and composes.
 */
#include "tokenizer/unicode_forms.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "tokenizer/unicode.h"

/* Code points of the longest compatibility decomposition: 18, of U+FDFA. */
#define DECOMPOSED_MOST 32

snug_status snug_marks_add(snug_context *ctx, struct snug_marks *marks, uint32_t code, uint32_t combining_class) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&marks->codes, &marks->capacity, marks->count + 1, sizeof *marks->codes));
    marks->codes[marks->count++] = code | combining_class << 24;
    return SNUG_OK;
}

snug_status snug_marks_sort(snug_context *ctx, struct snug_marks *marks) {
    size_t place[257] = {0}, sorted = 1;
    while (sorted < marks->count && marks->codes[sorted - 1] >> 24 <= marks->codes[sorted] >> 24) sorted++;
    if (sorted >= marks->count) return SNUG_OK;
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&marks->sorted, &marks->sorted_capacity, marks->count, sizeof *marks->sorted));
    for (size_t i = 0; i < marks->count; i++) place[(marks->codes[i] >> 24) + 1]++;
    for (int class = 0; class < 256; class ++) place[class + 1] += place[class];
    for (size_t i = 0; i < marks->count; i++) marks->sorted[place[marks->codes[i] >> 24]++] = marks->codes[i];
    uint32_t *const swapped = marks->codes;
    const size_t capacity = marks->capacity;
    marks->codes = marks->sorted;
    marks->capacity = marks->sorted_capacity;
    marks->sorted = swapped;
    marks->sorted_capacity = capacity;
    return SNUG_OK;
}

/* A starter (a code point of combining class 0) and the marks after it, not written yet. */
struct form {
    snug_context *ctx;
    bool compatible, composed, begun;
    uint32_t starter; /* where begun */
    struct snug_marks marks;
    struct snug_text *out;
};

static snug_status put(struct form *form, uint32_t code) {
    struct snug_text *out = form->out;
    RETURN_IF_ERROR(snug_grow(form->ctx, (void **)&out->text, &out->capacity, out->length + 4, 1));
    out->length += snug_utf8_put(out->text + out->length, code);
    return SNUG_OK;
}

/* Composes the starter with each mark that does not follow a mark of the same class; the other marks remain. */
static void compose(struct form *form) {
    struct snug_marks *marks = &form->marks;
    size_t kept = 0;
    for (size_t i = 0; i < marks->count; i++) {
        const uint32_t code = marks->codes[i] & 0xffffffu;
        const bool blocked = kept && marks->codes[kept - 1] >> 24 == marks->codes[i] >> 24;
        const uint32_t composite = blocked ? 0 : snug_codepoint_compose(form->starter, code);
        if (composite)
            form->starter = composite;
        else
            marks->codes[kept++] = marks->codes[i];
    }
    marks->count = kept;
}

static snug_status order(struct form *form) {
    RETURN_IF_ERROR(snug_marks_sort(form->ctx, &form->marks));
    if (form->composed && form->begun) compose(form);
    return SNUG_OK;
}

static snug_status flush(struct form *form) {
    if (form->begun) RETURN_IF_ERROR(put(form, form->starter));
    for (size_t i = 0; i < form->marks.count; i++) RETURN_IF_ERROR(put(form, form->marks.codes[i] & 0xffffffu));
    form->begun = false;
    form->marks.count = 0;
    return SNUG_OK;
}

/* The next code point of the decomposed text. */
static snug_status take(struct form *form, uint32_t code, unsigned flags) {
    uint32_t class = 0;
    if (flags & SNUG_CODEPOINT_NFD) class = (uint32_t)utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
    if (class) return snug_marks_add(form->ctx, &form->marks, code, class);
    RETURN_IF_ERROR(order(form));
    if (form->composed && form->begun && !form->marks.count) {
        const uint32_t composite = snug_codepoint_compose(form->starter, code);
        if (composite) {
            form->starter = composite;
            return SNUG_OK;
        }
    }
    RETURN_IF_ERROR(flush(form));
    form->begun = true;
    form->starter = code;
    return SNUG_OK;
}

static snug_status decompose(struct form *form, uint32_t code) {
    const unsigned flags = snug_codepoint_flags(code);
    const bool compatible = form->compatible && flags & SNUG_CODEPOINT_NFKD;
    if (!compatible && !(flags & SNUG_CODEPOINT_NFD)) return take(form, code, flags);
    utf8proc_int32_t parts[DECOMPOSED_MOST];
    const utf8proc_option_t options = compatible ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char((utf8proc_int32_t)code, parts, DECOMPOSED_MOST, options, NULL);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        RETURN_IF_ERROR(take(form, (uint32_t)parts[i], snug_codepoint_flags((uint32_t)parts[i])));
    return SNUG_OK;
}

snug_status snug_unicode_form(snug_context *ctx, bool compatible, bool composed, const char *text, size_t length,
                              struct snug_text *out) {
    struct form form = {.ctx = ctx, .compatible = compatible, .composed = composed, .out = out};
    out->length = 0;
    snug_status status = snug_grow(ctx, (void **)&out->text, &out->capacity, length + 1, 1);
    for (size_t at = 0; at < length && status == SNUG_OK;) status = decompose(&form, snug_utf8_next(text, &at));
    if (status == SNUG_OK) status = order(&form);
    if (status == SNUG_OK) status = flush(&form);
    free(form.marks.codes);
    free(form.marks.sorted);
    return status;
}
