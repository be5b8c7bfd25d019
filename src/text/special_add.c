/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the tokens of text/special_tokens.h, in the order of transformers' TokenizersBackend.__init__. */
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "text/special_tokens.h"

#define NONE (-1)

/* The tokens to add: the last one of each content counts. */
struct adding {
    snug_context *ctx;
    const struct snug_special_sources *sources;
    struct snug_tokenizer *tokenizer;
    struct snug_hash_map known; /* contents of the tokens by id, and of tokenizer.json if all of it is used */
    struct snug_hash_map named; /* contents of the tokens that have a name */
    struct snug_hash_map more;  /* contents of the others, with the number of their chain */
    struct chained {
        const struct snug_token_spec *token;
        int32_t before; /* of the same content; NONE: the first */
    } * chained;
    int32_t *last; /* of each chain: its last token */
    size_t count, capacity, chains, chain_capacity;
};

static bool is_normalized(const struct snug_token_spec *token) {
    return token->normalized_given ? token->normalized : !token->special;
}

/* Whether two tokens of the same content are equal in Python. */
static bool are_equal(const struct snug_token_spec *a, const struct snug_token_spec *b) {
    if (a->text || b->text) return a->text && b->text;
    return a->special == b->special && a->single_word == b->single_word && a->lstrip == b->lstrip &&
           a->rstrip == b->rstrip && is_normalized(a) == is_normalized(b);
}

static bool is_in(const struct snug_hash_map *map, const char *content) {
    return snug_hash_map_find(map, "", 0, content, strlen(content)) >= 0;
}

static snug_status put_in(snug_context *ctx, struct snug_hash_map *map, const char *content) {
    return snug_hash_map_add(ctx, map, content, strlen(content), 0, &(int32_t){0});
}

/* A named token is special, whatever a file says. */
static snug_status add(struct adding *a, const struct snug_token_spec *spec) {
    char *content = (char *)spec->content; /* is copied */
    struct snug_token_spec token = *spec;
    token.special |= is_in(&a->named, content);
    return snug_added_tokens_add(a->ctx, &a->tokenizer->added, &a->tokenizer->vocabulary,
                                 &(struct snug_added_token){.content = content,
                                                            .single_word = token.single_word,
                                                            .lstrip = token.lstrip,
                                                            .rstrip = token.rstrip,
                                                            .special = token.special,
                                                            .normalized = is_normalized(&token)});
}

/* Appends a token, unless a token by id has its content, or an equal one was appended. */
static snug_status append(struct adding *a, const struct snug_token_spec *token) {
    if (!token->content || is_in(&a->known, token->content)) return SNUG_OK;
    int32_t chain;
    RETURN_IF_ERROR(
        snug_hash_map_add(a->ctx, &a->more, token->content, strlen(token->content), (int32_t)a->chains, &chain));
    if (chain < 0) {
        RETURN_IF_ERROR(snug_grow(a->ctx, (void **)&a->last, &a->chain_capacity, a->chains + 1, sizeof *a->last));
        chain = (int32_t)a->chains++;
        a->last[chain] = NONE;
    }
    for (int32_t i = a->last[chain]; i != NONE; i = a->chained[i].before)
        if (are_equal(a->chained[i].token, token)) return SNUG_OK;
    RETURN_IF_ERROR(snug_grow(a->ctx, (void **)&a->chained, &a->capacity, a->count + 1, sizeof *a->chained));
    a->chained[a->count] = (struct chained){token, a->last[chain]};
    a->last[chain] = (int32_t)a->count++;
    return SNUG_OK;
}

static snug_status name_all(struct adding *a, const struct snug_token_spec *tokens, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (tokens[i].content) RETURN_IF_ERROR(put_in(a->ctx, &a->named, tokens[i].content));
    return SNUG_OK;
}

static snug_status know_all(struct adding *a, const struct snug_token_list *tokens) {
    for (size_t i = 0; i < tokens->count; i++) RETURN_IF_ERROR(put_in(a->ctx, &a->known, tokens->items[i].content));
    return SNUG_OK;
}

static snug_status append_all(struct adding *a, const struct snug_token_spec *tokens, size_t count) {
    for (size_t i = 0; i < count; i++) RETURN_IF_ERROR(append(a, &tokens[i]));
    return SNUG_OK;
}

static snug_status add_all(struct adding *a) {
    const struct snug_special_sources *sources = a->sources;
    struct snug_tokenizer *tokenizer = a->tokenizer;
    snug_added_tokens_begin(&tokenizer->added, &tokenizer->vocabulary);
    for (size_t i = 0; sources->own && i < sources->json_tokens.count; i++)
        RETURN_IF_ERROR(add(a, &sources->json_tokens.items[i]));
    RETURN_IF_ERROR(name_all(a, sources->named, SNUG_NAMED_COUNT));
    RETURN_IF_ERROR(name_all(a, sources->further.items, sources->further.count));
    if (sources->own) RETURN_IF_ERROR(know_all(a, &sources->json_tokens));
    RETURN_IF_ERROR(know_all(a, &sources->listed));
    RETURN_IF_ERROR(append_all(a, sources->named, SNUG_NAMED_COUNT));
    RETURN_IF_ERROR(append_all(a, sources->further.items, sources->further.count));
    RETURN_IF_ERROR(append_all(a, sources->extra.items, sources->extra.count));
    snug_added_tokens_begin(&tokenizer->added, &tokenizer->vocabulary);
    for (size_t i = 0; i < sources->listed.count; i++) RETURN_IF_ERROR(add(a, &sources->listed.items[i]));
    for (size_t i = 0; i < a->count; i++) RETURN_IF_ERROR(add(a, a->chained[i].token));
    return snug_added_tokens_finish(a->ctx, &tokenizer->added, &tokenizer->normalizer);
}

static void find_special(const struct snug_special_sources *sources, struct snug_tokenizer *tokenizer) {
    const struct snug_token_spec *named = sources->named;
    const int32_t unk = tokenizer->kind == SNUG_MODEL_WORDPIECE
                            ? tokenizer->wordpiece.unk
                            : snug_special_tokens_id(tokenizer, named[SNUG_NAMED_UNK].content);
    tokenizer->special =
        (struct snug_special_ids){.cls = snug_special_tokens_id(tokenizer, named[SNUG_NAMED_CLS].content),
                                  .sep = snug_special_tokens_id(tokenizer, named[SNUG_NAMED_SEP].content),
                                  .pad = snug_special_tokens_id(tokenizer, named[SNUG_NAMED_PAD].content),
                                  .unk = unk,
                                  .mask = snug_special_tokens_id(tokenizer, named[SNUG_NAMED_MASK].content)};
}

snug_status snug_special_tokens_add(snug_context *ctx, const struct snug_special_sources *sources,
                                    struct snug_tokenizer *tokenizer) {
    struct adding a = {.ctx = ctx, .sources = sources, .tokenizer = tokenizer};
    RETURN_IF_ERROR(snug_json_bool(ctx, sources->paths[SNUG_TOKENIZER_CONFIG], sources->config, "split_special_tokens",
                                   false, &tokenizer->added.ignore_special));
    const snug_status status = add_all(&a);
    snug_hash_map_free(&a.known);
    snug_hash_map_free(&a.named);
    snug_hash_map_free(&a.more);
    free(a.chained);
    free(a.last);
    if (status == SNUG_OK) find_special(sources, tokenizer);
    return status;
}

int32_t snug_special_tokens_id(const struct snug_tokenizer *tokenizer, const char *content) {
    if (!content) return -1;
    const struct snug_added_token *token = snug_added_tokens_find(&tokenizer->added, content);
    return token ? token->id : -1;
}
