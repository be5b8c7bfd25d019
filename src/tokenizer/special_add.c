/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the tokens of tokenizer/special_tokens.h, in the order of transformers' TokenizersBackend.__init__. */
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "tokenizer/special_tokens.h"

/* The tokens to add after those by id: the last one of each content counts. */
struct adding {
    snug_context *ctx;
    const struct snug_special_sources *sources;
    struct snug_tokenizer *tokenizer;
    json_t *known; /* a set: contents of the tokens by id, and of tokenizer.json if all of it is used */
    json_t *named; /* a set: contents of the tokens that have a name */
    json_t *equal; /* a set: what are_equal tokens have in common, of those to add */
    struct snug_token_spec *more;
    size_t count, capacity;
};

static bool is_normalized(const struct snug_token_spec *token) {
    return token->normalized_given ? token->normalized : !token->special;
}

static snug_status put_in(struct adding *a, json_t *set, const char *text) {
    if (text && json_object_set_new(set, text, json_true()))
        return snug_fail(a->ctx, SNUG_E_MEMORY, "out of memory while adding special tokens");
    return SNUG_OK;
}

static snug_status parse(struct adding *a, const json_t *value, struct snug_token_spec *out) {
    return snug_token_parse(a->ctx, "", "", value, out); /* was checked when it was collected */
}

/* A named token is special, whatever a file says. */
static snug_status add(struct adding *a, const struct snug_token_spec *spec) {
    char *content = (char *)spec->content; /* is copied */
    struct snug_token_spec token = *spec;
    token.special |= json_object_get(a->named, content) != NULL;
    return snug_added_tokens_add(a->ctx, &a->tokenizer->added, &a->tokenizer->vocabulary,
                                 &(struct snug_added_token){.content = content,
                                                            .single_word = token.single_word,
                                                            .lstrip = token.lstrip,
                                                            .rstrip = token.rstrip,
                                                            .special = token.special,
                                                            .normalized = is_normalized(&token)});
}

static snug_status add_json(struct adding *a, const json_t *value) {
    struct snug_token_spec token;
    RETURN_IF_ERROR(parse(a, value, &token));
    return add(a, &token);
}

/* Appends a token, unless a token by id has its content, or one that is equal in Python was appended. */
static snug_status append(struct adding *a, const json_t *value) {
    struct snug_token_spec token;
    char *key;
    RETURN_IF_ERROR(parse(a, value, &token));
    if (!token.content || json_object_get(a->known, token.content)) return SNUG_OK;
    const int flags = token.text ? 1 << 5
                                 : token.special | token.single_word << 1 | token.lstrip << 2 | token.rstrip << 3 |
                                       is_normalized(&token) << 4;
    RETURN_IF_ERROR(snug_format(a->ctx, &key, "%d %s", flags, token.content));
    const bool before = json_object_get(a->equal, key);
    const snug_status status = before ? SNUG_OK : put_in(a, a->equal, key);
    free(key);
    if (before || status != SNUG_OK) return status;
    RETURN_IF_ERROR(snug_grow(a->ctx, (void **)&a->more, &a->capacity, a->count + 1, sizeof *a->more));
    a->more[a->count++] = token;
    return SNUG_OK;
}

/* The tokens by id, by number. */
static int by_number(const void *x, const void *y) {
    const int64_t a = strtoll(*(const char *const *)x, NULL, 10), b = strtoll(*(const char *const *)y, NULL, 10);
    return a < b ? -1 : a > b;
}

static snug_status add_listed(struct adding *a, const json_t *listed) {
    const char **ids, *id;
    size_t count = 0;
    json_t *token;
    RETURN_IF_ERROR(snug_alloc(a->ctx, json_object_size(listed) + 1, sizeof *ids, (void **)&ids));
    json_object_foreach((json_t *)listed, id, token) ids[count++] = id;
    qsort(ids, count, sizeof *ids, by_number);
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < count && status == SNUG_OK; i++) status = add_json(a, json_object_get(listed, ids[i]));
    free(ids);
    return status;
}

static snug_status add_all(struct adding *a) {
    const struct snug_special_sources *sources = a->sources;
    struct snug_tokenizer *tokenizer = a->tokenizer;
    const json_t *json_tokens = sources->own ? json_object_get(sources->json, "added_tokens") : NULL;
    json_t *const by_name[] = {sources->named, sources->further}, *token;
    const char *key;
    size_t i;
    snug_added_tokens_begin(&tokenizer->added, &tokenizer->vocabulary);
    json_array_foreach(json_tokens, i, token) RETURN_IF_ERROR(add_json(a, token));
    for (int k = 0; k < 2; k++)
        json_object_foreach(by_name[k], key, token) RETURN_IF_ERROR(put_in(a, a->named, snug_token_content(token)));
    json_array_foreach(json_tokens, i, token) RETURN_IF_ERROR(put_in(a, a->known, snug_token_content(token)));
    json_object_foreach(sources->listed, key, token) RETURN_IF_ERROR(put_in(a, a->known, snug_token_content(token)));
    for (int k = 0; k < 2; k++) json_object_foreach(by_name[k], key, token) RETURN_IF_ERROR(append(a, token));
    json_array_foreach(sources->extra, i, token) RETURN_IF_ERROR(append(a, token));
    snug_added_tokens_begin(&tokenizer->added, &tokenizer->vocabulary);
    RETURN_IF_ERROR(add_listed(a, sources->listed));
    for (size_t k = 0; k < a->count; k++) RETURN_IF_ERROR(add(a, &a->more[k]));
    return snug_added_tokens_finish(a->ctx, &tokenizer->added, &tokenizer->normalizer);
}

int32_t snug_special_tokens_id(const struct snug_special_sources *sources, const struct snug_tokenizer *tokenizer,
                               const char *name) {
    const char *content = snug_token_content(json_object_get(sources->named, name));
    const struct snug_added_token *token = content ? snug_added_tokens_find(&tokenizer->added, content) : NULL;
    return token ? token->id : -1;
}

snug_status snug_special_tokens_add(snug_context *ctx, const struct snug_special_sources *sources,
                                    struct snug_tokenizer *tokenizer) {
    struct adding a = {.ctx = ctx, .sources = sources, .tokenizer = tokenizer};
    RETURN_IF_ERROR(snug_json_bool(ctx, sources->paths[SNUG_TOKENIZER_CONFIG], sources->config, "split_special_tokens",
                                   false, &tokenizer->added.ignore_special));
    a.known = json_object();
    a.named = json_object();
    a.equal = json_object();
    const snug_status status = add_all(&a);
    json_decref(a.known);
    json_decref(a.named);
    json_decref(a.equal);
    free(a.more);
    RETURN_IF_ERROR(status);
    tokenizer->special = (struct snug_special_ids){.cls = snug_special_tokens_id(sources, tokenizer, "cls_token"),
                                                   .sep = snug_special_tokens_id(sources, tokenizer, "sep_token"),
                                                   .pad = snug_special_tokens_id(sources, tokenizer, "pad_token"),
                                                   .unk = snug_special_tokens_id(sources, tokenizer, "unk_token"),
                                                   .mask = snug_special_tokens_id(sources, tokenizer, "mask_token"),
                                                   .bos = snug_special_tokens_id(sources, tokenizer, "bos_token"),
                                                   .eos = snug_special_tokens_id(sources, tokenizer, "eos_token")};
    if (tokenizer->kind == SNUG_MODEL_WORDPIECE) tokenizer->special.unk = tokenizer->wordpiece.unk;
    return SNUG_OK;
}
