/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a folder's tokenizer files as transformers 5 does (AutoTokenizer, BertTokenizer, TokenizersBackend).
 *
 * BertTokenizer takes from tokenizer.json nothing but the vocabulary and, where tokenizer_config.json has no
 * added_tokens_decoder, the added tokens: it makes its normalizer from tokenizer_config.json alone. Where a folder has
 * no tokenizer_config.json, or it names a class that only wraps tokenizer.json, all of tokenizer.json holds.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "io/folder.h"
#include "io/json.h"
#include "text/special_tokens.h"
#include "text/tokenizer_parts.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Part of the fingerprint; goes up whenever the code gives other tokens for the same files. */
#define CODE_VERSION 1

struct loader {
    snug_context *ctx;
    const char *folder;
    struct snug_tokenizer *tokenizer;
    json_t *json; /* tokenizer.json, perhaps without its vocabulary; NULL if there is none */
    bool own;     /* all of tokenizer.json holds, its normalizer too */
    bool read;    /* the model's vocabulary is that of vocab.txt */
    struct snug_special_sources sources;
};

/* The member of an object; NULL where it is absent or null. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "without a type";
}

/* ---- files --------------------------------------------------------------------------------------------------- */

static snug_status read_file(struct loader *loader, enum snug_tokenizer_file file) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    return snug_file_read(loader->ctx, NULL, tokenizer->paths[file], &tokenizer->data[file], &tokenizer->sizes[file]);
}

/* Reads each file once, vocab.txt later: what is used and what is saved is then the same, whatever happens to it. */
static snug_status read_files(struct loader *loader) {
    char **paths = loader->tokenizer->paths;
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
        RETURN_IF_ERROR(snug_path_join(loader->ctx, &paths[file], loader->folder, snug_tokenizer_file_names[file]));
        if (snug_entry_kind(NULL, paths[file])) {
            if (file != SNUG_TOKENIZER_VOCAB) RETURN_IF_ERROR(read_file(loader, file));
            continue;
        }
        free(paths[file]);
        paths[file] = NULL;
    }
    if (!paths[SNUG_TOKENIZER_VOCAB] && !paths[SNUG_TOKENIZER_JSON])
        return snug_fail(
            loader->ctx, SNUG_E_INPUT,
            "%s has no tokenizer: neither vocab.txt nor tokenizer.json is there; name a folder that has one "
            "with --tokenizer_name",
            loader->folder);
    return SNUG_OK;
}

static snug_status parse_optional(struct loader *loader, enum snug_tokenizer_file file, json_t **out) {
    const struct snug_tokenizer *tokenizer = loader->tokenizer;
    if (!tokenizer->paths[file]) return SNUG_OK;
    return snug_json_read_text(loader->ctx, tokenizer->paths[file], tokenizer->data[file], tokenizer->sizes[file], out);
}

static const char *path_of(const struct loader *loader, enum snug_tokenizer_file file) {
    return loader->tokenizer->paths[file];
}

/* tokenizer_class, with or without "Fast", of tokenizer_config.json or else of the model's config.json. */
static snug_status read_class(struct loader *loader, char **out) {
    snug_context *ctx = loader->ctx;
    const char *name = NULL;
    char *path = NULL;
    json_t *config = NULL;
    snug_status status = SNUG_OK;
    *out = NULL;
    if (loader->sources.config)
        RETURN_IF_ERROR(snug_json_string(ctx, path_of(loader, SNUG_TOKENIZER_CONFIG), loader->sources.config,
                                         "tokenizer_class", NULL, &name));
    if (!name) {
        RETURN_IF_ERROR(snug_path_join(ctx, &path, loader->folder, "config.json"));
        if (snug_file_exists(NULL, path)) status = snug_json_read(ctx, NULL, path, &config);
        if (status == SNUG_OK && config) status = snug_json_string(ctx, path, config, "tokenizer_class", NULL, &name);
    }
    if (status == SNUG_OK) status = snug_strdup(ctx, name ? name : "BertTokenizer", out);
    json_decref(config);
    free(path);
    if (status != SNUG_OK) return status;
    size_t length = strlen(*out);
    if (length > 4 && !strcmp(*out + length - 4, "Fast")) (*out)[length - 4] = '\0';
    return SNUG_OK;
}

static bool is_one_of(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* Decides whether tokenizer.json speaks for itself. */
static snug_status resolve_class(struct loader *loader) {
    /* Those that transformers 5 serves with BertTokenizer, and those that wrap any tokenizer.json. */
    static const char *const bert[] = {"BertTokenizer",       "DistilBertTokenizer", "ElectraTokenizer",
                                       "MobileBertTokenizer", "ConvBertTokenizer",   "SqueezeBertTokenizer"};
    static const char *const wrappers[] = {"PreTrainedTokenizer", "TokenizersBackend"};
    char *name;
    RETURN_IF_ERROR(read_class(loader, &name));
    bool wraps = is_one_of(name, wrappers, COUNT(wrappers)), known = wraps || is_one_of(name, bert, COUNT(bert));
    snug_status status = SNUG_OK;
    if (!known)
        status = snug_fail(loader->ctx, SNUG_E_UNSUPPORTED,
                           "%s: the tokenizer class \"%s\" is not supported, only BertTokenizer (WordPiece)",
                           loader->folder, name);
    free(name);
    loader->own = path_of(loader, SNUG_TOKENIZER_JSON) && (wraps || !loader->sources.config);
    loader->sources.named_defaults = !(wraps && loader->own);
    return status;
}

/* ---- vocabulary ---------------------------------------------------------------------------------------------- */

static size_t skip_space(const char *text, size_t at) { return at + strspn(text + at, " \t\r\n"); }

/* Whether text at *at is this token as a JSON string, with nothing escaped but what must be; moves *at behind it. */
static bool take_string(const char *text, size_t *at, const char *token) {
    size_t i = *at;
    if (text[i++] != '"') return false;
    for (; *token; token++) {
        if (*token == '"' || *token == '\\') {
            if (text[i++] != '\\') return false;
        }
        if (text[i++] != *token) return false;
    }
    if (text[i++] != '"') return false;
    *at = i;
    return true;
}

/* Where the text of tokenizer.json holds exactly the vocabulary of vocab.txt, in order of ids as it is always written:
   the places of the braces around it. To leave it out spares the JSON parser nine tenths of the file: 20 ms of a start.
 */
static bool find_vocabulary(const struct snug_wordpiece *model, const char *text, size_t *open, size_t *close) {
    const char *key = strstr(text, "\"vocab\"");
    if (!key) return false;
    size_t at = skip_space(text, (size_t)(key - text) + strlen("\"vocab\""));
    if (text[at++] != ':') return false;
    at = skip_space(text, at);
    *open = at;
    if (text[at++] != '{') return false;
    for (int64_t id = 0; id < model->size; id++) {
        at = skip_space(text, at);
        if (!take_string(text, &at, model->tokens[id])) return false;
        at = skip_space(text, at);
        if (text[at++] != ':') return false;
        at = skip_space(text, at);
        char *end;
        if (text[at] < '0' || text[at] > '9' || strtoll(text + at, &end, 10) != id) return false;
        at = skip_space(text, (size_t)(end - text));
        if (text[at++] != (id + 1 < model->size ? ',' : '}')) return false;
    }
    *close = at - 1;
    return true;
}

static snug_status read_vocabulary_file(struct loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    const char *path = path_of(loader, SNUG_TOKENIZER_VOCAB);
    if (!path) return SNUG_OK;
    RETURN_IF_ERROR(read_file(loader, SNUG_TOKENIZER_VOCAB));
    const snug_status status =
        snug_wordpiece_read(loader->ctx, &tokenizer->model, path, tokenizer->data[SNUG_TOKENIZER_VOCAB],
                            tokenizer->sizes[SNUG_TOKENIZER_VOCAB]);
    loader->read = status == SNUG_OK;
    return status;
}

/* tokenizer.json without its vocabulary, if that is the one of vocab.txt; otherwise loader->json stays NULL. */
static snug_status parse_without_vocabulary(struct loader *loader) {
    const char *text = loader->tokenizer->data[SNUG_TOKENIZER_JSON];
    size_t size = loader->tokenizer->sizes[SNUG_TOKENIZER_JSON], open, close;
    char *rest;
    if (!find_vocabulary(&loader->tokenizer->model, text, &open, &close)) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(loader->ctx, open + 1 + size - close, 1, (void **)&rest));
    memcpy(rest, text, open + 1);
    memcpy(rest + open + 1, text + close, size - close);
    json_error_t error;
    loader->json = snug_json_parse(rest, open + 1 + size - close, 0, &error);
    free(rest);
    if (json_object_size(json_object_get(json_object_get(loader->json, "model"), "vocab")) == 0) return SNUG_OK;
    json_decref(loader->json); /* what was left out is not the model's vocabulary */
    loader->json = NULL;
    return SNUG_OK;
}

static snug_status read_tokenizer_json(struct loader *loader) {
    if (loader->read) RETURN_IF_ERROR(parse_without_vocabulary(loader));
    if (json_is_object(loader->json)) return SNUG_OK;
    loader->read = false;
    json_decref(loader->json);
    loader->json = NULL;
    return parse_optional(loader, SNUG_TOKENIZER_JSON, &loader->json);
}

/* The vocabulary of tokenizer.json, which transformers prefers to vocab.txt. */
static snug_status take_json_vocabulary(struct loader *loader, const json_t *vocab) {
    snug_context *ctx = loader->ctx;
    const char *path = path_of(loader, SNUG_TOKENIZER_JSON);
    struct snug_wordpiece *model = &loader->tokenizer->model;
    size_t bytes = 0;
    int64_t size = 0;
    const char *key;
    json_t *value;
    if (!json_is_object(vocab)) return snug_fail(ctx, SNUG_E_INPUT, "%s: \"model\" has no object \"vocab\"", path);
    json_object_foreach((json_t *)vocab, key, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: the id of token \"%s\" is not a number from 0", path, key);
        bytes += strlen(key) + 1;
        if (json_integer_value(value) >= size) size = json_integer_value(value) + 1;
    }
    RETURN_IF_ERROR(snug_wordpiece_reserve(ctx, model, path, (int64_t)json_object_size(vocab), size, bytes));
    char *to = model->texts;
    json_object_foreach((json_t *)vocab, key, value) {
        size_t length = strlen(key);
        memcpy(to, key, length + 1);
        RETURN_IF_ERROR(snug_wordpiece_add(ctx, model, path, to, length, json_integer_value(value)));
        to += length + 1;
    }
    return SNUG_OK;
}

/* a is that of vocab.txt, which leaves out no id: nor does one of as many tokens. */
static bool same_vocabulary(const struct snug_wordpiece *a, const struct snug_wordpiece *b) {
    if (a->size != b->size || a->count != b->count) return false;
    for (int64_t id = 0; id < a->size; id++)
        if (strcmp(a->tokens[id], b->tokens[id]) != 0) return false;
    return true;
}

/* What is not used is not copied into a trained model's folder either: it may be anything. */
static void forget_vocabulary_file(struct loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    free(tokenizer->paths[SNUG_TOKENIZER_VOCAB]);
    free(tokenizer->data[SNUG_TOKENIZER_VOCAB]);
    tokenizer->paths[SNUG_TOKENIZER_VOCAB] = tokenizer->data[SNUG_TOKENIZER_VOCAB] = NULL;
}

static snug_status load_vocabulary(struct loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_wordpiece *model = &loader->tokenizer->model;
    const char *json_path = path_of(loader, SNUG_TOKENIZER_JSON);
    snug_status status = read_vocabulary_file(loader);
    if (!json_path || status == SNUG_E_MEMORY) return status;
    if (status != SNUG_OK) { /* transformers does not look into it beside a tokenizer.json */
        snug_log(ctx, SNUG_LOG_WARNING, "%s; %s is used instead", snug_error_message(ctx), json_path);
        snug_clear_error(ctx);
        snug_wordpiece_free(model);
        forget_vocabulary_file(loader);
    }
    bool had = loader->read;
    RETURN_IF_ERROR(read_tokenizer_json(loader));
    const json_t *part = member(loader->json, "model");
    const char *type = type_of(part);
    if (!part || (json_object_get(part, "type") && strcmp(type, "WordPiece") != 0))
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s: the model %s is not supported, only WordPiece", json_path,
                         part ? type : "null");
    if (loader->read) return SNUG_OK;
    struct snug_wordpiece other = *model;
    *model = (struct snug_wordpiece){0};
    status = take_json_vocabulary(loader, json_object_get(part, "vocab"));
    if (status == SNUG_OK && had && !same_vocabulary(&other, model)) {
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%s and %s have different vocabularies; the latter is used, as transformers does",
                 path_of(loader, SNUG_TOKENIZER_VOCAB), json_path);
        forget_vocabulary_file(loader);
    }
    snug_wordpiece_free(&other);
    return status;
}

/* ---- normalizer and model ------------------------------------------------------------------------------------ */

/* The normalizer of tokenizer.json; none at all leaves the text alone. */
static snug_status json_normalizer(struct loader *loader, struct snug_normalizer *out) {
    snug_context *ctx = loader->ctx;
    const char *path = path_of(loader, SNUG_TOKENIZER_JSON);
    const json_t *part = member(loader->json, "normalizer");
    *out = (struct snug_normalizer){0};
    if (!part) return SNUG_OK;
    if (strcmp(type_of(part), "BertNormalizer") != 0)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s: the normalizer %s is not supported, only BertNormalizer", path,
                         type_of(part));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, part, "clean_text", true, &out->clean_text));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, part, "handle_chinese_chars", true, &out->handle_chinese_chars));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, part, "lowercase", true, &out->lowercase));
    return snug_json_bool(ctx, path, part, "strip_accents", out->lowercase, &out->strip_accents);
}

/* What BertTokenizer makes of tokenizer_config.json. */
static snug_status config_normalizer(struct loader *loader, struct snug_normalizer *out) {
    snug_context *ctx = loader->ctx;
    const char *path = path_of(loader, SNUG_TOKENIZER_CONFIG);
    const json_t *config = loader->sources.config;
    *out = (struct snug_normalizer){true, true, true, true};
    if (!config) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_bool(ctx, path, config, "do_lower_case", true, &out->lowercase));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, config, "tokenize_chinese_chars", true, &out->handle_chinese_chars));
    return snug_json_bool(ctx, path, config, "strip_accents", out->lowercase, &out->strip_accents);
}

static void warn_of_difference(struct loader *loader, const char *what, bool config, bool json) {
    if (config == json) return;
    snug_log(loader->ctx, SNUG_LOG_WARNING,
             "%s: %s is %s by tokenizer_config.json and %s by tokenizer.json; %s holds, as in transformers 5",
             loader->folder, what, config ? "true" : "false", json ? "true" : "false",
             loader->own ? "tokenizer.json" : "tokenizer_config.json");
}

static snug_status load_normalizer(struct loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_normalizer config, json;
    RETURN_IF_ERROR(config_normalizer(loader, &config));
    loader->tokenizer->normalizer = config;
    if (!loader->json) return SNUG_OK;
    snug_status status = json_normalizer(loader, &json);
    if (loader->own) loader->tokenizer->normalizer = json;
    if (status != SNUG_OK && !loader->own) {
        snug_log(ctx, SNUG_LOG_WARNING, "%s; tokenizer_config.json holds, as in transformers 5",
                 snug_error_message(ctx));
        snug_clear_error(ctx);
        return SNUG_OK;
    }
    if (status != SNUG_OK || !loader->sources.config) return status;
    warn_of_difference(loader, "clean_text", config.clean_text, json.clean_text);
    warn_of_difference(loader, "do_lower_case", config.lowercase, json.lowercase);
    warn_of_difference(loader, "strip_accents", config.strip_accents, json.strip_accents);
    warn_of_difference(loader, "tokenize_chinese_chars", config.handle_chinese_chars, json.handle_chinese_chars);
    return SNUG_OK;
}

static snug_status finish_model(struct loader *loader) {
    snug_context *ctx = loader->ctx;
    const char *path = path_of(loader, loader->json ? SNUG_TOKENIZER_JSON : SNUG_TOKENIZER_VOCAB);
    const char *unk = loader->sources.named[SNUG_NAMED_UNK].content, *prefix = "##";
    int64_t max_word = 100;
    if (loader->own) {
        const json_t *part = json_object_get(loader->json, "model"), *splitter = member(loader->json, "pre_tokenizer");
        if (!splitter || strcmp(type_of(splitter), "BertPreTokenizer") != 0)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                             "%s: the pre_tokenizer %s is not supported, only BertPreTokenizer", path,
                             splitter ? type_of(splitter) : "null");
        RETURN_IF_ERROR(snug_json_string(ctx, path, part, "unk_token", "[UNK]", &unk));
        RETURN_IF_ERROR(snug_json_string(ctx, path, part, "continuing_subword_prefix", "##", &prefix));
        RETURN_IF_ERROR(snug_json_int(ctx, path, part, "max_input_chars_per_word", 100, &max_word));
    }
    return snug_wordpiece_finish(ctx, &loader->tokenizer->model, path, unk ? unk : "[UNK]", prefix, max_word);
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

static snug_status index_tokens(struct loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    const struct snug_wordpiece *model = &tokenizer->model;
    const int64_t size = snug_added_tokens_end(&tokenizer->added, model);
    RETURN_IF_ERROR(snug_alloc(loader->ctx, (size_t)size, sizeof *tokenizer->tokens, (void **)&tokenizer->tokens));
    tokenizer->vocab_size = size;
    memcpy(tokenizer->tokens, model->tokens, (size_t)model->size * sizeof *model->tokens);
    for (size_t i = 0; i < tokenizer->added.count; i++)
        tokenizer->tokens[tokenizer->added.items[i].id] = tokenizer->added.items[i].content;
    return SNUG_OK;
}

static snug_status compute_fingerprint(struct loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    XXH3_state_t *hash = XXH3_createState();
    if (!hash) return snug_fail(loader->ctx, SNUG_E_MEMORY, "out of memory while reading %s", loader->folder);
    const struct snug_normalizer *normalizer = &tokenizer->normalizer;
    const struct snug_special_ids *special = &tokenizer->special;
    const int64_t facts[] = {CODE_VERSION,
                             normalizer->clean_text,
                             normalizer->handle_chinese_chars,
                             normalizer->strip_accents,
                             normalizer->lowercase,
                             tokenizer->model.unk,
                             tokenizer->model.max_word,
                             tokenizer->model.size,
                             tokenizer->added.ignore_special,
                             tokenizer->truncate_left,
                             special->cls,
                             special->sep};
    XXH3_64bits_reset(hash);
    XXH3_64bits_update(hash, facts, sizeof facts);
    XXH3_64bits_update(hash, tokenizer->model.prefix, strlen(tokenizer->model.prefix) + 1);
    for (int64_t id = 0; id < tokenizer->model.size; id++) {
        const char *token = tokenizer->model.tokens[id];
        XXH3_64bits_update(hash, token ? token : "", token ? strlen(token) + 1 : 1);
    }
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const struct snug_added_token *token = &tokenizer->added.items[i];
        const int32_t flags[] = {token->id,     token->single_word, token->lstrip,
                                 token->rstrip, token->normalized,  token->special};
        XXH3_64bits_update(hash, token->content, strlen(token->content) + 1);
        XXH3_64bits_update(hash, flags, sizeof flags);
    }
    tokenizer->fingerprint = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return SNUG_OK;
}

static snug_status load(struct loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    struct snug_special_sources *sources = &loader->sources;
    RETURN_IF_ERROR(read_files(loader));
    sources->paths = tokenizer->paths;
    RETURN_IF_ERROR(parse_optional(loader, SNUG_TOKENIZER_CONFIG, &sources->config));
    RETURN_IF_ERROR(parse_optional(loader, SNUG_TOKENIZER_SPECIAL_MAP, &sources->map));
    RETURN_IF_ERROR(parse_optional(loader, SNUG_TOKENIZER_ADDED, &sources->added));
    RETURN_IF_ERROR(resolve_class(loader));
    if (json_object_get(sources->config, "auto_map"))
        snug_log(ctx, SNUG_LOG_WARNING, "%s: auto_map names Python code; snug runs none",
                 path_of(loader, SNUG_TOKENIZER_CONFIG));
    RETURN_IF_ERROR(load_vocabulary(loader));
    sources->json = loader->json;
    sources->own = loader->own;
    RETURN_IF_ERROR(load_normalizer(loader));
    RETURN_IF_ERROR(snug_special_tokens_collect(ctx, sources));
    RETURN_IF_ERROR(finish_model(loader));
    RETURN_IF_ERROR(snug_special_tokens_add(ctx, sources, tokenizer));
    RETURN_IF_ERROR(index_tokens(loader));
    return compute_fingerprint(loader);
}

snug_status snug_tokenizer_load(snug_context *ctx, const char *folder, struct snug_tokenizer **out) {
    struct loader loader = {.ctx = ctx, .folder = folder};
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *loader.tokenizer, (void **)&loader.tokenizer));
    snug_status status = load(&loader);
    snug_special_sources_free(&loader.sources);
    json_decref(loader.json);
    if (status == SNUG_OK)
        *out = loader.tokenizer;
    else
        snug_tokenizer_free(loader.tokenizer);
    return status;
}
