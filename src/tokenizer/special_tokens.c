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
 * Tokens stay the JSON values of the files; Jansson's objects keep the order of their keys, as Python's do.
 */
#include "tokenizer/special_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "io/json.h"

static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
enum { NAMES = sizeof names / sizeof *names };

/* The member of a token of special_tokens_map.json, which is special and whose content added_tokens.json may repeat;
   transformers does not know the content of an object of tokenizer_config.json then. */
#define OF_MAP "of special_tokens_map.json"

struct collecting {
    snug_context *ctx;
    struct snug_special_sources *sources;
    json_t *named;              /* by name, as the files say: null means none, also if the class has a default */
    json_t *first;              /* of other names: objects and those of special_tokens_map.json */
    json_t *extra, *additional; /* the lists; NULL: not given */
    json_t *by_content;         /* the last token by id of each content */
};

snug_status snug_token_parse(snug_context *ctx, const char *path, const char *key, const json_t *value,
                             struct snug_token_spec *out) {
    *out = (struct snug_token_spec){0};
    if (json_is_null(value)) return SNUG_OK;
    if (json_is_string(value)) {
        out->content = json_string_value(value);
        out->special = out->text = true;
        return SNUG_OK;
    }
    out->content = json_string_value(json_object_get(value, "content"));
    if (!out->content)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" must be a token: a string, or an object with \"content\"", path,
                         key);
    RETURN_IF_ERROR(snug_json_bool(ctx, path, value, "special", false, &out->special));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, value, "single_word", false, &out->single_word));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, value, "lstrip", false, &out->lstrip));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, value, "rstrip", false, &out->rstrip));
    out->normalized_given = json_is_boolean(json_object_get(value, "normalized"));
    return snug_json_bool(ctx, path, value, "normalized", false, &out->normalized);
}

const char *snug_token_content(const json_t *token) {
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

/* ---- objects and lists ----------------------------------------------------------------------------------------- */

/* Take over the reference to the value. */
static snug_status put(snug_context *ctx, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value))
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing special tokens");
    return SNUG_OK;
}

static snug_status push(snug_context *ctx, json_t *list, json_t *value) {
    if (json_array_append_new(list, value))
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing special tokens");
    return SNUG_OK;
}

static bool is_name(const char *key) {
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(key, names[i])) return true;
    return false;
}

static bool names_further_token(const char *key, const json_t *value) {
    const size_t length = strlen(key);
    return length >= 6 && !strcmp(key + length - 6, "_token") && snug_token_content(value);
}

/* A token of special_tokens_map.json: an object is special. A new reference; NULL if out of memory. */
static json_t *of_map(json_t *value) {
    if (!json_is_object(value)) return json_incref(value);
    json_t *token = json_copy(value);
    snug_json_add(&token, "special", json_true());
    snug_json_add(&token, OF_MAP, json_true());
    return token;
}

/* Appends a list's tokens to *out; equal ones are dropped later. */
static snug_status add_list(struct collecting *c, const char *path, const char *key, json_t *value, bool map,
                            json_t **out) {
    if (!json_is_array(value) && !json_is_null(value))
        return snug_fail(c->ctx, SNUG_E_INPUT, "%s: \"%s\" must be a list of tokens", path, key);
    if (!*out) *out = json_array();
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *token = json_array_get(value, i);
        RETURN_IF_ERROR(snug_token_parse(c->ctx, path, key, token, &(struct snug_token_spec){0}));
        if (json_is_null(token)) continue;
        RETURN_IF_ERROR(push(c->ctx, *out, map ? of_map(token) : json_incref(token)));
    }
    return SNUG_OK;
}

/* "extra_special_tokens" of either file: a list, or an object of tokens by name. */
static snug_status add_extra(struct collecting *c, const char *path, json_t *value, bool map) {
    const char *key;
    json_t *token;
    if (!json_is_object(value)) return add_list(c, path, "extra_special_tokens", value, map, &c->extra);
    json_decref(c->extra);
    c->extra = NULL;
    json_object_foreach(value, key, token) {
        RETURN_IF_ERROR(snug_token_parse(c->ctx, path, key, token, &(struct snug_token_spec){0}));
        if (!json_is_null(token)) RETURN_IF_ERROR(put(c->ctx, c->sources->further, key, json_incref(token)));
    }
    return SNUG_OK;
}

static snug_status collect_config(struct collecting *c) {
    static const char additional_key[] = "additional_special_tokens";
    json_t *config = c->sources->config, *extra = json_object_get(config, "extra_special_tokens"),
           *additional = json_object_get(config, additional_key), *value;
    const char *path = c->sources->paths[SNUG_TOKENIZER_CONFIG], *key;
    json_object_foreach(config, key, value) {
        const bool named = is_name(key);
        if (!named && !names_further_token(key, value)) continue;
        RETURN_IF_ERROR(snug_token_parse(c->ctx, path, key, value, &(struct snug_token_spec){0}));
        json_t *to = named ? c->named : json_is_object(value) ? c->first : c->sources->further;
        RETURN_IF_ERROR(put(c->ctx, to, key, json_incref(value)));
    }
    if (additional && !json_array_size(extra) && !json_object_size(extra))
        return add_list(c, path, additional_key, additional, false, &c->extra);
    if (additional) RETURN_IF_ERROR(add_list(c, path, additional_key, additional, false, &c->additional));
    return extra ? add_extra(c, path, extra, false) : SNUG_OK;
}

static snug_status collect_map(struct collecting *c) {
    const char *path = c->sources->paths[SNUG_TOKENIZER_SPECIAL_MAP], *key;
    json_t *value;
    json_object_foreach(c->sources->map, key, value) {
        if (!strcmp(key, "extra_special_tokens")) {
            RETURN_IF_ERROR(add_extra(c, path, value, true));
        } else if (!strcmp(key, "additional_special_tokens")) {
            json_decref(c->additional);
            c->additional = NULL;
            RETURN_IF_ERROR(add_list(c, path, key, value, true, &c->additional));
        } else if (is_name(key) || names_further_token(key, value)) {
            RETURN_IF_ERROR(snug_token_parse(c->ctx, path, key, value, &(struct snug_token_spec){0}));
            RETURN_IF_ERROR(put(c->ctx, is_name(key) ? c->named : c->first, key, of_map(value)));
        }
    }
    return SNUG_OK;
}

/* ---- tokens by id ---------------------------------------------------------------------------------------------- */

/* Adds a token to the list, or replaces the one with the same id; takes over the reference. */
static snug_status list_token(struct collecting *c, int64_t id, json_t *token) {
    char key[24];
    snprintf(key, sizeof key, "%lld", (long long)id);
    RETURN_IF_ERROR(put(c->ctx, c->sources->listed, key, token));
    return put(c->ctx, c->by_content, snug_token_content(token), json_incref(token));
}

/* added_tokens_decoder of tokenizer_config.json: {"id": token}. */
static snug_status list_decoder(struct collecting *c, json_t *decoder) {
    const char *path = c->sources->paths[SNUG_TOKENIZER_CONFIG], *key;
    json_t *value;
    if (!json_is_object(decoder))
        return snug_fail(c->ctx, SNUG_E_INPUT, "%s: \"added_tokens_decoder\" must be an object of tokens by id", path);
    json_object_foreach(decoder, key, value) {
        char *end;
        const int64_t id = strtoll(key, &end, 10);
        RETURN_IF_ERROR(snug_token_parse(c->ctx, path, key, value, &(struct snug_token_spec){0}));
        if (end == key || *end || json_is_null(value))
            return snug_fail(c->ctx, SNUG_E_INPUT, "%s: \"%s\" in \"added_tokens_decoder\" is not the id of a token",
                             path, key);
        RETURN_IF_ERROR(list_token(c, id, json_incref(value)));
    }
    return SNUG_OK;
}

/* Puts the content of a special token that added_tokens.json is compared with into a set. */
static snug_status note_special(struct collecting *c, json_t *set, const json_t *token) {
    const bool known = json_is_string(token) || json_object_get(token, OF_MAP);
    return known ? put(c->ctx, set, snug_token_content(token), json_true()) : SNUG_OK;
}

/* added_tokens.json: {"token": id}. */
static snug_status list_added(struct collecting *c, json_t *special) {
    const char *path = c->sources->paths[SNUG_TOKENIZER_ADDED], *key;
    json_t *value;
    size_t i;
    json_object_foreach(c->named, key, value) RETURN_IF_ERROR(note_special(c, special, value));
    json_array_foreach(c->extra, i, value) RETURN_IF_ERROR(note_special(c, special, value));
    json_object_foreach(c->sources->added, key, value) {
        if (!json_is_integer(value))
            return snug_fail(c->ctx, SNUG_E_INPUT, "%s: the id of token \"%s\" is not a number", path, key);
        const int is_special = json_object_get(special, key) != NULL;
        json_t *token = json_pack("{s:s,s:b,s:b}", "content", key, "special", is_special, "normalized", !is_special);
        if (!token) return snug_fail(c->ctx, SNUG_E_MEMORY, "out of memory while reading %s", path);
        RETURN_IF_ERROR(list_token(c, json_integer_value(value), token));
    }
    return SNUG_OK;
}

/* added_tokens of tokenizer.json: a list of tokens with ids. */
static snug_status check_json(struct collecting *c, const json_t *tokens) {
    const char *path = c->sources->paths[SNUG_TOKENIZER_JSON];
    if (tokens && !json_is_array(tokens) && !json_is_null(tokens))
        return snug_fail(c->ctx, SNUG_E_INPUT, "%s: \"added_tokens\" must be a list", path);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *value = json_array_get(tokens, i);
        RETURN_IF_ERROR(snug_token_parse(c->ctx, path, "added_tokens", value, &(struct snug_token_spec){0}));
        if (!json_is_integer(json_object_get(value, "id")))
            return snug_fail(c->ctx, SNUG_E_INPUT, "%s: number %zu of \"added_tokens\" has no content or no id", path,
                             i + 1);
    }
    return SNUG_OK;
}

static snug_status list_by_id(struct collecting *c) {
    json_t *decoder = json_object_get(c->sources->config, "added_tokens_decoder"),
           *tokens = json_object_get(c->sources->json, "added_tokens"), *token, *special;
    size_t i;
    if (!decoder || c->sources->own) RETURN_IF_ERROR(check_json(c, tokens));
    if (decoder) return list_decoder(c, decoder);
    RETURN_IF_ERROR(collect_map(c));
    special = json_object();
    const snug_status status = list_added(c, special);
    json_decref(special);
    RETURN_IF_ERROR(status);
    json_array_foreach(tokens, i, token)
        RETURN_IF_ERROR(list_token(c, json_integer_value(json_object_get(token, "id")), json_incref(token)));
    return SNUG_OK;
}

/* ---- what the class makes of them ------------------------------------------------------------------------------ */

/* The class's default where no file names the token, and what the class makes of a token that is given as text. */
static snug_status name_token(struct collecting *c, const char *name) {
    const struct snug_special_sources *sources = c->sources;
    json_t *token = json_object_get(c->named, name), *listed = NULL;
    if (snug_token_content(token)) listed = json_object_get(c->by_content, snug_token_content(token));
    if (listed) token = listed;
    if (!token) token = json_object_get(sources->class, name);
    /* The only use of tokenizer.json's padding: it names the padding token if nothing else does. */
    if (!token && !strcmp(name, "pad_token"))
        token = json_object_get(json_object_get(sources->json, "padding"), "pad_token");
    if (!snug_token_content(token)) return put(c->ctx, sources->named, name, json_null());
    const bool objects = json_object_get(sources->class, "text_is_object"),
               strips = !strcmp(name, "mask_token") && json_object_get(sources->class, "mask_strips");
    json_incref(token);
    if (json_is_string(token) && (objects || strips)) {
        json_t *text = token;
        token = json_pack("{s:O,s:b,s:b}", "content", text, "lstrip", (int)strips, "special", (int)!objects);
        json_decref(text);
    }
    return put(c->ctx, sources->named, name, token);
}

/* The list that counts: extra_special_tokens, or else additional_special_tokens, which a SentencePiece model's own
   tokens replace. */
static json_t *choose_extra(const struct collecting *c) {
    const struct snug_special_sources *sources = c->sources;
    json_t *defaults = json_object_get(sources->class, "extra_special_tokens");
    return json_incref(c->extra               ? c->extra
                       : sources->model_extra ? sources->model_extra
                       : c->additional        ? c->additional
                                              : defaults);
}

/* A name may be that of a named token, in an object of extra_special_tokens. */
static snug_status merge_names(struct collecting *c) {
    struct snug_special_sources *sources = c->sources;
    if (json_object_update(c->first, sources->further))
        return snug_fail(c->ctx, SNUG_E_MEMORY, "out of memory while listing special tokens");
    json_object_clear(sources->further);
    const char *key;
    json_t *token;
    json_object_foreach(c->first, key, token)
        RETURN_IF_ERROR(put(c->ctx, is_name(key) ? sources->named : sources->further, key, json_incref(token)));
    return SNUG_OK;
}

static snug_status collect(struct collecting *c) {
    struct snug_special_sources *sources = c->sources;
    if (!c->named || !c->first || !c->by_content || !sources->named || !sources->further || !sources->listed)
        return snug_fail(c->ctx, SNUG_E_MEMORY, "out of memory while listing special tokens");
    RETURN_IF_ERROR(collect_config(c));
    RETURN_IF_ERROR(list_by_id(c));
    for (int i = 0; i < NAMES; i++) RETURN_IF_ERROR(name_token(c, names[i]));
    sources->extra = choose_extra(c);
    return merge_names(c);
}

snug_status snug_special_tokens_collect(snug_context *ctx, struct snug_special_sources *sources) {
    struct collecting c = {.ctx = ctx, .sources = sources};
    c.named = json_object();
    c.first = json_object();
    c.by_content = json_object();
    sources->named = json_object();
    sources->further = json_object();
    sources->listed = json_object();
    const snug_status status = collect(&c);
    json_decref(c.named);
    json_decref(c.first);
    json_decref(c.by_content);
    json_decref(c.extra);
    json_decref(c.additional);
    return status;
}

snug_status snug_special_tokens_texts(snug_context *ctx, const struct snug_special_sources *sources, json_t **out) {
    json_t *const named[] = {sources->named, sources->further}, *token;
    const char *key;
    *out = json_object();
    for (size_t i = 0; i < 2; i++) json_object_foreach(named[i], key, token) {
            const char *text = snug_token_content(token);
            if (text) snug_json_add(out, key, json_string(text));
        }
    return *out ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while listing special tokens");
}

void snug_special_sources_free(struct snug_special_sources *sources) {
    json_t *owned[] = {sources->config, sources->map,     sources->added,  sources->model_extra,
                       sources->named,  sources->further, sources->listed, sources->extra};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) json_decref(owned[i]);
    *sources = (struct snug_special_sources){0};
}
