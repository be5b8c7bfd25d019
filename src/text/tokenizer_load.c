/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a folder's tokenizer files as transformers 5 does (AutoTokenizer, TokenizersBackend).
 *
 * A class such as BertTokenizer or RobertaTokenizer uses only the vocabulary of tokenizer.json (the merges, the scores,
 * the Precompiled normalizer) and, if tokenizer_config.json has no added_tokens_decoder, the added tokens: it builds
 * the other parts from tokenizer_config.json. Of a class that wraps any tokenizer.json, all of it is used.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "io/folder.h"
#include "io/json.h"
#include "text/precompiled.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_load.h"
#include "text/unicode.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Part of the fingerprint; incremented whenever the code gives other tokens for the same files. */
#define CODE_VERSION 1

/* ---- classes --------------------------------------------------------------------------------------------------- */

/* In the order of enum snug_named_token: bos, eos, unk, sep, pad, cls, mask. */
#define FAIRSEQ_NAMES "<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"
static const struct snug_token_defaults of_bert = {.named = {NULL, NULL, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}};
static const struct snug_token_defaults of_mpnet = {
    .named = {"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"}, .as_objects = true, .mask_strips = true};
static const struct snug_token_defaults of_fairseq = {.named = {FAIRSEQ_NAMES}};
static const struct snug_token_defaults of_camembert = {
    .named = {FAIRSEQ_NAMES}, .mask_strips = true, .extra = {"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"}};
static const struct snug_token_defaults of_gpt2 = {.named = {"<|endoftext|>", "<|endoftext|>", "<|endoftext|>"}};

static const struct snug_tokenizer_class classes[] = {
    {.name = "BertTokenizer", .types = true, .defaults = &of_bert}, /* the first: of vocab.txt alone */
    {.name = "DistilBertTokenizer", .defaults = &of_bert},
    {.name = "ElectraTokenizer", .types = true, .defaults = &of_bert},
    {.name = "MobileBertTokenizer", .types = true, .defaults = &of_bert},
    {.name = "ConvBertTokenizer", .own = true, .types = true, .defaults = &of_bert}, /* has no __init__ of its own */
    {.name = "SqueezeBertTokenizer", .types = true, .defaults = &of_bert},
    {.name = "MPNetTokenizer", .rows = SNUG_ROWS_ROBERTA, .defaults = &of_mpnet},
    {.name = "RobertaTokenizer",
     .kind = SNUG_MODEL_BPE,
     .rows = SNUG_ROWS_ROBERTA,
     .prefix_words = true,
     .defaults = &of_fairseq},
    {.name = "XLMRobertaTokenizer", .kind = SNUG_MODEL_UNIGRAM, .rows = SNUG_ROWS_BOS_EOS, .defaults = &of_fairseq},
    {.name = "CamembertTokenizer", .kind = SNUG_MODEL_UNIGRAM, .rows = SNUG_ROWS_BOS_EOS, .defaults = &of_camembert},
    {.name = "GPT2Tokenizer",
     .kind = SNUG_MODEL_BPE,
     .rows = SNUG_ROWS_JSON,
     .prefix_words = true,
     .defaults = &of_gpt2},
    {.name = "PreTrainedTokenizer", .rows = SNUG_ROWS_JSON, .own = true},
    {.name = "TokenizersBackend", .rows = SNUG_ROWS_JSON, .own = true},
};

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
           file == SNUG_TOKENIZER_ADDED;
}

/* Reads each file once, vocabularies later: so the saved file is the used one, even if the file changes. */
static snug_status read_files(struct snug_tokenizer_loader *loader) {
    char **paths = loader->tokenizer->paths;
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
        RETURN_IF_ERROR(snug_path_join(loader->ctx, &paths[file], loader->folder, snug_tokenizer_file_names[file]));
        if (snug_entry_kind(NULL, paths[file])) {
            if (is_read_first(file)) RETURN_IF_ERROR(snug_loader_read_file(loader, file));
            continue;
        }
        free(paths[file]);
        paths[file] = NULL;
    }
    if (paths[SNUG_TOKENIZER_VOCAB] || paths[SNUG_TOKENIZER_JSON] || paths[SNUG_TOKENIZER_VOCAB_JSON] ||
        paths[SNUG_TOKENIZER_SENTENCEPIECE])
        return SNUG_OK;
    return snug_fail(loader->ctx, SNUG_E_INPUT,
                     "%s has no tokenizer: neither vocab.txt, nor tokenizer.json, nor vocab.json, nor "
                     "sentencepiece.bpe.model; give a folder that has one with --tokenizer_name",
                     loader->folder);
}

/* A class by its name, with or without "Fast"; NULL if there is none. */
static const struct snug_tokenizer_class *find_class(const char *name) {
    size_t length = strlen(name);
    if (length > 4 && !strcmp(name + length - 4, "Fast")) length -= 4;
    for (size_t i = 0; i < COUNT(classes); i++)
        if (strlen(classes[i].name) == length && !memcmp(classes[i].name, name, length)) return &classes[i];
    return NULL;
}

/* The class of the model type in config.json; NULL if it is not known. */
static const struct snug_tokenizer_class *class_of_model(const struct snug_tokenizer_loader *loader,
                                                         const json_t *config) {
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *name = type ? loader->class_of_type(type) : NULL;
    if (type && strcmp(type, "gpt2") == 0) name = "GPT2Tokenizer";
    return name ? find_class(name) : NULL;
}

/*
 * AutoTokenizer's choice: tokenizer_class of tokenizer_config.json, or else of config.json, or else the class of the
 * model type. A model type whose own class wraps any tokenizer.json keeps that.
 */
static snug_status choose_class(struct snug_tokenizer_loader *loader, const char *config_path, const json_t *config) {
    const char *name = NULL;
    if (loader->sources.config)
        RETURN_IF_ERROR(snug_json_string(loader->ctx, snug_loader_path(loader, SNUG_TOKENIZER_CONFIG),
                                         loader->sources.config, "tokenizer_class", NULL, &name));
    if (!name && config)
        RETURN_IF_ERROR(snug_json_string(loader->ctx, config_path, config, "tokenizer_class", NULL, &name));
    const struct snug_tokenizer_class *of_model = class_of_model(loader, config),
                                      *any = find_class("TokenizersBackend");
    loader->class = !name ? of_model ? of_model : any : of_model == any ? any : find_class(name);
    if (!loader->class)
        return snug_fail(loader->ctx, SNUG_E_UNSUPPORTED,
                         "%s: the tokenizer class \"%s\" is not supported, only BertTokenizer, MPNetTokenizer "
                         "(WordPiece), RobertaTokenizer, GPT2Tokenizer (BPE), XLMRobertaTokenizer, CamembertTokenizer "
                         "(Unigram), and PreTrainedTokenizerFast with a tokenizer.json",
                         loader->folder, name);
    const bool json = snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    if (!json && !loader->class->defaults) loader->class = &classes[0];
    loader->own = json && loader->class->own;
    loader->sources.defaults = loader->class->defaults;
    return SNUG_OK;
}

static snug_status resolve_class(struct snug_tokenizer_loader *loader) {
    char *path;
    json_t *config = NULL;
    RETURN_IF_ERROR(snug_path_join(loader->ctx, &path, loader->folder, "config.json"));
    snug_status status = snug_file_exists(NULL, path) ? snug_json_read(loader->ctx, NULL, path, &config) : SNUG_OK;
    if (status == SNUG_OK) status = choose_class(loader, path, config);
    json_decref(config);
    free(path);
    return status;
}

/* ---- settings of tokenizer_config.json ------------------------------------------------------------------------- */

/* model_input_names: whether it has token_type_ids, if it is given. */
static snug_status read_input_names(struct snug_tokenizer_loader *loader) {
    const json_t *names = snug_loader_member(loader->sources.config, "model_input_names");
    loader->tokenizer->types = names ? false : loader->class->types;
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

/* ---- normalizer and pre-tokenizer ------------------------------------------------------------------------------ */

/* BertTokenizer's normalizer, from tokenizer_config.json. */
static snug_status config_normalizer(struct snug_tokenizer_loader *loader, struct snug_bert_normalizer *out) {
    snug_context *ctx = loader->ctx;
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_CONFIG);
    const json_t *config = loader->sources.config;
    *out = (struct snug_bert_normalizer){true, true, true, true};
    if (!config) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_bool(ctx, path, config, "do_lower_case", true, &out->lowercase));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, config, "tokenize_chinese_chars", true, &out->handle_chinese_chars));
    return snug_json_bool(ctx, path, config, "strip_accents", out->lowercase, &out->strip_accents);
}

static void warn_of_difference(struct snug_tokenizer_loader *loader, const char *what, bool config, bool json) {
    if (config == json) return;
    snug_log(loader->ctx, SNUG_LOG_WARNING,
             "%s: %s is %s in tokenizer_config.json and %s in tokenizer.json; using %s, as transformers 5 does",
             loader->folder, what, config ? "true" : "false", json ? "true" : "false",
             loader->own ? "tokenizer.json" : "tokenizer_config.json");
}

/* Compares the settings of tokenizer_config.json with a normalizer of tokenizer.json; logs differences and the one that
   is used. */
static void compare_normalizers(struct snug_tokenizer_loader *loader, const struct snug_bert_normalizer *config,
                                const struct snug_normalizer *other) {
    /* may be untested: no supported tokenizer has it */
    if (other->count > 1 || (other->count && other->steps[0].kind != SNUG_NORMALIZER_BERT)) {
        if (!loader->own) /* may be untested: no supported tokenizer has it */
            snug_log(loader->ctx, SNUG_LOG_WARNING,
                     "%s: the normalizer is not BertNormalizer; using tokenizer_config.json, as transformers 5 does",
                     snug_loader_path(loader, SNUG_TOKENIZER_JSON));
        return;
    }
    const struct snug_bert_normalizer json = other->count ? other->steps[0].bert : (struct snug_bert_normalizer){0};
    warn_of_difference(loader, "clean_text", config->clean_text, json.clean_text);
    warn_of_difference(loader, "do_lower_case", config->lowercase, json.lowercase);
    warn_of_difference(loader, "strip_accents", config->strip_accents, json.strip_accents);
    warn_of_difference(loader, "tokenize_chinese_chars", config->handle_chinese_chars, json.handle_chinese_chars);
}

/* The normalizer of a class whose model is WordPiece, or of tokenizer.json for any model. */
static snug_status load_bert_normalizer(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_normalizer_step config = {.kind = SNUG_NORMALIZER_BERT};
    struct snug_normalizer json = {0};
    RETURN_IF_ERROR(config_normalizer(loader, &config.bert));
    snug_status status = snug_json_normalizer(ctx, snug_loader_path(loader, SNUG_TOKENIZER_JSON),
                                              json_object_get(loader->json, "normalizer"), &json);
    if (status == SNUG_OK && loader->json && loader->sources.config && loader->tokenizer->kind == SNUG_MODEL_WORDPIECE)
        compare_normalizers(loader, &config.bert, &json);
    if (loader->own) {
        loader->tokenizer->normalizer = json;
        return status;
    }
    snug_normalizer_free(&json);
    if (status == SNUG_E_MEMORY) return status; /* may be untested: an allocation that fails */
    if (status != SNUG_OK) {
        snug_log(ctx, SNUG_LOG_WARNING, "%s; using tokenizer_config.json, as transformers 5 does",
                 snug_context_message(ctx));
        snug_clear_error(ctx);
    }
    return snug_normalizer_add(ctx, &loader->tokenizer->normalizer, &config);
}

static snug_status load_normalizer(struct snug_tokenizer_loader *loader) {
    if (loader->own || loader->class->kind == SNUG_MODEL_WORDPIECE) return load_bert_normalizer(loader);
    if (loader->class->kind == SNUG_MODEL_BPE) {
        if (snug_loader_member(loader->json, "normalizer"))
            snug_log(loader->ctx, SNUG_LOG_WARNING, "%s: a %s has no normalizer; it is not used, as in transformers 5",
                     snug_loader_path(loader, SNUG_TOKENIZER_JSON), loader->class->name);
        return SNUG_OK;
    }
    return snug_json_precompiled(loader->ctx, snug_loader_path(loader, SNUG_TOKENIZER_JSON),
                                 json_object_get(loader->json, "normalizer"), &loader->tokenizer->normalizer);
}

static snug_status add_metaspace(struct snug_tokenizer_loader *loader, bool prefix) {
    static const char replacement[] = "\u2581";
    struct snug_pretokenizer *out = &loader->tokenizer->pretokenizer;
    const struct snug_pretokenizer_step spaces = {.kind = SNUG_SPLITTING_SPACE, .behavior = SNUG_BEHAVIOR_REMOVED};
    /* may be untested: no supported tokenizer has it */
    struct snug_pretokenizer_step step = {.kind = SNUG_SPLITTING_METASPACE,
                                          .split = true,
                                          .prefix = prefix ? SNUG_PREFIX_ALWAYS : SNUG_PREFIX_NEVER,
                                          .length = sizeof replacement - 1};
    RETURN_IF_ERROR(snug_pretokenizer_add(loader->ctx, out, &spaces));
    RETURN_IF_ERROR(snug_strdup(loader->ctx, replacement, &step.pattern));
    return snug_pretokenizer_add(loader->ctx, out, &step);
}

/* The class's pre-tokenizer. */
static snug_status class_pretokenizer(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_pretokenizer_step step = {.kind = SNUG_SPLITTING_BERT};
    bool prefix;
    RETURN_IF_ERROR(snug_json_bool(ctx, snug_loader_path(loader, SNUG_TOKENIZER_CONFIG), loader->sources.config,
                                   "add_prefix_space", loader->class->kind == SNUG_MODEL_UNIGRAM, &prefix));
    if (loader->class->kind == SNUG_MODEL_UNIGRAM) return add_metaspace(loader, prefix);
    if (loader->class->kind == SNUG_MODEL_BPE)
        step = (struct snug_pretokenizer_step){.kind = SNUG_SPLITTING_BYTE_LEVEL,
                                               .split = true,
                                               .prefix = prefix ? SNUG_PREFIX_ALWAYS : SNUG_PREFIX_NEVER};
    return snug_pretokenizer_add(ctx, &loader->tokenizer->pretokenizer, &step);
}

static snug_status load_pretokenizer(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    const struct snug_tokenizer *tokenizer = loader->tokenizer;
    const struct snug_pretokenizer *out = &tokenizer->pretokenizer;
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    if (!loader->own) return class_pretokenizer(loader);
    RETURN_IF_ERROR(snug_json_pretokenizer(ctx, path, json_object_get(loader->json, "pre_tokenizer"),
                                           &loader->tokenizer->pretokenizer));
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

/* ---- post-processor -------------------------------------------------------------------------------------------- */

/* A row without special tokens, as in the library without a post_processor. */
static snug_status plain_rows(struct snug_tokenizer_loader *loader) {
    struct snug_post_processor *out = &loader->tokenizer->post_processor;
    RETURN_IF_ERROR(snug_template_add(loader->ctx, &out->single, loader->folder, SNUG_PIECE_A, 0));
    RETURN_IF_ERROR(snug_template_add(loader->ctx, &out->pair, loader->folder, SNUG_PIECE_A, 0));
    return snug_template_add(loader->ctx, &out->pair, loader->folder, SNUG_PIECE_B, 1);
}

/* The class's rows: cls_token and sep_token, or bos_token and eos_token, around the texts. */
static snug_status class_rows(struct snug_tokenizer_loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    const enum snug_class_rows rows = loader->class->rows;
    const char *path = loader->folder;
    for (int file = SNUG_TOKENIZER_FILES - 1; file >= 0; file--)
        if (file != SNUG_TOKENIZER_CONFIG && file != SNUG_TOKENIZER_SPECIAL_MAP && file != SNUG_TOKENIZER_ADDED &&
            tokenizer->paths[file])
            path = tokenizer->paths[file];
    if (loader->json) path = snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    const bool sentence = rows == SNUG_ROWS_BOS_EOS, bert_rows = rows == SNUG_ROWS_BERT;
    const struct snug_token_spec *named = loader->sources.named;
    const int32_t first = snug_special_tokens_id(tokenizer, named[sentence ? SNUG_NAMED_BOS : SNUG_NAMED_CLS].content);
    const int32_t last = snug_special_tokens_id(tokenizer, named[sentence ? SNUG_NAMED_EOS : SNUG_NAMED_SEP].content);
    /* may be untested: no supported tokenizer has it */
    if (first < 0 || last < 0)
        return snug_fail(loader->ctx, SNUG_E_INPUT, "%s: there is no %s; set it in tokenizer_config.json", path,
                         sentence    ? first < 0 ? "bos_token" : "eos_token"
                         : first < 0 ? "cls_token"
                                     : "sep_token");
    return snug_post_processor_frame(loader->ctx, &tokenizer->post_processor, path, first, last, !bert_rows, bert_rows);
}

/* Rows without a post_processor: with bos_token and eos_token where add_bos_token and add_eos_token say so. */
static snug_status rows_without_json(struct snug_tokenizer_loader *loader) {
    static const char *const keys[2] = {"add_bos_token", "add_eos_token"};
    const enum snug_named_token named[2] = {SNUG_NAMED_BOS, SNUG_NAMED_EOS};
    struct snug_post_processor *out = &loader->tokenizer->post_processor;
    int32_t ids[2] = {-1, -1};
    for (int i = 0; i < 2; i++) {
        bool added;
        RETURN_IF_ERROR(snug_json_bool(loader->ctx, snug_loader_path(loader, SNUG_TOKENIZER_CONFIG),
                                       loader->sources.config, keys[i], false, &added));
        if (added) ids[i] = snug_special_tokens_id(loader->tokenizer, loader->sources.named[named[i]].content);
    }
    for (int pair = 0; pair < 2; pair++) {
        struct snug_template *template = pair ? &out->pair : &out->single;
        for (int type = 0; type <= pair; type++) {
            if (ids[0] >= 0) RETURN_IF_ERROR(snug_template_add(loader->ctx, template, loader->folder, ids[0], type));
            RETURN_IF_ERROR(
                snug_template_add(loader->ctx, template, loader->folder, type ? SNUG_PIECE_B : SNUG_PIECE_A, type));
            if (ids[1] >= 0) RETURN_IF_ERROR(snug_template_add(loader->ctx, template, loader->folder, ids[1], type));
        }
    }
    return SNUG_OK;
}

/* transformers 5 ignores add_bos_token and add_eos_token beside a tokenizer.json. */
static snug_status warn_of_bos(struct snug_tokenizer_loader *loader) {
    static const char *const keys[] = {"add_bos_token", "add_eos_token"};
    for (size_t i = 0; i < 2; i++) {
        bool added;
        RETURN_IF_ERROR(snug_json_bool(loader->ctx, snug_loader_path(loader, SNUG_TOKENIZER_CONFIG),
                                       loader->sources.config, keys[i], false, &added));
        if (added)
            snug_log(loader->ctx, SNUG_LOG_WARNING,
                     "%s: \"%s\" has no effect beside a tokenizer.json, as in transformers 5",
                     snug_loader_path(loader, SNUG_TOKENIZER_CONFIG), keys[i]);
    }
    return SNUG_OK;
}

static snug_status load_post_processor(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    const json_t *part = snug_loader_member(loader->json, "post_processor");
    if (loader->own && tokenizer->kind != SNUG_MODEL_WORDPIECE)
        RETURN_IF_ERROR(snug_json_decoder(ctx, path, json_object_get(loader->json, "decoder")));
    if (loader->class->rows != SNUG_ROWS_JSON) return class_rows(loader);
    if (!loader->json) return rows_without_json(loader);
    RETURN_IF_ERROR(warn_of_bos(loader));
    RETURN_IF_ERROR(snug_json_post_processor(ctx, path, part, &tokenizer->post_processor, &tokenizer->special));
    /* may be untested: no supported tokenizer has it */
    if (tokenizer->post_processor.single.count || tokenizer->post_processor.pair.count)
        return snug_post_processor_check(ctx, &tokenizer->post_processor, path,
                                         json_string_value(json_object_get(part, "type")),
                                         snug_added_tokens_end(&tokenizer->added, &tokenizer->vocabulary));
    if (!part)
        snug_log(ctx, SNUG_LOG_WARNING, "%s has no post_processor: rows have no special tokens, as in transformers",
                 path);
    return plain_rows(loader);
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

static void hash_text(XXH3_state_t *hash, const char *text, size_t length) {
    const uint64_t size = length;
    XXH3_64bits_update(hash, &size, sizeof size);
    if (length) XXH3_64bits_update(hash, text, length);
}

static void hash_normalizer(XXH3_state_t *hash, const struct snug_normalizer *normalizer) {
    for (size_t i = 0; i < normalizer->count; i++) {
        const struct snug_normalizer_step *step = &normalizer->steps[i];
        const int64_t facts[] = {step->kind,
                                 step->bert.clean_text,
                                 step->bert.handle_chinese_chars,
                                 step->bert.strip_accents,
                                 step->bert.lowercase,
                                 step->compatible,
                                 step->composed,
                                 step->left,
                                 step->right};
        XXH3_64bits_update(hash, facts, sizeof facts);
        hash_text(hash, step->pattern, step->pattern_length);
        hash_text(hash, step->content, step->content_length);
        const struct snug_precompiled *map = step->precompiled;
        if (!map) continue;
        hash_text(hash, (const char *)map->units, map->count * sizeof *map->units);
        hash_text(hash, map->texts, map->size);
    }
}

static void hash_rows(XXH3_state_t *hash, const struct snug_template *template) {
    XXH3_64bits_update(hash, template->pieces, template->count * sizeof *template->pieces);
    XXH3_64bits_update(hash, &template->count, sizeof template->count);
}

static void hash_parts(XXH3_state_t *hash, const struct snug_tokenizer *tokenizer) {
    const struct snug_bpe *bpe = &tokenizer->bpe;
    const struct snug_unigram *unigram = &tokenizer->unigram;
    const int64_t facts[] = {tokenizer->kind,
                             (int64_t)tokenizer->normalizer.count,
                             (int64_t)tokenizer->pretokenizer.count,
                             tokenizer->prefix_words,
                             bpe->byte_level,
                             bpe->ignore_merges,
                             bpe->fuse_unk,
                             bpe->byte_fallback,
                             bpe->unk,
                             unigram->unk,
                             unigram->byte_fallback};
    XXH3_64bits_update(hash, facts, sizeof facts);
    hash_normalizer(hash, &tokenizer->normalizer);
    for (size_t i = 0; i < tokenizer->pretokenizer.count; i++) {
        const struct snug_pretokenizer_step *step = &tokenizer->pretokenizer.steps[i];
        const int64_t step_facts[] = {step->kind, step->behavior, step->invert, step->split, step->prefix};
        XXH3_64bits_update(hash, step_facts, sizeof step_facts);
        hash_text(hash, step->pattern, step->length);
    }
    hash_text(hash, (const char *)bpe->merges, bpe->merge_slots * sizeof *bpe->merges);
    for (size_t i = 0; i < unigram->count; i++)
        XXH3_64bits_update(hash, &unigram->pieces[i].score, sizeof unigram->pieces[i].score);
    hash_rows(hash, &tokenizer->post_processor.single);
    hash_rows(hash, &tokenizer->post_processor.pair);
}

/* Whether the parts are BertTokenizer's, which the common part of the fingerprint describes. */
static bool is_bert(const struct snug_tokenizer *tokenizer) {
    const struct snug_normalizer *normalizer = &tokenizer->normalizer;
    const struct snug_pretokenizer *splitting = &tokenizer->pretokenizer;
    const struct snug_template_piece cls = {tokenizer->special.cls, 0}, a = {SNUG_PIECE_A, 0},
                                     sep = {tokenizer->special.sep, 0}, b = {SNUG_PIECE_B, 1},
                                     end = {tokenizer->special.sep, 1};
    const struct snug_template single = {{cls, a, sep}, 3}, pair = {{cls, a, sep, b, end}, 5};
    /* may be untested: no supported tokenizer has it */
    return tokenizer->kind == SNUG_MODEL_WORDPIECE && normalizer->count <= 1 &&
           (!normalizer->count || normalizer->steps[0].kind == SNUG_NORMALIZER_BERT) && splitting->count == 1 &&
           splitting->steps[0].kind == SNUG_SPLITTING_BERT &&
           !memcmp(&single, &tokenizer->post_processor.single, sizeof single) &&
           !memcmp(&pair, &tokenizer->post_processor.pair, sizeof pair);
}

static bool is_blank(const char *text) {
    for (size_t at = 0; text[at];)
        if (!(snug_codepoint_flags(snug_utf8_next(text, &at)) & SNUG_CODEPOINT_SPACE)) return false;
    return true;
}

/* Rules that came after CODE_VERSION 1, where they matter: so the fingerprints of all other tokenizers stay the same,
   and with them their caches and checkpoints. */
static uint64_t later_rules(const struct snug_tokenizer *tokenizer) {
    bool strips = false;
    for (size_t i = 0; i < tokenizer->added.count; i++)
        strips |= tokenizer->added.items[i].lstrip && is_blank(tokenizer->added.items[i].content);
    const bool typed = snug_template_has_types(&tokenizer->post_processor.pair);
    return (typed && !tokenizer->types ? 1 : 0) | (strips ? 2 : 0);
}

static snug_status compute_fingerprint(struct snug_tokenizer_loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    XXH3_state_t *hash = XXH3_createState();
    if (!hash) return snug_fail(loader->ctx, SNUG_E_MEMORY, "out of memory while reading %s", loader->folder);
    const bool bert = is_bert(tokenizer);
    const struct snug_bert_normalizer none = {0}, *normalizer = bert && tokenizer->normalizer.count
                                                                    ? &tokenizer->normalizer.steps[0].bert
                                                                    : &none;
    const struct snug_special_ids *special = &tokenizer->special;
    const int64_t facts[] = {CODE_VERSION,
                             normalizer->clean_text,
                             normalizer->handle_chinese_chars,
                             normalizer->strip_accents,
                             normalizer->lowercase,
                             tokenizer->wordpiece.unk,
                             tokenizer->wordpiece.max_word,
                             tokenizer->vocabulary.size,
                             tokenizer->added.ignore_special,
                             tokenizer->truncate_left,
                             special->cls,
                             special->sep};
    const char *prefix = tokenizer->wordpiece.prefix ? tokenizer->wordpiece.prefix : "";
    XXH3_64bits_reset(hash);
    XXH3_64bits_update(hash, facts, sizeof facts);
    XXH3_64bits_update(hash, prefix, strlen(prefix) + 1);
    for (int64_t id = 0; id < tokenizer->vocabulary.size; id++) {
        const char *token = tokenizer->vocabulary.tokens[id];
        XXH3_64bits_update(hash, token ? token : "", token ? strlen(token) + 1 : 1);
    }
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const struct snug_added_token *token = &tokenizer->added.items[i];
        const int32_t flags[] = {token->id,     token->single_word, token->lstrip,
                                 token->rstrip, token->normalized,  token->special};
        XXH3_64bits_update(hash, token->content, strlen(token->content) + 1);
        XXH3_64bits_update(hash, flags, sizeof flags);
    }
    if (!bert) hash_parts(hash, tokenizer);
    const uint64_t later = later_rules(tokenizer);
    if (later) XXH3_64bits_update(hash, &later, sizeof later);
    tokenizer->fingerprint = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return SNUG_OK;
}

/*
 * A tokenizer_config.json that names no class gets it where the tokenizer is saved: a model of another type may be
 * saved beside it, whose type would choose another class. TokenizersBackend has the name that transformers 4 knows.
 */
static snug_status name_class(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    char *text;
    const char *name = loader->class->defaults ? loader->class->name : "PreTrainedTokenizerFast";
    if (snug_loader_member(loader->sources.config, "tokenizer_class")) return SNUG_OK;
    json_t *config = loader->sources.config ? json_copy(loader->sources.config) : json_object();
    snug_json_add(&config, "tokenizer_class", json_string(name));
    if (!config) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while reading %s", loader->folder);
    const snug_status status = snug_json_text(ctx, config, JSON_INDENT(2), &text);
    json_decref(config);
    RETURN_IF_ERROR(status);
    free(tokenizer->data[SNUG_TOKENIZER_CONFIG]);
    tokenizer->data[SNUG_TOKENIZER_CONFIG] = text;
    tokenizer->sizes[SNUG_TOKENIZER_CONFIG] = strlen(text);
    if (tokenizer->paths[SNUG_TOKENIZER_CONFIG]) return SNUG_OK;
    return snug_path_join(ctx, &tokenizer->paths[SNUG_TOKENIZER_CONFIG], loader->folder,
                          snug_tokenizer_file_names[SNUG_TOKENIZER_CONFIG]);
}

static snug_status load(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    struct snug_special_sources *sources = &loader->sources;
    RETURN_IF_ERROR(read_files(loader));
    sources->paths = tokenizer->paths;
    RETURN_IF_ERROR(snug_loader_parse(loader, SNUG_TOKENIZER_CONFIG, &sources->config));
    RETURN_IF_ERROR(snug_loader_parse(loader, SNUG_TOKENIZER_SPECIAL_MAP, &sources->map));
    RETURN_IF_ERROR(snug_loader_parse(loader, SNUG_TOKENIZER_ADDED, &sources->added));
    RETURN_IF_ERROR(resolve_class(loader));
    if (json_object_get(sources->config, "auto_map"))
        snug_log(ctx, SNUG_LOG_WARNING, "%s: auto_map names Python code; snug runs none",
                 snug_loader_path(loader, SNUG_TOKENIZER_CONFIG));
    RETURN_IF_ERROR(snug_loader_vocabulary(loader));
    sources->json = loader->json;
    sources->own = loader->own;
    RETURN_IF_ERROR(load_normalizer(loader));
    RETURN_IF_ERROR(load_pretokenizer(loader));
    RETURN_IF_ERROR(snug_special_tokens_collect(ctx, sources));
    RETURN_IF_ERROR(snug_loader_model(loader));
    RETURN_IF_ERROR(read_settings(loader));
    RETURN_IF_ERROR(snug_special_tokens_add(ctx, sources, tokenizer));
    RETURN_IF_ERROR(load_post_processor(loader));
    RETURN_IF_ERROR(index_tokens(loader));
    RETURN_IF_ERROR(compute_fingerprint(loader));
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
    free(loader.model_extra.items);
    free(loader.piece_texts);
    json_decref(loader.json);
    if (status == SNUG_OK)
        *out = loader.tokenizer;
    else
        snug_tokenizer_free(loader.tokenizer);
    return status;
}
