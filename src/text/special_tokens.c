/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformers 5 (PreTrainedTokenizerBase._from_pretrained, TokenizersBackend.__init__) reads the places where its
 * versions have written tokens, one after the other:
 * - tokenizer_config.json: named tokens (cls_token, …), tokens of other names that end in _token, lists of further
 *   special tokens (additional_special_tokens, now extra_special_tokens, which may be an object: then it has names),
 *   and since 4.34 added_tokens_decoder, by id;
 * - only if there is no added_tokens_decoder: special_tokens_map.json, which replaces what tokenizer_config.json says;
 *   added_tokens.json, whose tokens are normalized unless they are named, or listed as extra_special_tokens, so far;
 *   and the added_tokens of tokenizer.json.
 * A named token then gets the flags that the token of the same content has in a list by id.
 */
#include "text/special_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "io/json.h"

static const char *const named_keys[SNUG_NAMED_COUNT] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                         "pad_token", "cls_token", "mask_token"};

/* Tokens by name: tokens.items[i] has the name names.entries[i]. */
struct name_list {
    struct snug_hash_map names;
    struct snug_token_list tokens;
};

/* A list of special tokens that a file may have; it may be empty. */
struct given_list {
    bool given;
    struct snug_token_list tokens;
};

struct collecting {
    snug_context *ctx;
    struct snug_special_sources *sources;
    bool given[SNUG_NAMED_COUNT]; /* named by a file, perhaps as null: the class's default is none */
    struct snug_token_spec by_content[SNUG_NAMED_COUNT]; /* the last token by id with the content of a named one */
    struct given_list extra, additional;
    struct name_list first, further; /* of other names: objects and those of special_tokens_map.json; the others */
    struct snug_hash_map special;    /* contents of the special tokens that added_tokens.json is compared with */
    json_t *places;                  /* of the list by id: the index of each id */
};

/* b is there. */
static bool same(const char *a, const char *b) { return a && !strcmp(a, b); }

static snug_status append(snug_context *ctx, struct snug_token_list *list, const struct snug_token_spec *token) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items));
    list->items[list->count++] = *token;
    return SNUG_OK;
}

/* A token given as a string, which is special, or as an object (an AddedToken). null: no token. */
static snug_status parse_token(snug_context *ctx, const char *path, const char *key, const json_t *value,
                               struct snug_token_spec *out) {
    *out = (struct snug_token_spec){0};
    if (json_is_null(value)) return SNUG_OK;
    if (json_is_string(value)) {
        out->content = json_string_value(value);
        out->special = out->text = true;
        return SNUG_OK;
    }
    if (!json_is_object(value) || !json_is_string(json_object_get(value, "content")))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" must be a token: a string, or an object with \"content\"", path,
                         key);
    out->content = json_string_value(json_object_get(value, "content"));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, value, "special", false, &out->special));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, value, "single_word", false, &out->single_word));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, value, "lstrip", false, &out->lstrip));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, value, "rstrip", false, &out->rstrip));
    out->normalized_given = json_is_boolean(json_object_get(value, "normalized"));
    return snug_json_bool(ctx, path, value, "normalized", false, &out->normalized);
}

/* ---- named tokens and lists ---------------------------------------------------------------------------------- */

static int named_index(const char *key) {
    for (int i = 0; i < SNUG_NAMED_COUNT; i++)
        if (!strcmp(key, named_keys[i])) return i;
    return -1;
}

static bool ends_like_a_token(const char *key) {
    const size_t length = strlen(key);
    return length >= 6 && !strcmp(key + length - 6, "_token");
}

static bool is_token(const json_t *value) {
    return json_is_string(value) || json_is_string(json_object_get(value, "content"));
}

/* Names a token, or replaces the one of that name. */
static snug_status name_token(snug_context *ctx, struct name_list *list, const char *key,
                              const struct snug_token_spec *token) {
    int32_t before;
    RETURN_IF_ERROR(snug_hash_map_add(ctx, &list->names, key, strlen(key), (int32_t)list->tokens.count, &before));
    if (before < 0) return append(ctx, &list->tokens, token);
    list->tokens.items[before] = *token;
    return SNUG_OK;
}

/* The tokens of an object by name. */
static snug_status name_tokens(struct collecting *c, const char *path, const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        struct snug_token_spec token;
        RETURN_IF_ERROR(parse_token(c->ctx, path, key, value, &token));
        if (token.content) RETURN_IF_ERROR(name_token(c->ctx, &c->further, key, &token));
    }
    return SNUG_OK;
}

/* Appends a list's tokens; equal ones are dropped later. of_map: of special_tokens_map.json, whose objects are special.
 */
static snug_status add_list(struct collecting *c, const char *path, const char *key, const json_t *value, bool of_map,
                            struct given_list *out) {
    if (!json_is_array(value) && !json_is_null(value))
        return snug_fail(c->ctx, SNUG_E_INPUT, "%s: \"%s\" must be a list of tokens", path, key);
    out->given = true;
    for (size_t i = 0; i < json_array_size(value); i++) {
        struct snug_token_spec token;
        RETURN_IF_ERROR(parse_token(c->ctx, path, key, json_array_get(value, i), &token));
        if (!token.content) continue;
        token.special |= of_map;
        token.unseen = !token.text && !of_map;
        RETURN_IF_ERROR(append(c->ctx, &out->tokens, &token));
    }
    return SNUG_OK;
}

/* "extra_special_tokens" of either file: a list, or an object of tokens by name. */
static snug_status add_extra(struct collecting *c, const char *path, const json_t *value, bool of_map) {
    static const char key[] = "extra_special_tokens";
    if (!json_is_object(value)) return add_list(c, path, key, value, of_map, &c->extra);
    c->extra.given = false;
    c->extra.tokens.count = 0;
    return name_tokens(c, path, value);
}

static snug_status collect_config(struct collecting *c) {
    const json_t *config = c->sources->config, *extra = json_object_get(config, "extra_special_tokens"),
                 *additional = json_object_get(config, "additional_special_tokens");
    const char *path = c->sources->paths[SNUG_TOKENIZER_CONFIG], *key;
    json_t *value;
    struct snug_token_spec token;
    json_object_foreach((json_t *)config, key, value) {
        const int named = named_index(key);
        if (named < 0 && !(ends_like_a_token(key) && is_token(value))) continue;
        RETURN_IF_ERROR(parse_token(c->ctx, path, key, value, &token));
        token.unseen = !token.text;
        if (named < 0) {
            RETURN_IF_ERROR(name_token(c->ctx, token.text ? &c->further : &c->first, key, &token));
            continue;
        }
        c->given[named] = true;
        c->sources->named[named] = token;
    }
    if (additional && !json_array_size(extra) && !json_object_size(extra))
        return add_list(c, path, "additional_special_tokens", additional, false, &c->extra);
    if (additional) RETURN_IF_ERROR(add_list(c, path, "additional_special_tokens", additional, false, &c->additional));
    return extra ? add_extra(c, path, extra, false) : SNUG_OK;
}

static snug_status collect_map(struct collecting *c) {
    const char *path = c->sources->paths[SNUG_TOKENIZER_SPECIAL_MAP], *key;
    json_t *value;
    json_object_foreach(c->sources->map, key, value) {
        const int named = named_index(key);
        struct snug_token_spec token;
        if (!strcmp(key, "extra_special_tokens")) {
            RETURN_IF_ERROR(add_extra(c, path, value, true));
        } else if (!strcmp(key, "additional_special_tokens")) {
            c->additional.tokens.count = 0;
            RETURN_IF_ERROR(add_list(c, path, key, value, true, &c->additional));
        } else if (named >= 0 || (ends_like_a_token(key) && is_token(value))) {
            RETURN_IF_ERROR(parse_token(c->ctx, path, key, value, &token));
            token.special = true;
            if (named < 0) {
                RETURN_IF_ERROR(name_token(c->ctx, &c->first, key, &token));
                continue;
            }
            c->given[named] = true;
            c->sources->named[named] = token;
        }
    }
    return SNUG_OK;
}

/* ---- tokens by id -------------------------------------------------------------------------------------------- */

static int by_order(const void *a, const void *b) {
    const struct snug_token_spec *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Adds a token to the list, or replaces the one with the same id. */
static snug_status list_token(struct collecting *c, const struct snug_token_spec *token) {
    struct snug_token_list *list = &c->sources->listed;
    char id[24];
    snprintf(id, sizeof id, "%lld", (long long)token->order);
    const json_t *place = json_object_get(c->places, id);
    for (int i = 0; i < SNUG_NAMED_COUNT; i++)
        if (c->given[i] && same(c->sources->named[i].content, token->content)) c->by_content[i] = *token;
    if (place) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what has a place is in the list */
        list->items[json_integer_value(place)] = *token;
        return SNUG_OK;
    }
    /* may be untested: an allocation that fails */
    if (json_object_set_new(c->places, id, json_integer((json_int_t)list->count)))
        return snug_fail(c->ctx, SNUG_E_MEMORY, "out of memory while listing token \"%s\"", token->content);
    return append(c->ctx, list, token);
}

/* added_tokens_decoder of tokenizer_config.json: {"id": token}. */
static snug_status list_decoder(struct collecting *c, const json_t *decoder) {
    const char *path = c->sources->paths[SNUG_TOKENIZER_CONFIG], *key;
    json_t *value;
    if (!json_is_object(decoder))
        return snug_fail(c->ctx, SNUG_E_INPUT, "%s: \"added_tokens_decoder\" must be an object of tokens by id", path);
    json_object_foreach((json_t *)decoder, key, value) {
        struct snug_token_spec token;
        char *end;
        RETURN_IF_ERROR(parse_token(c->ctx, path, key, value, &token));
        token.order = strtoll(key, &end, 10);
        if (end == key || *end || !token.content)
            return snug_fail(c->ctx, SNUG_E_INPUT, "%s: \"%s\" in \"added_tokens_decoder\" is not the id of a token",
                             path, key);
        RETURN_IF_ERROR(list_token(c, &token));
    }
    return SNUG_OK;
}

static snug_status note_special(struct collecting *c, const struct snug_token_spec *tokens, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *content = tokens[i].content;
        if (!content || tokens[i].unseen) continue;
        RETURN_IF_ERROR(snug_hash_map_add(c->ctx, &c->special, content, strlen(content), 0, &(int32_t){0}));
    }
    return SNUG_OK;
}

/* added_tokens.json: {"token": id}. */
static snug_status list_added(struct collecting *c) {
    const char *path = c->sources->paths[SNUG_TOKENIZER_ADDED], *key;
    json_t *value;
    RETURN_IF_ERROR(note_special(c, c->sources->named, SNUG_NAMED_COUNT)); /* those of files so far */
    RETURN_IF_ERROR(note_special(c, c->extra.tokens.items, c->extra.tokens.count));
    json_object_foreach(c->sources->added, key, value) {
        if (!json_is_integer(value))
            return snug_fail(c->ctx, SNUG_E_INPUT, "%s: the id of token \"%s\" is not a number", path, key);
        const bool special = snug_hash_map_find(&c->special, "", 0, key, strlen(key)) >= 0;
        const struct snug_token_spec token = {.content = key,
                                              .special = special,
                                              .normalized = !special,
                                              .normalized_given = true,
                                              .order = json_integer_value(value)};
        RETURN_IF_ERROR(list_token(c, &token));
    }
    return SNUG_OK;
}

/* added_tokens of tokenizer.json: a list of tokens with ids. */
static snug_status read_json(struct collecting *c) {
    const char *path = c->sources->paths[SNUG_TOKENIZER_JSON];
    const json_t *tokens = json_object_get(c->sources->json, "added_tokens");
    if (tokens && !json_is_array(tokens) && !json_is_null(tokens))
        return snug_fail(c->ctx, SNUG_E_INPUT, "%s: \"added_tokens\" must be a list", path);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        struct snug_token_spec token;
        const json_t *value = json_array_get(tokens, i);
        RETURN_IF_ERROR(parse_token(c->ctx, path, "added_tokens", value, &token));
        if (!token.content || !json_is_integer(json_object_get(value, "id")))
            return snug_fail(c->ctx, SNUG_E_INPUT, "%s: number %zu of \"added_tokens\" has no content or no id", path,
                             i + 1);
        token.order = json_integer_value(json_object_get(value, "id"));
        RETURN_IF_ERROR(append(c->ctx, &c->sources->json_tokens, &token));
    }
    return SNUG_OK;
}

static snug_status list_by_id(struct collecting *c) {
    const struct snug_token_list *json = &c->sources->json_tokens;
    const json_t *decoder = json_object_get(c->sources->config, "added_tokens_decoder");
    if (!decoder || c->sources->own) RETURN_IF_ERROR(read_json(c));
    if (decoder) return list_decoder(c, decoder);
    RETURN_IF_ERROR(collect_map(c));
    RETURN_IF_ERROR(list_added(c));
    for (size_t i = 0; i < json->count; i++) RETURN_IF_ERROR(list_token(c, &json->items[i]));
    return SNUG_OK;
}

/* ---- what the class makes of them ------------------------------------------------------------------------------ */

static snug_status name_defaults(struct collecting *c) {
    struct snug_special_sources *sources = c->sources;
    const struct snug_token_defaults *defaults = sources->defaults;
    for (int i = 0; i < SNUG_NAMED_COUNT; i++) {
        struct snug_token_spec *token = &sources->named[i];
        if (c->by_content[i].content) *token = c->by_content[i];
        if (defaults && !c->given[i])
            *token = (struct snug_token_spec){.content = defaults->named[i], .special = true, .text = true};
        if (!defaults || !token->text) continue;
        const bool strips = defaults->mask_strips && i == SNUG_NAMED_MASK;
        if (!defaults->as_objects && !strips) continue;
        *token =
            (struct snug_token_spec){.content = token->content, .lstrip = strips, .special = !defaults->as_objects};
    }
    /* The only use of tokenizer.json's padding: it names the padding token if nothing else does. */
    const char *path = sources->paths[SNUG_TOKENIZER_JSON];
    const json_t *pad = json_object_get(json_object_get(sources->json, "padding"), "pad_token");
    if (defaults || c->given[SNUG_NAMED_PAD] || !json_is_string(pad)) return SNUG_OK;
    return parse_token(c->ctx, path, "pad_token", pad, &sources->named[SNUG_NAMED_PAD]);
}

/* The list that counts: extra_special_tokens, or else additional_special_tokens, which a SentencePiece model's own
   tokens replace. */
static snug_status choose_extra(struct collecting *c) {
    struct snug_special_sources *sources = c->sources;
    const struct snug_token_list *model = sources->model_extra;
    if (!c->extra.given && model) {
        c->additional.tokens.count = 0;
        for (size_t i = 0; i < model->count; i++)
            RETURN_IF_ERROR(append(c->ctx, &c->additional.tokens, &model->items[i]));
    } else if (!c->additional.given && sources->defaults) {
        for (size_t i = 0; i < 3 && sources->defaults->extra[i]; i++) {
            const struct snug_token_spec token = {
                .content = sources->defaults->extra[i], .special = true, .text = true};
            RETURN_IF_ERROR(append(c->ctx, &c->additional.tokens, &token));
        }
    }
    struct given_list *from = c->extra.given ? &c->extra : &c->additional;
    sources->extra = from->tokens;
    from->tokens = (struct snug_token_list){0};
    return SNUG_OK;
}

/* A name may be that of a named token, in an object of extra_special_tokens. */
static snug_status merge_names(struct collecting *c) {
    struct snug_special_sources *sources = c->sources;
    for (size_t i = 0; i < c->further.tokens.count; i++)
        RETURN_IF_ERROR(name_token(c->ctx, &c->first, c->further.names.entries[i].text, &c->further.tokens.items[i]));
    for (size_t i = 0; i < c->first.tokens.count; i++) {
        const int named = named_index(c->first.names.entries[i].text);
        if (named < 0)
            RETURN_IF_ERROR(append(c->ctx, &sources->further, &c->first.tokens.items[i]));
        else
            sources->named[named] = c->first.tokens.items[i];
    }
    return SNUG_OK;
}

static snug_status collect(struct collecting *c) {
    struct snug_special_sources *sources = c->sources;
    c->places = json_object();
    if (!c->places) return snug_fail(c->ctx, SNUG_E_MEMORY, "out of memory while listing special tokens");
    RETURN_IF_ERROR(collect_config(c));
    RETURN_IF_ERROR(list_by_id(c));
    RETURN_IF_ERROR(name_defaults(c));
    RETURN_IF_ERROR(choose_extra(c));
    RETURN_IF_ERROR(merge_names(c));
    if (sources->listed.count)
        qsort(sources->listed.items, sources->listed.count, sizeof *sources->listed.items, by_order);
    return SNUG_OK;
}

static void free_collecting(struct collecting *c) {
    json_decref(c->places);
    free(c->extra.tokens.items);
    free(c->additional.tokens.items);
    snug_hash_map_free(&c->first.names);
    free(c->first.tokens.items);
    snug_hash_map_free(&c->further.names);
    snug_hash_map_free(&c->special);
    free(c->further.tokens.items);
}

snug_status snug_special_tokens_collect(snug_context *ctx, struct snug_special_sources *sources) {
    struct collecting c = {.ctx = ctx, .sources = sources};
    const snug_status status = collect(&c);
    free_collecting(&c);
    return status;
}

void snug_special_sources_free(struct snug_special_sources *sources) {
    json_decref(sources->config);
    json_decref(sources->map);
    json_decref(sources->added);
    free(sources->further.items);
    free(sources->json_tokens.items);
    free(sources->listed.items);
    free(sources->extra.items);
    *sources = (struct snug_special_sources){0};
}
