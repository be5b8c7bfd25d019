/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a folder's tokenizer files as transformers 5 does (AutoTokenizer, TokenizersBackend).
 *
 * A class such as BertTokenizer or RobertaTokenizer uses only the vocabulary of tokenizer.json (the merges, the scores,
 * the Precompiled normalizer) and, if tokenizer_config.json has no added_tokens_decoder, the added tokens: the other
 * parts are those of tokenizer/tokenizer_class.h. Of a class that wraps any tokenizer.json, all of it is used.
 */
#include <stdlib.h>
#include <string.h>

#include "io/folder.h"
#include "io/json.h"
#include "tokenizer/fingerprint.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_load.h"

/* ---- files ----------------------------------------------------------------------------------------------------- */

const json_t *snug_loader_member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

const char *snug_loader_path(const struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file) {
    return loader->tokenizer->paths[file];
}

snug_status snug_loader_read_file(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    return snug_file_read(loader->ctx, NULL, tokenizer->paths[file], &tokenizer->data[file], &tokenizer->sizes[file]);
}

void snug_loader_forget(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    free(tokenizer->paths[file]);
    free(tokenizer->data[file]);
    tokenizer->paths[file] = tokenizer->data[file] = NULL;
}

snug_status snug_loader_parse(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file, json_t **out) {
    const struct snug_tokenizer *tokenizer = loader->tokenizer;
    if (!tokenizer->paths[file]) return SNUG_OK;
    return snug_json_read_text(loader->ctx, tokenizer->paths[file], tokenizer->data[file], tokenizer->sizes[file], out);
}

/* Whether a file is read before the class is known. */
static bool is_read_first(enum snug_tokenizer_file file) {
    return file == SNUG_TOKENIZER_JSON || file == SNUG_TOKENIZER_CONFIG || file == SNUG_TOKENIZER_SPECIAL_MAP ||
           file == SNUG_TOKENIZER_ADDED || file == SNUG_TOKENIZER_CHAT_TEMPLATE ||
           file == SNUG_TOKENIZER_CHAT_TEMPLATE_JSON;
}

/* Reads each file once, vocabularies later: so the saved file is the used one, even if the file changes. */
/* Each tokenizer has one of these. */
static bool has_vocabulary(int file) {
    return file == SNUG_TOKENIZER_VOCAB || file == SNUG_TOKENIZER_JSON || file == SNUG_TOKENIZER_VOCAB_JSON ||
           file == SNUG_TOKENIZER_SENTENCEPIECE || file == SNUG_TOKENIZER_SPM || file == SNUG_TOKENIZER_MODEL;
}

bool snug_tokenizer_is_in(const struct snug_folder *folder) {
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++)
        if (has_vocabulary(file) && snug_file_exists(folder, snug_tokenizer_file_names[file])) return true;
    return false;
}

static snug_status read_files(struct snug_tokenizer_loader *loader) {
    bool found = false;
    char **paths = loader->tokenizer->paths;
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
        RETURN_IF_ERROR(snug_path_join(loader->ctx, &paths[file], loader->folder, snug_tokenizer_file_names[file]));
        if (snug_entry_kind(NULL, paths[file])) {
            found |= has_vocabulary(file);
            if (is_read_first(file)) RETURN_IF_ERROR(snug_loader_read_file(loader, file));
            continue;
        }
        free(paths[file]);
        paths[file] = NULL;
    }
    if (found) return SNUG_OK;
    return snug_fail(
        loader->ctx, SNUG_E_INPUT,
        "%s has no tokenizer: neither vocab.txt, nor tokenizer.json, nor vocab.json, nor "
        "sentencepiece.bpe.model, nor spm.model, nor tokenizer.model; give a folder that has one with --tokenizer_name",
        loader->folder);
}

/* The class of the model type in config.json; NULL if it is not known. */
static const struct snug_tokenizer_class *class_of_model(const struct snug_tokenizer_loader *loader,
                                                         const json_t *config, bool *keeps) {
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *name = type ? loader->class_of_type(type, keeps) : NULL;
    if (type && strcmp(type, "gpt2") == 0) name = "GPT2Tokenizer";
    return name ? snug_tokenizer_class_find(name) : NULL;
}

/* The class of a folder without tokenizer.json, where the chosen one only wraps that. */
static const struct snug_tokenizer_class *class_of_files(const struct snug_tokenizer_loader *loader,
                                                         const struct snug_tokenizer_class *named) {
    if (snug_loader_path(loader, SNUG_TOKENIZER_MODEL) && !snug_loader_path(loader, SNUG_TOKENIZER_VOCAB))
        return snug_tokenizer_class_of_pieces();
    return named && named->json ? named : snug_tokenizer_class_default();
}

/*
 * AutoTokenizer's choice: tokenizer_class of tokenizer_config.json, or else of config.json, or else the class of the
 * model type. Some model types have one class, whatever a folder names.
 */
static snug_status choose_class(struct snug_tokenizer_loader *loader, const char *config_path, const json_t *config) {
    const char *name = NULL;
    bool keeps = false;
    if (loader->sources.config)
        RETURN_IF_ERROR(snug_json_string(loader->ctx, snug_loader_path(loader, SNUG_TOKENIZER_CONFIG),
                                         loader->sources.config, "tokenizer_class", NULL, &name));
    if (!name && config)
        RETURN_IF_ERROR(snug_json_string(loader->ctx, config_path, config, "tokenizer_class", NULL, &name));
    const struct snug_tokenizer_class *of_model = class_of_model(loader, config, &keeps),
                                      *any = snug_tokenizer_class_find("TokenizersBackend"),
                                      *named = name ? snug_tokenizer_class_find(name) : NULL;
    loader->class = name && !keeps ? named : of_model ? of_model : any;
    if (!loader->class)
        return snug_fail(loader->ctx, SNUG_E_UNSUPPORTED,
                         "%s: the tokenizer class \"%s\" is not supported, only BertTokenizer, MPNetTokenizer "
                         "(WordPiece), RobertaTokenizer, GPT2Tokenizer, Qwen2Tokenizer, LlamaTokenizer, GemmaTokenizer "
                         "(BPE), XLMRobertaTokenizer, CamembertTokenizer, DebertaV2Tokenizer "
                         "(Unigram), and PreTrainedTokenizerFast with a tokenizer.json",
                         loader->folder, name);
    const bool json = snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    if (!json && !loader->class->json) loader->class = class_of_files(loader, named);
    loader->own = loader->sources.own = json && loader->class->wraps;
    return SNUG_OK;
}

/* The class's JSON, without the sections that are tokenizer.json's. */
static snug_status parse_class(struct snug_tokenizer_loader *loader) {
    static const char *const wrapped[] = {"normalizer", "pre_tokenizer", "model", "decoder"};
    RETURN_IF_ERROR(snug_tokenizer_class_parse(loader->ctx, loader->class, &loader->class_json));
    for (size_t i = 0; loader->own && i < 4; i++) json_object_del(loader->class_json, wrapped[i]);
    loader->sources.class = loader->class_json;
    return SNUG_OK;
}

/* Whether a part is ByteLevel, or a Sequence that has one. */
static bool is_byte_level(const json_t *part, const char *list) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *parts = json_object_get(part, list);
    bool found = type && !strcmp(type, "ByteLevel");
    for (size_t i = 0; i < json_array_size(parts); i++) found |= is_byte_level(json_array_get(parts, i), "");
    return found;
}

snug_status snug_loader_wrap_bytes(struct snug_tokenizer_loader *loader) {
    if (!loader->class->wraps_bytes ||
        (!is_byte_level(json_object_get(loader->json, "pre_tokenizer"), "pretokenizers") &&
         !is_byte_level(json_object_get(loader->json, "decoder"), "decoders")))
        return SNUG_OK;
    snug_log(loader->ctx, SNUG_LOG_WARNING,
             "%s is byte-level, which a %s is not: all of it is used, as by transformers 5; write "
             "\"tokenizer_class\": \"TokenizersBackend\" in tokenizer_config.json",
             snug_loader_path(loader, SNUG_TOKENIZER_JSON), loader->class->name);
    loader->class = snug_tokenizer_class_find("TokenizersBackend");
    loader->own = loader->sources.own = true;
    json_decref(loader->class_json);
    loader->class_json = NULL;
    return parse_class(loader);
}

static snug_status resolve_class(struct snug_tokenizer_loader *loader) {
    char *path;
    json_t *config = NULL;
    RETURN_IF_ERROR(snug_path_join(loader->ctx, &path, loader->folder, "config.json"));
    snug_status status = snug_file_exists(NULL, path) ? snug_json_read(loader->ctx, NULL, path, &config) : SNUG_OK;
    if (status == SNUG_OK) status = choose_class(loader, path, config);
    if (status == SNUG_OK) status = parse_class(loader);
    json_decref(config);
    free(path);
    return status;
}

/* ---- settings of tokenizer_config.json ------------------------------------------------------------------------- */

/* model_input_names: whether it has token_type_ids, if it is given. */
static snug_status read_input_names(struct snug_tokenizer_loader *loader) {
    const json_t *names = snug_loader_member(loader->sources.config, "model_input_names");
    if (!names) names = json_object_get(loader->class_json, "model_input_names");
    if (names && !json_is_array(names))
        return snug_fail(loader->ctx, SNUG_E_INPUT, "%s: \"model_input_names\" must be a list of names",
                         snug_loader_path(loader, SNUG_TOKENIZER_CONFIG));
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        loader->tokenizer->types |= name && !strcmp(name, "token_type_ids");
    }
    return SNUG_OK;
}

/* model_max_length, or max_len of old files. Tokenizers without a limit have 10^30. */
static snug_status read_max_length(struct snug_tokenizer_loader *loader) {
    const json_t *config = loader->sources.config;
    const char *key = json_object_get(config, "model_max_length") ? "model_max_length" : "max_len";
    const json_t *value = snug_loader_member(config, key);
    loader->tokenizer->max_length = INT64_MAX;
    if (!value) return SNUG_OK;
    if (!json_is_number(value) || json_number_value(value) < 1)
        return snug_fail(loader->ctx, SNUG_E_INPUT, "%s: \"%s\" must be a number of tokens, from 1",
                         snug_loader_path(loader, SNUG_TOKENIZER_CONFIG), key);
    if (json_number_value(value) <= INT32_MAX) loader->tokenizer->max_length = (int64_t)json_number_value(value);
    return SNUG_OK;
}

/* truncation_side, or else the side of tokenizer.json's truncation, whose other settings have no effect. */
static snug_status read_truncation_side(struct snug_tokenizer_loader *loader) {
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_CONFIG), *side;
    const char *direction =
        json_string_value(json_object_get(json_object_get(loader->json, "truncation"), "direction"));
    const bool left = direction && !strcmp(direction, "Left");
    RETURN_IF_ERROR(
        snug_json_string(loader->ctx, path, loader->sources.config, "truncation_side", left ? "left" : "right", &side));
    loader->tokenizer->truncate_left = !strcmp(side, "left");
    if (loader->tokenizer->truncate_left || !strcmp(side, "right")) return SNUG_OK;
    return snug_fail(loader->ctx, SNUG_E_INPUT, "%s: \"truncation_side\" must be \"left\" or \"right\", not \"%s\"",
                     path, side);
}

static snug_status read_settings(struct snug_tokenizer_loader *loader) {
    loader->tokenizer->prefix_words = loader->class->prefix_words;
    RETURN_IF_ERROR(read_input_names(loader));
    RETURN_IF_ERROR(read_max_length(loader));
    return read_truncation_side(loader);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

const char *snug_loader_source(const struct snug_tokenizer_loader *loader) {
    static const enum snug_tokenizer_file vocabularies[] = {
        [SNUG_MODEL_WORDPIECE] = SNUG_TOKENIZER_VOCAB,
        [SNUG_MODEL_BPE] = SNUG_TOKENIZER_VOCAB_JSON,
        [SNUG_MODEL_UNIGRAM] = SNUG_TOKENIZER_SENTENCEPIECE,
    };
    if (loader->json) return snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    return snug_loader_path(loader, loader->class->pieces ? SNUG_TOKENIZER_MODEL
                                    : loader->class->spm  ? SNUG_TOKENIZER_SPM
                                                          : vocabularies[loader->tokenizer->kind]);
}

static snug_status fill(const struct snug_tokenizer_loader *loader, const json_t *class, const json_t *part,
                        json_t **out) {
    const struct snug_class_settings settings = {
        loader->ctx, snug_loader_source(loader), snug_loader_path(loader, SNUG_TOKENIZER_CONFIG),
        class,       &loader->sources,           loader->tokenizer};
    return snug_tokenizer_class_fill(&settings, part, out);
}

snug_status snug_loader_section(const struct snug_tokenizer_loader *loader, const char *key, json_t **out) {
    const json_t *part = json_object_get(loader->class_json, key);
    *out = NULL;
    if (part) return fill(loader, loader->class_json, part, out);
    *out = json_incref(json_object_get(loader->json, key));
    return SNUG_OK;
}

/* A setting of a BertNormalizer; without one nothing is changed. */
static bool normalizes(const json_t *normalizer, const char *key) {
    const json_t *value = snug_loader_member(normalizer, key);
    if (value) return json_is_true(value);
    return json_is_object(normalizer) && (strcmp(key, "strip_accents") != 0 || normalizes(normalizer, "lowercase"));
}

/* Logs what tokenizer_config.json and tokenizer.json say differently about BertTokenizer's normalizer. */
static void compare_normalizers(const struct snug_tokenizer_loader *loader, const json_t *config, const json_t *json) {
    static const char *const keys[][2] = {{"clean_text", "clean_text"},
                                          {"do_lower_case", "lowercase"},
                                          {"strip_accents", "strip_accents"},
                                          {"tokenize_chinese_chars", "handle_chinese_chars"}};
    const char *type = json_string_value(json_object_get(json, "type"));
    if (type && strcmp(type, "BertNormalizer") != 0) {
        if (!loader->own)
            snug_log(loader->ctx, SNUG_LOG_WARNING,
                     "%s: the normalizer is not BertNormalizer; using tokenizer_config.json, as transformers 5 does",
                     snug_loader_path(loader, SNUG_TOKENIZER_JSON));
        return;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const bool a = normalizes(config, keys[i][1]), b = normalizes(json, keys[i][1]);
        if (a != b)
            snug_log(loader->ctx, SNUG_LOG_WARNING,
                     "%s: %s is %s in tokenizer_config.json and %s in tokenizer.json; using %s, as transformers 5 does",
                     loader->folder, keys[i][0], a ? "true" : "false", b ? "true" : "false",
                     loader->own ? "tokenizer.json" : "tokenizer_config.json");
    }
}

/* Logs what is not used of two normalizers. */
static snug_status warn_of_normalizers(const struct snug_tokenizer_loader *loader, const json_t *used) {
    const json_t *json = snug_loader_member(loader->json, "normalizer");
    if (loader->tokenizer->kind == SNUG_MODEL_BPE && json && !loader->own)
        snug_log(loader->ctx, SNUG_LOG_WARNING, "%s: a %s has no normalizer; it is not used, as in transformers 5",
                 snug_loader_source(loader), loader->class->name);
    if (loader->tokenizer->kind != SNUG_MODEL_WORDPIECE || !loader->json || !loader->sources.config) return SNUG_OK;
    json_t *class = NULL, *config = NULL;
    snug_status status = snug_tokenizer_class_parse(loader->ctx, snug_tokenizer_class_default(), &class);
    if (status == SNUG_OK) status = fill(loader, class, json_object_get(class, "normalizer"), &config);
    if (status == SNUG_OK) compare_normalizers(loader, loader->own ? config : used, json);
    json_decref(config);
    json_decref(class);
    return status;
}

static snug_status load_normalizer(struct snug_tokenizer_loader *loader) {
    struct snug_normalizer *out = &loader->tokenizer->normalizer;
    const char *path = snug_loader_source(loader);
    json_t *part;
    RETURN_IF_ERROR(snug_loader_section(loader, "normalizer", &part));
    const bool precompiled = !loader->own && loader->tokenizer->kind == SNUG_MODEL_UNIGRAM && !loader->class->spm;
    snug_status status = SNUG_OK;
    if (!precompiled)
        status = snug_json_normalizer(loader->ctx, path, part, out);
    else if (loader->json)
        status = snug_json_precompiled(loader->ctx, path, json_object_get(loader->json, "normalizer"), out);
    if (status == SNUG_OK) status = warn_of_normalizers(loader, part);
    json_decref(part);
    return status;
}

static snug_status load_pretokenizer(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    const struct snug_tokenizer *tokenizer = loader->tokenizer;
    const struct snug_pretokenizer *out = &tokenizer->pretokenizer;
    const char *path = snug_loader_source(loader);
    json_t *part;
    RETURN_IF_ERROR(snug_loader_section(loader, "pre_tokenizer", &part));
    const snug_status status = snug_json_pretokenizer(ctx, path, part, &loader->tokenizer->pretokenizer);
    json_decref(part);
    RETURN_IF_ERROR(status);
    for (size_t i = 0; i < out->count; i++) {
        const struct snug_pretokenizer_step *step = &out->steps[i];
        if (step->kind == SNUG_SPLITTING_BYTE_LEVEL && (i + 1 < out->count || tokenizer->kind != SNUG_MODEL_BPE))
            return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s: the pre_tokenizer ByteLevel is not supported %s", path,
                             i + 1 < out->count ? "before another one" : "with another model than BPE");
        if (step->kind == SNUG_SPLITTING_METASPACE && step->prefix == SNUG_PREFIX_FIRST && tokenizer->normalizer.count)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                             "%s: \"prepend_scheme\" first of the pre_tokenizer Metaspace is not supported after a "
                             "normalizer",
                             path);
    }
    return SNUG_OK;
}

/* Rows of a tokenizer without a post_processor: without special tokens beside a tokenizer.json, and else with bos_token
   and eos_token where add_bos_token and add_eos_token say so, which transformers 5 ignores beside a tokenizer.json. */
static snug_status plain_rows(struct snug_tokenizer_loader *loader, struct snug_post_processor *out) {
    static const char *const keys[] = {"add_bos_token", "add_eos_token"}, *const names[] = {"bos_token", "eos_token"};
    int32_t around[2] = {-1, -1};
    for (size_t i = 0; i < 2; i++) {
        bool added;
        const char *path = snug_loader_path(loader, SNUG_TOKENIZER_CONFIG);
        RETURN_IF_ERROR(snug_json_bool(loader->ctx, path, loader->sources.config, keys[i], false, &added));
        if (added && loader->json)
            snug_log(loader->ctx, SNUG_LOG_WARNING,
                     "%s: \"%s\" has no effect beside a tokenizer.json, as in transformers 5", path, keys[i]);
        else if (added)
            around[i] = snug_special_tokens_id(&loader->sources, loader->tokenizer, names[i]);
    }
    for (int pair = 0; out && pair < 2; pair++) {
        struct snug_template *rows = pair ? &out->pair : &out->single;
        for (int32_t type = 0; type <= pair; type++) {
            const int32_t pieces[] = {around[0], type ? SNUG_PIECE_B : SNUG_PIECE_A, around[1]};
            for (int i = 0; i < 3; i++)
                if (i == 1 || pieces[i] >= 0)
                    RETURN_IF_ERROR(snug_template_add(loader->ctx, rows, loader->folder, pieces[i], type));
        }
    }
    return SNUG_OK;
}

/* clean_up_tokenization_spaces has no effect on a BPE model, as in transformers 5, unless another setting says so. */
static snug_status load_decoder(struct snug_tokenizer_loader *loader) {
    static const char bpe_key[] = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
    snug_context *ctx = loader->ctx;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_CONFIG);
    bool also_bpe;
    json_t *part;
    RETURN_IF_ERROR(snug_json_bool(ctx, path, loader->sources.config, bpe_key, false, &also_bpe));
    RETURN_IF_ERROR(
        snug_json_bool(ctx, path, loader->sources.config, "clean_up_tokenization_spaces", false, &tokenizer->cleans));
    tokenizer->cleans &= also_bpe || tokenizer->kind != SNUG_MODEL_BPE;
    RETURN_IF_ERROR(snug_loader_section(loader, "decoder", &part));
    const snug_status status = snug_json_decoder(ctx, snug_loader_source(loader), part, &tokenizer->decoder);
    json_decref(part);
    return status;
}

static snug_status load_post_processor(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    struct snug_post_processor *out = &tokenizer->post_processor;
    struct snug_special_ids special = tokenizer->special;
    const char *path = snug_loader_source(loader), *name;
    const bool of_class = json_object_get(loader->class_json, "post_processor");
    json_t *part;
    RETURN_IF_ERROR(load_decoder(loader));
    RETURN_IF_ERROR(snug_loader_section(loader, "post_processor", &part));
    snug_status status = snug_json_post_processor(ctx, path, part, out, &special);
    if (!of_class) tokenizer->special = special;
    name = json_string_value(json_object_get(part, "type"));
    const bool rows = out->single.count || out->pair.count;
    if (status == SNUG_OK && rows)
        status = snug_post_processor_check(ctx, out, path, name,
                                           snug_added_tokens_end(&tokenizer->added, &tokenizer->vocabulary));
    if (status == SNUG_OK && !of_class) status = plain_rows(loader, rows ? NULL : out);
    /* Most decoders have none around a row, and say nothing of it: BPE without a cls_token. */
    const bool expected = tokenizer->kind == SNUG_MODEL_BPE && tokenizer->special.cls < 0;
    if (status == SNUG_OK && loader->json && !of_class && !expected && (!part || json_is_null(part)))
        snug_log(ctx, SNUG_LOG_WARNING, "%s has no post_processor: rows have no special tokens, as in transformers",
                 path);
    json_decref(part);
    return status;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static snug_status index_tokens(struct snug_tokenizer_loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    const struct snug_vocabulary *vocabulary = &tokenizer->vocabulary;
    const int64_t size = snug_added_tokens_end(&tokenizer->added, vocabulary);
    RETURN_IF_ERROR(snug_alloc(loader->ctx, (size_t)size, sizeof *tokenizer->tokens, (void **)&tokenizer->tokens));
    tokenizer->vocab_size = size;
    memcpy(tokenizer->tokens, vocabulary->tokens, (size_t)vocabulary->size * sizeof *vocabulary->tokens);
    for (size_t i = 0; i < tokenizer->added.count; i++)
        tokenizer->tokens[tokenizer->added.items[i].id] = tokenizer->added.items[i].content;
    return SNUG_OK;
}

/* Makes config the saved tokenizer_config.json; NULL: out of memory. Takes it. */
static snug_status save_config(struct snug_tokenizer_loader *loader, json_t *config) {
    const enum snug_tokenizer_file file = SNUG_TOKENIZER_CONFIG;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    char *text;
    if (!config) return snug_fail(loader->ctx, SNUG_E_MEMORY, "out of memory while reading %s", loader->folder);
    const snug_status status = snug_json_text(loader->ctx, config, JSON_INDENT(2), &text);
    json_decref(config);
    RETURN_IF_ERROR(status);
    free(tokenizer->data[file]);
    tokenizer->data[file] = text;
    tokenizer->sizes[file] = strlen(text);
    if (tokenizer->paths[file]) return SNUG_OK;
    return snug_path_join(loader->ctx, &tokenizer->paths[file], loader->folder, snug_tokenizer_file_names[file]);
}

/*
 * A tokenizer_config.json that names no class gets it where the tokenizer is saved: a model of another type may be
 * saved beside it, whose type would choose another class. TokenizersBackend has the name that transformers 4 knows.
 */
static snug_status name_class(struct snug_tokenizer_loader *loader) {
    const char *name = loader->class->json ? loader->class->name : "PreTrainedTokenizerFast";
    if (snug_loader_member(loader->sources.config, "tokenizer_class")) return SNUG_OK;
    json_t *config = loader->sources.config ? json_copy(loader->sources.config) : json_object();
    snug_json_add(&config, "tokenizer_class", json_string(name));
    return save_config(loader, config);
}

static void add_template(json_t **list, const char *name, const char *text, size_t size) {
    json_t *o = json_object();
    snug_json_add(&o, "name", json_string(name));
    snug_json_add(&o, "template", json_stringn(text, size));
    snug_json_append(list, o);
}

/* With additional_chat_templates/tool_use.jinja there are two templates. They go into tokenizer_config.json, as older
   versions of transformers write them: there they are one file of the tokenizer's, also in a checkpoint, which has no
   folders. */
static snug_status merge_templates(struct snug_tokenizer_loader *loader) {
    const struct snug_tokenizer *tokenizer = loader->tokenizer;
    const enum snug_tokenizer_file own = SNUG_TOKENIZER_CHAT_TEMPLATE;
    char *path, *text;
    size_t size;
    RETURN_IF_ERROR(snug_path_join(loader->ctx, &path, loader->folder, "additional_chat_templates/tool_use.jinja"));
    const bool found = tokenizer->paths[own] && snug_file_exists(NULL, path);
    const snug_status status = found ? snug_file_read(loader->ctx, NULL, path, &text, &size) : SNUG_OK;
    free(path);
    if (status != SNUG_OK || !found) return status;
    json_t *config = loader->sources.config ? json_copy(loader->sources.config) : json_object(), *list = json_array();
    add_template(&list, "default", tokenizer->data[own], tokenizer->sizes[own]);
    add_template(&list, "tool_use", text, size);
    free(text);
    snug_json_add(&config, "chat_template", list);
    snug_loader_forget(loader, own);
    json_decref(loader->sources.config);
    loader->sources.config = json_incref(config);
    return save_config(loader, config);
}

static snug_status load(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    struct snug_special_sources *sources = &loader->sources;
    RETURN_IF_ERROR(read_files(loader));
    sources->paths = tokenizer->paths;
    RETURN_IF_ERROR(snug_loader_parse(loader, SNUG_TOKENIZER_CONFIG, &sources->config));
    RETURN_IF_ERROR(merge_templates(loader));
    RETURN_IF_ERROR(snug_loader_parse(loader, SNUG_TOKENIZER_SPECIAL_MAP, &sources->map));
    RETURN_IF_ERROR(snug_loader_parse(loader, SNUG_TOKENIZER_ADDED, &sources->added));
    RETURN_IF_ERROR(resolve_class(loader));
    if (json_object_get(sources->config, "auto_map"))
        snug_log(ctx, SNUG_LOG_WARNING, "%s: auto_map names Python code; snug runs none",
                 snug_loader_path(loader, SNUG_TOKENIZER_CONFIG));
    RETURN_IF_ERROR(snug_loader_vocabulary(loader));
    sources->json = loader->json;
    RETURN_IF_ERROR(load_normalizer(loader));
    RETURN_IF_ERROR(load_pretokenizer(loader));
    RETURN_IF_ERROR(snug_special_tokens_collect(ctx, sources));
    RETURN_IF_ERROR(snug_loader_model(loader));
    RETURN_IF_ERROR(read_settings(loader));
    RETURN_IF_ERROR(snug_special_tokens_add(ctx, sources, tokenizer));
    RETURN_IF_ERROR(snug_special_tokens_texts(ctx, sources, &tokenizer->named));
    RETURN_IF_ERROR(load_post_processor(loader));
    RETURN_IF_ERROR(index_tokens(loader));
    RETURN_IF_ERROR(snug_fingerprint_compute(ctx, tokenizer));
    return name_class(loader);
}

snug_status snug_tokenizer_load(snug_context *ctx, const char *folder, snug_class_of_type *class_of_type,
                                struct snug_tokenizer **out) {
    struct snug_tokenizer_loader loader = {.ctx = ctx, .folder = folder, .class_of_type = class_of_type};
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *loader.tokenizer, (void **)&loader.tokenizer));
    snug_status status = load(&loader);
    snug_special_sources_free(&loader.sources);
    snug_sentencepiece_free(&loader.sentencepiece);
    json_decref(loader.class_json);
    json_decref(loader.json);
    if (status == SNUG_OK)
        *out = loader.tokenizer;
    else
        snug_tokenizer_free(loader.tokenizer);
    return status;
}
