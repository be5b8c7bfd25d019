/* SPDX-License-Identifier: Apache-2.0 */
#include "text/special_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "io/json.h"

static const char *const named_keys[SNUG_NAMED_COUNT] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                         "pad_token", "cls_token", "mask_token"};

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

/* ---- tokens by id -------------------------------------------------------------------------------------------- */

static int by_order(const void *a, const void *b) {
    const struct snug_token_spec *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Adds a token to the list, or replaces the one with the same id. places: the index of each id. */
static snug_status list_token(snug_context *ctx, struct snug_token_list *list, json_t *places,
                              const struct snug_token_spec *token) {
    char id[24];
    snprintf(id, sizeof id, "%lld", (long long)token->order);
    const json_t *place = json_object_get(places, id);
    if (place) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what has a place is in the list */
        list->items[json_integer_value(place)] = *token;
        return SNUG_OK;
    }
    /* may be untested: an allocation that fails */
    if (json_object_set_new(places, id, json_integer((json_int_t)list->count)))
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing token \"%s\"", token->content);
    return append(ctx, list, token);
}

/* added_tokens_decoder of tokenizer_config.json: {"id": token}. */
static snug_status list_decoder(snug_context *ctx, struct snug_special_sources *sources, const json_t *decoder) {
    const char *path = sources->paths[SNUG_TOKENIZER_CONFIG], *key;
    json_t *value;
    if (!json_is_object(decoder))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: \"added_tokens_decoder\" must be an object of tokens by id", path);
    json_object_foreach((json_t *)decoder, key, value) {
        struct snug_token_spec token;
        char *end;
        RETURN_IF_ERROR(parse_token(ctx, path, key, value, &token));
        token.order = strtoll(key, &end, 10);
        if (end == key || *end || !token.content)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" in \"added_tokens_decoder\" is not the id of a token", path,
                             key);
        RETURN_IF_ERROR(append(ctx, &sources->listed, &token));
    }
    return SNUG_OK;
}

static bool is_named(const struct snug_special_sources *sources, const char *content) {
    for (int i = 0; i < SNUG_NAMED_COUNT; i++)
        if (same(sources->named[i].content, content)) return true;
    return false;
}

/* added_tokens.json: {"token": id}. */
static snug_status list_added(snug_context *ctx, struct snug_special_sources *sources, json_t *places) {
    const char *path = sources->paths[SNUG_TOKENIZER_ADDED], *key;
    json_t *value;
    json_object_foreach(sources->added, key, value) {
        if (!json_is_integer(value))
            return snug_fail(ctx, SNUG_E_INPUT, "%s: the id of token \"%s\" is not a number", path, key);
        bool special = is_named(sources, key) || json_object_get(sources->extra_names, key);
        struct snug_token_spec token = {.content = key, .special = special, .order = json_integer_value(value)};
        RETURN_IF_ERROR(list_token(ctx, &sources->listed, places, &token));
    }
    return SNUG_OK;
}

/* added_tokens of tokenizer.json: a list of tokens with ids. */
static snug_status list_json(snug_context *ctx, const struct snug_special_sources *sources,
                             struct snug_token_list *list, json_t *places) {
    const char *path = sources->paths[SNUG_TOKENIZER_JSON];
    const json_t *tokens = json_object_get(sources->json, "added_tokens");
    if (tokens && !json_is_array(tokens) && !json_is_null(tokens))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: \"added_tokens\" must be a list", path);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        struct snug_token_spec token;
        const json_t *value = json_array_get(tokens, i);
        RETURN_IF_ERROR(parse_token(ctx, path, "added_tokens", value, &token));
        if (!token.content || !json_is_integer(json_object_get(value, "id")))
            return snug_fail(ctx, SNUG_E_INPUT, "%s: number %zu of \"added_tokens\" has no content or no id", path,
                             i + 1);
        token.order = json_integer_value(json_object_get(value, "id"));
        RETURN_IF_ERROR(list_token(ctx, list, places, &token));
    }
    return SNUG_OK;
}

/* ---- named tokens -------------------------------------------------------------------------------------------- */

static bool is_named_key(const char *key) {
    for (int i = 0; i < SNUG_NAMED_COUNT; i++)
        if (!strcmp(key, named_keys[i])) return true;
    return false;
}

static snug_status append_extra(snug_context *ctx, struct snug_special_sources *sources,
                                const struct snug_token_spec *token) {
    /* may be untested: an allocation that fails */
    if (json_object_set_new(sources->extra_names, token->content, json_true()))
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing token \"%s\"", token->content);
    return append(ctx, &sources->extra, token);
}

/* Extra special tokens: values of other keys that end in _token, and lists or objects of them. */
static snug_status collect_extra(snug_context *ctx, struct snug_special_sources *sources, const json_t *object,
                                 const char *path) {
    const char *key;
    json_t *value;
    struct snug_token_spec token;
    json_object_foreach((json_t *)object, key, value) {
        size_t length = strlen(key);
        bool one = length > 6 && !strcmp(key + length - 6, "_token") && !is_named_key(key) &&
                   (json_is_string(value) || json_is_string(json_object_get(value, "content")));
        if (!one) continue;
        RETURN_IF_ERROR(parse_token(ctx, path, key, value, &token));
        RETURN_IF_ERROR(append_extra(ctx, sources, &token));
    }
    const char *name = "extra_special_tokens";
    const json_t *more = json_object_get(object, name);
    if (!json_array_size(more) && !json_object_size(more)) {
        name = "additional_special_tokens";
        more = json_object_get(object, name);
    }
    for (size_t i = 0; i < json_array_size(more); i++) {
        RETURN_IF_ERROR(parse_token(ctx, path, name, json_array_get(more, i), &token));
        if (token.content) RETURN_IF_ERROR(append_extra(ctx, sources, &token));
    }
    json_object_foreach((json_t *)more, key, value) {
        RETURN_IF_ERROR(parse_token(ctx, path, key, value, &token));
        if (token.content) RETURN_IF_ERROR(append_extra(ctx, sources, &token));
    }
    return SNUG_OK;
}

static snug_status collect_named(snug_context *ctx, struct snug_special_sources *sources, const json_t *object,
                                 const char *path, bool always_special) {
    for (int i = 0; i < SNUG_NAMED_COUNT; i++) {
        const json_t *value = json_object_get(object, named_keys[i]);
        if (!value) continue;
        RETURN_IF_ERROR(parse_token(ctx, path, named_keys[i], value, &sources->named[i]));
        sources->named[i].special |= always_special;
    }
    return SNUG_OK;
}

/* The change that some classes make to a mask token that files give as text. */
static void apply_class(struct snug_special_sources *sources) {
    struct snug_token_spec *mask = &sources->named[SNUG_NAMED_MASK];
    if (sources->defaults && mask->text) mask->lstrip |= sources->defaults->mask_strips;
}

snug_status snug_special_tokens_collect(snug_context *ctx, struct snug_special_sources *sources) {
    const json_t *decoder = json_object_get(sources->config, "added_tokens_decoder");
    const char *config_path = sources->paths[SNUG_TOKENIZER_CONFIG],
               *map_path = sources->paths[SNUG_TOKENIZER_SPECIAL_MAP];
    sources->extra_names = json_object();
    if (!sources->extra_names) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing special tokens");
    for (int i = 0; i < SNUG_NAMED_COUNT && sources->defaults; i++)
        sources->named[i] =
            (struct snug_token_spec){.content = sources->defaults->named[i], .special = true, .text = true};
    RETURN_IF_ERROR(collect_named(ctx, sources, sources->config, config_path, false));
    RETURN_IF_ERROR(collect_extra(ctx, sources, sources->config, config_path));
    for (size_t i = 0; sources->model_extra && i < sources->model_extra->count; i++)
        RETURN_IF_ERROR(append_extra(ctx, sources, &sources->model_extra->items[i]));
    /* untested: no class has further special tokens */
    for (size_t i = 0; sources->defaults && !sources->extra.count && !sources->own && i < 3; i++)
        if (sources->defaults->extra[i])
            RETURN_IF_ERROR(append_extra(
                ctx, sources, &(struct snug_token_spec){.content = sources->defaults->extra[i], .special = true}));
    /* The only use of tokenizer.json's padding: it names the padding token if nothing else does. */
    const json_t *padding = json_object_get(sources->json, "padding");
    if (!sources->named[SNUG_NAMED_PAD].content && json_is_string(json_object_get(padding, "pad_token")))
        RETURN_IF_ERROR(parse_token(ctx, sources->paths[SNUG_TOKENIZER_JSON], "pad_token",
                                    json_object_get(padding, "pad_token"), &sources->named[SNUG_NAMED_PAD]));
    if (decoder) {
        RETURN_IF_ERROR(list_decoder(ctx, sources, decoder));
    } else { /* files of older versions, read only in this case */
        RETURN_IF_ERROR(collect_named(ctx, sources, sources->map, map_path, true));
        RETURN_IF_ERROR(collect_extra(ctx, sources, sources->map, map_path));
        json_t *places = json_object();
        snug_status status = list_added(ctx, sources, places);
        if (status == SNUG_OK) status = list_json(ctx, sources, &sources->listed, places);
        json_decref(places);
        RETURN_IF_ERROR(status);
    }
    apply_class(sources);
    if (sources->listed.count)
        qsort(sources->listed.items, sources->listed.count, sizeof *sources->listed.items, by_order);
    return SNUG_OK;
}

void snug_special_sources_free(struct snug_special_sources *sources) {
    json_decref(sources->config);
    json_decref(sources->map);
    json_decref(sources->added);
    json_decref(sources->extra_names);
    free(sources->listed.items);
    free(sources->extra.items);
    *sources = (struct snug_special_sources){0};
}

/* ---- into the tokenizer -------------------------------------------------------------------------------------- */

static snug_status add(snug_context *ctx, struct snug_tokenizer *tokenizer, const struct snug_token_spec *spec,
                       bool special) {
    char *content = (char *)spec->content; /* is copied */
    struct snug_added_token token = {.content = content,
                                     .single_word = spec->single_word,
                                     .lstrip = spec->lstrip,
                                     .rstrip = spec->rstrip,
                                     .special = special,
                                     .normalized = spec->normalized_given ? spec->normalized : !special};
    return snug_added_tokens_add(ctx, &tokenizer->added, &tokenizer->vocabulary, &token);
}

static snug_status add_list(snug_context *ctx, const struct snug_special_sources *sources,
                            struct snug_tokenizer *tokenizer, const struct snug_token_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        bool named = false;
        for (int j = 0; j < SNUG_NAMED_COUNT; j++) named |= same(sources->named[j].content, list->items[i].content);
        RETURN_IF_ERROR(add(ctx, tokenizer, &list->items[i], list->items[i].special || named));
    }
    return SNUG_OK;
}

/* Adds the tokens of tokenizer.json, with list and places. */
static snug_status add_own(snug_context *ctx, const struct snug_special_sources *sources,
                           struct snug_tokenizer *tokenizer, struct snug_token_list *list, json_t *places) {
    RETURN_IF_ERROR(list_json(ctx, sources, list, places));
    for (size_t i = 0; i < list->count; i++)
        RETURN_IF_ERROR(add(ctx, tokenizer, &list->items[i], list->items[i].special));
    return SNUG_OK;
}

static int32_t id_of(const struct snug_tokenizer *tokenizer, const char *content) {
    if (!content) return -1;
    const struct snug_added_token *token = snug_added_tokens_find(&tokenizer->added, content);
    return token ? token->id : snug_vocabulary_find(&tokenizer->vocabulary, content);
}

static void find_special(const struct snug_special_sources *sources, struct snug_tokenizer *tokenizer) {
    const struct snug_token_spec *named = sources->named;
    const int32_t unk = tokenizer->kind == SNUG_MODEL_WORDPIECE ? tokenizer->wordpiece.unk
                                                                : id_of(tokenizer, named[SNUG_NAMED_UNK].content);
    tokenizer->special = (struct snug_special_ids){.cls = id_of(tokenizer, named[SNUG_NAMED_CLS].content),
                                                   .sep = id_of(tokenizer, named[SNUG_NAMED_SEP].content),
                                                   .pad = id_of(tokenizer, named[SNUG_NAMED_PAD].content),
                                                   .unk = unk,
                                                   .mask = id_of(tokenizer, named[SNUG_NAMED_MASK].content)};
}

snug_status snug_special_tokens_add(snug_context *ctx, const struct snug_special_sources *sources,
                                    struct snug_tokenizer *tokenizer) {
    const char *path = sources->paths[SNUG_TOKENIZER_CONFIG], *side;
    if (sources->own) {
        struct snug_token_list list = {0};
        json_t *places = json_object();
        const snug_status status = add_own(ctx, sources, tokenizer, &list, places);
        json_decref(places);
        free(list.items);
        RETURN_IF_ERROR(status);
    }
    RETURN_IF_ERROR(add_list(ctx, sources, tokenizer, &sources->listed));
    for (size_t i = 0; i < SNUG_NAMED_COUNT + sources->extra.count; i++) {
        bool named = i < SNUG_NAMED_COUNT;
        const struct snug_token_spec *spec = named ? &sources->named[i] : &sources->extra.items[i - SNUG_NAMED_COUNT];
        if (!spec->content || snug_added_tokens_find(&tokenizer->added, spec->content)) continue;
        /* A tokenizer.json without a configuration need not have BertTokenizer's tokens. */
        if (sources->own && !sources->config && id_of(tokenizer, spec->content) < 0) continue;
        RETURN_IF_ERROR(add(ctx, tokenizer, spec, spec->special || named));
    }
    RETURN_IF_ERROR(
        snug_json_bool(ctx, path, sources->config, "split_special_tokens", false, &tokenizer->added.ignore_special));
    RETURN_IF_ERROR(snug_json_string(ctx, path, sources->config, "truncation_side", "right", &side));
    tokenizer->truncate_left = !strcmp(side, "left");
    RETURN_IF_ERROR(snug_added_tokens_finish(ctx, &tokenizer->added, &tokenizer->normalizer));
    find_special(sources, tokenizer);
    return SNUG_OK;
}
