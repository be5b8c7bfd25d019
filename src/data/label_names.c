/* SPDX-License-Identifier: Apache-2.0 */
#include "data/label_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/numbers.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_forms.h"

/* ---- names in messages ------------------------------------------------------------------------------------------- */

/* A character of a quoted name. */
static size_t quote_character(char out[16], const char *name, size_t *at, bool ascii) {
    const size_t first = *at;
    const uint32_t code = snug_utf8_next(name, at);
    const unsigned flags = snug_codepoint_flags(code);
    const bool hidden = code != ' ' && flags & (SNUG_CODEPOINT_SPACE | SNUG_CODEPOINT_REMOVED);
    if (code == '"' || code == '\\') return (size_t)snprintf(out, 16, "\\%c", (char)code);
    if (hidden || (ascii && code >= 0x80))
        return (size_t)snprintf(out, 16, code > 0xffff ? "\\U%08x" : "\\u%04x", (unsigned)code);
    memcpy(out, name + first, *at - first);
    return *at - first;
}

const char *snug_name_quote(char out[SNUG_NAME_SHOWN], const char *name, bool ascii) {
    static const char cut[] = "…\"";
    char character[16];
    size_t used = 0;
    out[used++] = '"';
    for (size_t at = 0; name[at];) {
        const size_t length = quote_character(character, name, &at, ascii);
        if (used + length + sizeof cut > SNUG_NAME_SHOWN) {
            memcpy(out + used, cut, sizeof cut);
            return out;
        }
        memcpy(out + used, character, length);
        used += length;
    }
    memcpy(out + used, "\"", 2);
    return out;
}

/* Whether a name consists of letters, digits and characters of `others`, with no blank at its ends or beside another.
 */
static bool is_plain(const char *name, const char *others) {
    bool plain = *name && *name != ' ' && name[strlen(name) - 1] != ' ' && !strstr(name, "  ");
    for (size_t at = 0; plain && name[at];) {
        const uint32_t code = snug_utf8_next(name, &at);
        plain = snug_codepoint_flags(code) & (SNUG_CODEPOINT_LETTER | SNUG_CODEPOINT_NUMBER) ||
                (code < 0x80 && strchr(others, (int)code));
    }
    return plain && strlen(name) < SNUG_NAME_SHOWN;
}

static const char *show(char out[SNUG_NAME_SHOWN], const char *name, const char *others) {
    return is_plain(name, others) ? memcpy(out, name, strlen(name) + 1) : snug_name_quote(out, name, false);
}

const char *snug_name_show(char out[SNUG_NAME_SHOWN], const char *name) { return show(out, name, "_-.+/@"); }

const char *snug_column_show(char out[SNUG_NAME_SHOWN], const char *name) { return show(out, name, "_-.+/ :()#"); }

/* ---- names that look alike --------------------------------------------------------------------------------------- */

/* What names are compared without. */
enum { BLANKS = 1, CASE = 2, FORM = 4, ALL = BLANKS | CASE | FORM };

static snug_status put(snug_context *ctx, struct snug_text *out, uint32_t code) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&out->text, &out->capacity, out->length + 5, 1));
    out->length += snug_utf8_put(out->text + out->length, code);
    return SNUG_OK;
}

static snug_status put_folded(snug_context *ctx, const char *text, size_t length, int without, struct snug_text *out) {
    out->length = 0;
    for (size_t at = 0; at < length;) {
        uint32_t code = snug_utf8_next(text, &at), lower[2] = {code};
        const unsigned flags = snug_codepoint_flags(code);
        int count = 1;
        if (flags & SNUG_CODEPOINT_SPACE ? without & BLANKS : flags & SNUG_CODEPOINT_REMOVED ? without & FORM : 0)
            continue;
        if (without & CASE && flags & SNUG_CODEPOINT_LOWER) count = snug_codepoint_lower(code, lower);
        for (int i = 0; i < count; i++) RETURN_IF_ERROR(put(ctx, out, lower[i]));
    }
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&out->text, &out->capacity, out->length + 1, 1));
    out->text[out->length] = '\0';
    return SNUG_OK;
}

static snug_status fold(snug_context *ctx, const char *name, int without, char **out) {
    struct snug_text form = {0}, folded = {0};
    const bool forms = without & FORM;
    snug_status status = forms ? snug_unicode_form(ctx, true, true, name, strlen(name), &form) : SNUG_OK;
    if (status == SNUG_OK)
        status = put_folded(ctx, forms ? form.text : name, forms ? form.length : strlen(name), without, &folded);
    free(form.text);
    if (status != SNUG_OK) free(folded.text);
    *out = status == SNUG_OK ? folded.text : NULL;
    return status;
}

snug_status snug_name_fold(snug_context *ctx, const char *name, char **out) {
    char whole[SNUG_WHOLE_SIZE];
    RETURN_IF_ERROR(fold(ctx, name, ALL, out));
    if (!snug_whole_number(*out, whole)) return SNUG_OK;
    free(*out);
    return snug_strdup(ctx, whole, out);
}

static snug_status are_equal(snug_context *ctx, const char *a, const char *b, int without, bool *out) {
    char *folded[2] = {NULL, NULL};
    snug_status status = fold(ctx, a, without, &folded[0]);
    if (status == SNUG_OK) status = fold(ctx, b, without, &folded[1]);
    *out = status == SNUG_OK && strcmp(folded[0], folded[1]) == 0;
    free(folded[0]);
    free(folded[1]);
    return status;
}

snug_status snug_names_differ(snug_context *ctx, const char *a, const char *b, const char **out) {
    static const struct {
        int without;
        const char *text;
    } ways[] = {{BLANKS, "in blanks"},
                {CASE, "in upper and lower case"},
                {FORM, "in the form of their characters"},
                {ALL, "in blanks, case and the form of their characters"}};
    char *folded[2] = {NULL, NULL};
    bool equal = strcmp(a, b) == 0;
    *out = NULL;
    if (equal) return SNUG_OK;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !equal; i++) {
        RETURN_IF_ERROR(are_equal(ctx, a, b, ways[i].without, &equal));
        if (equal) *out = ways[i].text;
    }
    if (equal) return SNUG_OK;
    snug_status status = snug_name_fold(ctx, a, &folded[0]);
    if (status == SNUG_OK) status = snug_name_fold(ctx, b, &folded[1]);
    if (status == SNUG_OK && strcmp(folded[0], folded[1]) == 0) *out = "in how a number is written";
    free(folded[0]);
    free(folded[1]);
    return status;
}
