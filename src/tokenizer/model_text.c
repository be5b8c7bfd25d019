/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/model_text.h"

#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "tokenizer/unicode.h"

/* ---- values ---- */

static inline const char *skip_space(const char *at) {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++;
    return at;
}

/* The end of a string; NULL if it has none. */
static const char *pass_string(const char *at) {
    for (at++; *at != '"'; at++) {
        at += *at == '\\';
        if (!*at) return NULL;
    }
    return at + 1;
}

/* The end of any value; NULL if there is none. What is malformed between the brackets is not found. */
static const char *pass_value(const char *at) {
    size_t depth = 0;
    do {
        at = skip_space(at);
        const char c = *at;
        if (!c) return NULL;
        if (c == '"') {
            if (!(at = pass_string(at))) return NULL;
            continue;
        }
        depth += c == '{' || c == '[';
        depth -= depth && (c == '}' || c == ']');
        at += strchr("{}[],:", c) ? 1 : strcspn(at, "{}[],:\" \n\r\t");
    } while (depth);
    return at;
}

/* What follows a backslash, as UTF-8; NULL if it is a NUL, or half of a pair of surrogates. */
static const char *read_escape(const char *at, char **to) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t", digits[] = "0123456789abcdef";
    const char *escape = *at ? strchr(escapes, *at) : NULL;
    uint32_t code = 0;
    if (escape) {
        *(*to)++ = meant[escape - escapes];
        return at + 1;
    }
    if (*at++ != 'u') return NULL;
    for (int i = 0; i < 4; i++, at++) {
        const char *digit = *at ? strchr(digits, *at | (*at >= 'A' && *at <= 'F' ? 0x20 : 0)) : NULL;
        if (!digit) return NULL;
        code = code << 4 | (uint32_t)(digit - digits);
    }
    if (!code || (code >= 0xd800 && code < 0xe000)) return NULL;
    *to += snug_utf8_put(*to, code);
    return at;
}

/* Writes a string and a NUL to `to`, no longer than with its quotes, and its end to *to_end; NULL if it is not plain.
 */
static const char *read_string(const char *at, char *to, char **to_end) {
    if (*at++ != '"') return NULL;
    while (*at != '"') {
        if ((unsigned char)*at < ' ') return NULL;
        if (*at != '\\') {
            *to++ = *at++;
        } else if (!(at = read_escape(at + 1, &to))) {
            return NULL;
        }
    }
    *to = '\0';
    *to_end = to;
    return at + 1;
}

/* ---- the model's place ---- */

static bool is_key(const char *at, const char *end, const char *key) {
    return (size_t)(end - at) == strlen(key) && !memcmp(at, key, strlen(key));
}

static const char *walk(const char *at, bool model, struct snug_model_text *out);

/* The end of a member's value, which is remembered if it is wanted; NULL if it is there twice. */
static const char *take_member(const char *key, const char *key_end, const char *at, bool model,
                               struct snug_model_text *out) {
    struct snug_text_span *found = !model                               ? NULL
                                   : is_key(key, key_end, "\"vocab\"")  ? &out->vocab
                                   : is_key(key, key_end, "\"merges\"") ? &out->merges
                                                                        : NULL;
    if (!model && is_key(key, key_end, "\"model\"") && *at == '{') return out->vocab.start ? NULL : walk(at, true, out);
    const char *end = pass_value(at);
    if (!found) return end;
    if (found->start) return NULL;
    *found = (struct snug_text_span){at, end};
    return end;
}

/* The end of an object, of tokenizer.json or its model; NULL if it is malformed or has a wanted member twice. */
static const char *walk(const char *at, bool model, struct snug_model_text *out) {
    do {
        const char *key = skip_space(at + 1);
        at = *key == '"' ? pass_string(key) : NULL;
        if (!at) return NULL;
        const char *key_end = at;
        at = skip_space(at);
        if (*at++ != ':') return NULL;
        at = take_member(key, key_end, skip_space(at), model, out);
        if (!at) return NULL;
        at = skip_space(at);
    } while (*at == ',');
    return *at == '}' ? at + 1 : NULL;
}

/* ---- merges: ["a b", …] or [["a", "b"], …] ---- */

/* Reads a merge into buffer: its parts are each followed by a NUL or a space. NULL if it is not plain. */
static const char *read_merge(const char *at, char *buffer, size_t lengths[2], const char **right) {
    char *end, *space;
    if (*at == '"') {
        at = read_string(at, buffer, &end);
        space = at ? memchr(buffer, ' ', (size_t)(end - buffer)) : NULL;
        if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1))) return NULL;
    } else {
        if (*at != '[' || !(at = read_string(skip_space(at + 1), buffer, &space))) return NULL;
        at = skip_space(at);
        if (*at != ',' || !(at = read_string(skip_space(at + 1), space + 1, &end))) return NULL;
        at = skip_space(at);
        if (*at++ != ']') return NULL;
    }
    lengths[0] = (size_t)(space - buffer);
    lengths[1] = (size_t)(end - space - 1);
    *right = space + 1;
    return at;
}

/* Adds the merges to model, or without one counts them; SNUG_END: one is not plain. buffer is as long as the list. */
static snug_status each_merge(snug_context *ctx, const char *path, const char *at, char *buffer, struct snug_bpe *model,
                              size_t *count) {
    size_t lengths[2];
    const char *right;
    *count = 0;
    if (*skip_space(at + 1) == ']') return SNUG_OK;
    do {
        at = read_merge(skip_space(at + 1), buffer, lengths, &right);
        if (!at) return SNUG_END;
        if (model) RETURN_IF_ERROR(snug_bpe_add(ctx, model, path, buffer, lengths[0], right, lengths[1]));
        at = skip_space(at);
        ++*count;
    } while (*at == ',');
    return *at == ']' ? SNUG_OK : SNUG_END;
}

/* Leaves out merges that are not plain. */
static void check_merges(struct snug_model_text *out) {
    const size_t size = (size_t)(out->merges.end - out->merges.start);
    char *buffer = out->merges.start && *out->merges.start == '[' ? malloc(size + 1) : NULL;
    const bool plain = buffer && snug_utf8_invalid(out->merges.start, size) == size &&
                       each_merge(NULL, NULL, out->merges.start, buffer, NULL, &out->merge_count) == SNUG_OK;
    free(buffer);
    if (plain) return;
    out->merges = (struct snug_text_span){0};
    out->merge_count = 0;
}

bool snug_model_text_find(const char *text, struct snug_model_text *out) {
    *out = (struct snug_model_text){0};
    text = skip_space(text);
    if (*text != '{' || !walk(text, false, out) || !out->vocab.start || *out->vocab.start != '{') return false;
    check_merges(out);
    return true;
}

struct snug_text_span snug_model_text_object(const char *text, size_t size) {
    const char *start = skip_space(text), *end = *start == '{' ? pass_value(start) : NULL;
    return end && skip_space(end) == text + size ? (struct snug_text_span){start, end} : (struct snug_text_span){0};
}

snug_status snug_model_text_rest(snug_context *ctx, const char *text, size_t size, const struct snug_model_text *model,
                                 char **rest, size_t *rest_size) {
    const bool first = !model->merges.start || model->vocab.start < model->merges.start;
    const struct snug_text_span cuts[2] = {first ? model->vocab : model->merges, first ? model->merges : model->vocab};
    RETURN_IF_ERROR(snug_alloc(ctx, size + 1, 1, (void **)rest));
    char *to = *rest;
    const char *from = text;
    for (int i = 0; i < 2 && cuts[i].start; i++) {
        memcpy(to, from, (size_t)(cuts[i].start - from) + 1); /* with the bracket */
        to += cuts[i].start - from + 1;
        from = cuts[i].end - 1;
    }
    memcpy(to, from, (size_t)(text + size - from));
    *rest_size = (size_t)(to + (text + size - from) - *rest);
    return SNUG_OK;
}

snug_status snug_model_text_merges(snug_context *ctx, const char *path, const struct snug_model_text *model,
                                   struct snug_bpe *out) {
    char *buffer;
    size_t count;
    RETURN_IF_ERROR(snug_bpe_reserve(ctx, out, model->merge_count));
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(model->merges.end - model->merges.start) + 1, 1, (void **)&buffer));
    const snug_status status = each_merge(ctx, path, model->merges.start, buffer, out, &count);
    free(buffer);
    return status;
}

/* ---- the vocabulary ---- */

struct entry {
    char *text;
    uint32_t length;
    int32_t id;
};

struct entries {
    struct entry *items;
    size_t count, capacity;
    int64_t size; /* largest id + 1 */
};

/* An id, with at most 9 digits; NULL if it is none. */
static const char *read_id(const char *at, int32_t *id) {
    const char *start = at;
    for (*id = 0; *at >= '0' && *at <= '9' && at - start < 9; at++) *id = *id * 10 + (*at - '0');
    return at == start || (*start == '0' && at - start > 1) ? NULL : at;
}

/* Reads texts into `to`; SNUG_END: not plain. */
static snug_status read_entries(snug_context *ctx, struct snug_text_span vocab, char *to, struct entries *out) {
    const char *at = vocab.start;
    do {
        struct entry entry = {.text = to};
        at = read_string(skip_space(at + 1), to, &to);
        if (!at || *(at = skip_space(at)) != ':' || !(at = read_id(skip_space(at + 1), &entry.id))) return SNUG_END;
        entry.length = (uint32_t)(to++ - entry.text);
        RETURN_IF_ERROR(snug_grow(ctx, (void **)&out->items, &out->capacity, out->count + 1, sizeof *out->items));
        out->items[out->count++] = entry;
        if (entry.id >= out->size) out->size = entry.id + 1;
        at = skip_space(at);
    } while (*at == ',');
    return *at == '}' && at + 1 == vocab.end ? SNUG_OK : SNUG_END;
}

static snug_status add_entries(snug_context *ctx, const char *path, const struct entries *entries,
                               struct snug_vocabulary *out) {
    RETURN_IF_ERROR(snug_vocabulary_reserve(ctx, out, path, (int64_t)entries->count, entries->size, 0));
    for (size_t i = 0; i < entries->count; i++) {
        const struct entry *entry = &entries->items[i];
        RETURN_IF_ERROR(snug_vocabulary_add(ctx, out, path, entry->text, entry->length, entry->id));
    }
    return SNUG_OK;
}

snug_status snug_model_text_vocabulary(snug_context *ctx, const char *path, struct snug_text_span vocab,
                                       struct snug_vocabulary *out, bool *done) {
    struct entries entries = {0};
    const size_t size = (size_t)(vocab.end - vocab.start);
    *done = false;
    if (!size || size >= UINT32_MAX || snug_utf8_invalid(vocab.start, size) < size) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(ctx, size, 1, (void **)&out->texts));
    snug_status status = read_entries(ctx, vocab, out->texts, &entries);
    if (status == SNUG_OK) status = add_entries(ctx, path, &entries, out);
    free(entries.items);
    *done = status == SNUG_OK;
    if (*done) return SNUG_OK;
    snug_vocabulary_free(out);
    if (status == SNUG_E_MEMORY) return status;
    snug_clear_error(ctx);
    return SNUG_OK;
}
