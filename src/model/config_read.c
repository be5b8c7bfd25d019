/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/task.h"
#include "io/folder.h"
#include "io/folder_kind.h"
#include "io/json.h"
#include "model/quantization.h"
#include "model/sentence.h"
#include "tokenizer/hash_map.h"

/* 4 TiB of weights as fp32: sums of what a training takes for them stay far below 64 bits. */
static const double most_parameters = 0x1p40;

static const struct {
    const char *name;
    enum snug_activation activation;
} activations[] = {
    {"gelu", SNUG_GELU},        {"gelu_new", SNUG_GELU_TANH}, {"gelu_pytorch_tanh", SNUG_GELU_TANH},
    {"relu", SNUG_RELU},        {"silu", SNUG_SILU},          {"swish", SNUG_SILU},
    {"gelu_python", SNUG_GELU}, {"tanh", SNUG_TANH},
};

/* ---- where the files are -------------------------------------------------------------------------------------- */

/* " --model_revision X --cache_dir Y", as far as they are set. */
static snug_status settings_of(snug_context *ctx, const struct snug_hub_place *place, char **out) {
    const bool other = place->revision && strcmp(place->revision, "main") != 0;
    return snug_format(ctx, out, "%s%s%s%s", other ? " --model_revision " : "", other ? place->revision : "",
                       place->cache_dir ? " --cache_dir " : "", place->cache_dir ? place->cache_dir : "");
}

static snug_status fail_missing(snug_context *ctx, const struct snug_hub_place *place, const char *name) {
    char *settings;
    if (!snug_hub_is_name(name))
        return snug_fail(
            ctx, SNUG_E_INPUT, "model %s: there is no such folder%s", name,
            strstr(name, "://") ? "; give a model of a hub by its name, as in google-bert/bert-base-uncased" : "");
    RETURN_IF_ERROR(settings_of(ctx, place, &settings));
    const snug_status status = snug_fail(ctx, SNUG_E_INPUT,
                                         "model %s: there is no such folder, and it is not in the local Hugging Face "
                                         "cache: fetch it with `snug pull %s%s`, or give the folder",
                                         name, name, settings);
    free(settings);
    return status;
}

snug_status snug_model_locate(snug_context *ctx, const struct snug_hub_place *place, const char *name_or_path,
                              char **folder) {
    *folder = NULL;
    if (snug_folder_exists(name_or_path)) return snug_strdup(ctx, name_or_path, folder);
    if (snug_file_exists(NULL, name_or_path))
        return snug_fail(ctx, SNUG_E_INPUT, "model %s is a file: give the folder with it and its config.json",
                         name_or_path);
    RETURN_IF_ERROR(snug_hub_find(ctx, place, name_or_path, folder));
    return *folder ? SNUG_OK : fail_missing(ctx, place, name_or_path);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

void snug_read_size(struct snug_reading *r, const char *key, int64_t otherwise, int64_t most, int64_t *out) {
    if (r->status == SNUG_OK) r->status = snug_json_int(r->ctx, r->path, r->json, key, otherwise, out);
    if (r->status == SNUG_OK && (*out < 1 || *out > most))
        r->status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: %s is %lld, expected 1 to %lld", r->path, key, (long long)*out,
                              (long long)most);
}

void snug_read_real(struct snug_reading *r, const char *key, double otherwise, double least, double most, double *out) {
    if (r->status == SNUG_OK) r->status = snug_json_real(r->ctx, r->path, r->json, key, otherwise, out);
    if (r->status == SNUG_OK && !(*out >= least && *out <= most))
        r->status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: %s is %g, expected %g to %g", r->path, key, *out, least, most);
}

void snug_read_dropout(struct snug_reading *r, const char *key, double otherwise, double *out) {
    snug_read_real(r, key, otherwise, 0, 0.999, out); /* p = 1 would drop everything */
}

bool snug_read_bool(struct snug_reading *r, const char *key, bool otherwise) {
    bool value = otherwise;
    if (r->status == SNUG_OK) r->status = snug_json_bool(r->ctx, r->path, r->json, key, otherwise, &value);
    return value;
}

void snug_read_activation(struct snug_reading *r, const char *key) {
    snug_read_function(r, key, "gelu", &r->config->hidden_act, &r->config->hidden_act_name);
}

void snug_read_function(struct snug_reading *r, const char *key, const char *otherwise, enum snug_activation *out,
                        const char **known) {
    const char *name = otherwise;
    if (r->status == SNUG_OK) r->status = snug_json_string(r->ctx, r->path, r->json, key, name, &name);
    if (r->status != SNUG_OK) return;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(name, activations[i].name) == 0) {
            *out = activations[i].activation;
            if (known) *known = activations[i].name;
            return;
        }
    r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED,
                          "%s: %s %s is not supported (gelu, gelu_new, relu, silu and tanh are)", r->path, key, name);
}

void snug_read_padding(struct snug_reading *r, int64_t otherwise) {
    struct snug_config *c = r->config;
    const json_t *given = json_object_get(r->json, "pad_token_id");
    c->pad_token_id = -1;
    if (r->status != SNUG_OK || json_is_null(given)) return;
    r->status = snug_json_int(r->ctx, r->path, r->json, "pad_token_id", otherwise, &c->pad_token_id);
    if (r->status == SNUG_OK && (c->pad_token_id < -c->vocab_size || c->pad_token_id >= c->vocab_size))
        r->status = snug_fail(r->ctx, SNUG_E_INPUT,
                              "%s: pad_token_id is %lld, expected one of the vocabulary's %lld ids, or null", r->path,
                              (long long)c->pad_token_id, (long long)c->vocab_size);
    if (r->status == SNUG_OK && given && c->pad_token_id < 0) c->pad_token_id += c->vocab_size; /* as nn.Embedding */
}

const char *snug_read_key(struct snug_reading *r, const char *key, const char *alias) {
    const json_t *own = json_object_get(r->json, key), *other = json_object_get(r->json, alias);
    if (!other || json_is_null(other)) return key;
    if (r->status == SNUG_OK && own && !json_equal(own, other))
        snug_log(r->ctx, SNUG_LOG_WARNING, "%s: %s and %s contradict each other: as transformers, using %s", r->path,
                 key, alias, alias);
    return alias;
}

void snug_read_check_heads(struct snug_reading *r, const char *size, const char *heads) {
    const struct snug_config *c = r->config;
    if (r->status == SNUG_OK && c->hidden_size % c->num_attention_heads)
        r->status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: %s %lld is not a multiple of %s %lld", r->path, size,
                              (long long)c->hidden_size, heads, (long long)c->num_attention_heads);
}

/* 0 where that is the default: there are no types. */
static void read_types(struct snug_reading *r) {
    struct snug_config *c = r->config;
    const json_t *types = json_object_get(r->json, "type_vocab_size");
    const bool absent = !types || json_is_null(types) || (json_is_integer(types) && json_integer_value(types) == 0);
    if (c->type_vocab_size > 0 || !absent)
        snug_read_size(r, "type_vocab_size", c->type_vocab_size, SNUG_DIMENSION_MOST, &c->type_vocab_size);
}

void snug_read_encoder(struct snug_reading *r) {
    struct snug_config *c = r->config;
    const int64_t most = SNUG_DIMENSION_MOST;
    snug_read_size(r, "hidden_size", c->hidden_size, most, &c->hidden_size);
    snug_read_size(r, "num_hidden_layers", c->num_hidden_layers, SNUG_LAYERS_MOST, &c->num_hidden_layers);
    snug_read_size(r, "num_attention_heads", c->num_attention_heads, SNUG_HEADS_MOST, &c->num_attention_heads);
    snug_read_size(r, "intermediate_size", c->intermediate_size, most, &c->intermediate_size);
    snug_read_size(r, "vocab_size", c->vocab_size, SNUG_VOCABULARY_MOST, &c->vocab_size);
    snug_read_size(r, "max_position_embeddings", c->max_position_embeddings, most, &c->max_position_embeddings);
    read_types(r);
    snug_read_check_heads(r, "hidden_size", "num_attention_heads");
    snug_read_real(r, "layer_norm_eps", c->layer_norm_eps, 0, 1, &c->layer_norm_eps);
    snug_read_real(r, "initializer_range", 0.02, 0, 1e6, &c->initializer_range);
    snug_read_padding(r, c->pad_token_id);
    snug_read_dropout(r, "hidden_dropout_prob", 0.1, &c->hidden_dropout_prob);
    snug_read_dropout(r, "attention_probs_dropout_prob", 0.1, &c->attention_probs_dropout_prob);
    snug_read_dropout(r, "classifier_dropout", c->hidden_dropout_prob, &c->classifier_dropout);
    snug_read_activation(r, "hidden_act");
}

void snug_read_first_position(struct snug_reading *r) {
    struct snug_config *c = r->config;
    if (r->status != SNUG_OK) return;
    c->first_position = c->pad_token_id + 1;
    if (c->pad_token_id < 0 || json_integer_value(json_object_get(r->json, "pad_token_id")) < 0)
        r->status = snug_fail(
            r->ctx, SNUG_E_INPUT,
            "%s: pad_token_id is %s, but position ids of a %s start at pad_token_id + 1: set it to a token's id",
            r->path, c->pad_token_id < 0 ? "null" : "below 0", c->family->name);
    else if (c->first_position >= c->max_position_embeddings)
        r->status =
            snug_fail(r->ctx, SNUG_E_INPUT,
                      "%s: position ids start at pad_token_id (%lld) + 1, but max_position_embeddings is only %lld",
                      r->path, (long long)c->pad_token_id, (long long)c->max_position_embeddings);
}

/* Each size may be valid, but not their product. */
static snug_status check_sum(const struct snug_reading *r) {
    const struct snug_config *c = r->config;
    const double hidden = (double)c->hidden_size, intermediate = (double)c->intermediate_size;
    const double rows = (double)(c->vocab_size + c->max_position_embeddings + c->type_vocab_size);
    const double parameters = rows * (double)c->embedding_size +
                              (double)c->num_hidden_layers * (4 * hidden * hidden + 2 * hidden * intermediate);
    if (parameters <= most_parameters) return SNUG_OK;
    return snug_fail(r->ctx, SNUG_E_INPUT,
                     "%s: its sizes (hidden size %lld, intermediate size %lld, %lld layers, vocabulary %lld) make a "
                     "model of %.2g parameters, and no machine holds that: one of them must be wrong",
                     r->path, (long long)c->hidden_size, (long long)c->intermediate_size,
                     (long long)c->num_hidden_layers, (long long)c->vocab_size, parameters);
}

/* Keys that change a model of any family in transformers. */
static snug_status refuse_keys(const struct snug_reading *r) {
    static const struct {
        const char *key, *why;
    } keys[] = {
        {"per_layer_config", "layers of different sizes are not supported"},
        {"transformers_weights", "name the file model.safetensors, and remove the key"},
        {"configuration_files", "give the file that fits as config.json"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(r->json, keys[i].key);
        if (!value || json_is_null(value) ||
            (!json_is_string(value) && !json_object_size(value) && !json_array_size(value)))
            continue;
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: %s: %s", r->path, keys[i].key, keys[i].why);
    }
    return SNUG_OK;
}

/* Why a model of this type is not supported; "" if nothing is known of it. */
static const char *why_unsupported(const char *type) {
    static const struct {
        const char *why, *types; /* between blanks */
    } groups[] = {
        {": mixtures of experts are not supported",
         " mixtral qwen2_moe qwen3_moe gpt_oss olmoe phimoe granitemoe granitemoeshared deepseek_v2 deepseek_v3 dbrx"
         " llama4_text llama4 glm4_moe ernie4_5_moe minimax hunyuan_v1_moe gemma4_text gemma4 "},
        {": state-space, recurrent and hybrid layers are not supported",
         " mamba mamba2 falcon_mamba jamba bamba zamba zamba2 granitemoehybrid nemotron_h lfm2 qwen3_next qwen3_5"
         " qwen3_5_text qwen3_5_moe recurrent_gemma rwkv falcon_h1 "},
        {": models with vision or audio are not supported; give its text model, if it has one of its own",
         " gemma3 gemma3n paligemma mllama llava llava_next mistral3 pixtral qwen2_vl qwen2_5_vl qwen3_vl idefics3"
         " smolvlm phi4_multimodal internvl "},
    };
    char word[64];
    snprintf(word, sizeof word, " %s ", type);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (!strchr(type, ' ') && strstr(groups[i].types, word)) return groups[i].why;
    return "";
}

/* The family of model_type. Settings that no family supports are refused. */
static snug_status read_family(struct snug_reading *r) {
    const char *type, *positions;
    RETURN_IF_ERROR(snug_json_string(r->ctx, r->path, r->json, "model_type", SNUG_FAMILY_DEFAULT.model_type, &type));
    r->config->family = snug_family_find(type);
    if (!r->config->family) {
        char known[512] = "";
        for (size_t i = 0, used = 0; snug_families[i] && used < sizeof known; i++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     snug_families[i]->model_type);
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: model_type %s is not supported%s (known: %s)", r->path, type,
                         why_unsupported(type), known);
    }
    RETURN_IF_ERROR(snug_json_string(r->ctx, r->path, r->json, "position_embedding_type", "absolute", &positions));
    if (strcmp(positions, "absolute") != 0)
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: position_embedding_type %s is not supported (absolute is)",
                         r->path, positions);
    if (snug_read_bool(r, "is_decoder", false))
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: is_decoder is not supported", r->path);
    RETURN_IF_ERROR(r->status);
    return refuse_keys(r);
}

/* A label in a file selects its class by name. */
static snug_status check_names(const struct snug_reading *r, const struct snug_labels *labels) {
    struct snug_hash_map names = {0};
    snug_status status = snug_hash_map_reserve(r->ctx, &names, (size_t)labels->count);
    for (int64_t i = 0; i < labels->count && status == SNUG_OK; i++) {
        int32_t before;
        status = snug_hash_map_add(r->ctx, &names, labels->names[i], strlen(labels->names[i]), (int32_t)i, &before);
        if (status == SNUG_OK && before >= 0)
            status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: id2label gives classes %d and %lld the same name, \"%s\"",
                               r->path, (int)before, (long long)i, labels->names[i]);
    }
    snug_hash_map_free(&names);
    return status;
}

/* transformers checks neither against the other: its scripts train by label2id, its pipelines predict by id2label. */
static void compare_label2id(const struct snug_reading *r, const struct snug_labels *labels) {
    const json_t *number;
    const char *name;
    json_object_foreach(json_object_get(r->json, "label2id"), name, number) {
        const int64_t i = json_is_integer(number) ? json_integer_value(number) : -1;
        if (i >= 0 && i < labels->count && strcmp(labels->names[i], name) == 0) continue;
        snug_log(r->ctx, SNUG_LOG_WARNING,
                 "%s: label2id contradicts id2label, where class %lld is not \"%s\": using id2label", r->path,
                 (long long)i, name);
        return;
    }
}

/* A class's name in id2label: numbers and booleans as Python prints them. */
static snug_status read_name(const struct snug_reading *r, const json_t *names, int64_t class, char **out) {
    char key[24], *text;
    snprintf(key, sizeof key, "%lld", (long long)class);
    const json_t *name = json_object_get(names, key);
    if (json_is_string(name)) return snug_strdup(r->ctx, json_string_value(name), out);
    if (json_is_boolean(name)) return snug_strdup(r->ctx, json_is_true(name) ? "True" : "False", out);
    if (!json_is_number(name))
        return snug_fail(r->ctx, SNUG_E_INPUT, "%s: id2label has no name for class %s", r->path, key);
    RETURN_IF_ERROR(snug_json_text(r->ctx, name, JSON_ENCODE_ANY, &text));
    *out = text;
    return SNUG_OK;
}

/* num_labels is not stored if id2label is: the number is its length. As in transformers 5, a num_labels that
   contradicts id2label wins, and its classes have no names. */
static snug_status read_classes(struct snug_reading *r) {
    struct snug_labels *labels = &r->config->labels;
    const json_t *names = json_object_get(r->json, "id2label");
    if (names && !json_is_object(names) && !json_is_null(names))
        return snug_fail(r->ctx, SNUG_E_INPUT, "%s: id2label is not an object", r->path);
    const int64_t named = (int64_t)json_object_size(names);
    if (named > SNUG_CLASSES_MOST)
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: id2label names %lld classes, and a model has at most %d",
                         r->path, (long long)named, (int)SNUG_CLASSES_MOST);
    snug_read_size(r, "num_labels", named ? named : 2, SNUG_CLASSES_MOST, &labels->count);
    RETURN_IF_ERROR(r->status);
    const bool uses_names = named == labels->count;
    if (named && !uses_names)
        snug_log(r->ctx, SNUG_LOG_WARNING,
                 "%s: num_labels is %lld, but id2label names %lld classes: as transformers, using num_labels and no "
                 "names",
                 r->path, (long long)labels->count, (long long)named);
    RETURN_IF_ERROR(snug_alloc(r->ctx, (size_t)labels->count, sizeof *labels->names, (void **)&labels->names));
    for (int64_t i = 0; i < labels->count; i++) {
        char otherwise[32];
        snprintf(otherwise, sizeof otherwise, "LABEL_%lld", (long long)i);
        RETURN_IF_ERROR(uses_names ? read_name(r, names, i, &labels->names[i])
                                   : snug_strdup(r->ctx, otherwise, &labels->names[i]));
        if (strcmp(labels->names[i], otherwise) != 0) r->config->has_label_names = true;
    }
    RETURN_IF_ERROR(check_names(r, labels));
    if (uses_names) compare_label2id(r, labels);
    return SNUG_OK;
}

static snug_status read_labels(struct snug_reading *r) {
    struct snug_config *config = r->config;
    struct snug_labels *labels = &config->labels;
    const char *problem;
    RETURN_IF_ERROR(read_classes(r));
    RETURN_IF_ERROR(snug_json_string(r->ctx, r->path, r->json, "problem_type", NULL, &problem));
    if (labels->count == 1 && problem && strcmp(problem, "single_label_classification") == 0)
        return snug_fail(r->ctx, SNUG_E_INPUT,
                         "%s: problem_type is single_label_classification, but there is only one class", r->path);
    const struct snug_task_info *task = snug_task_info(config->task);
    const bool only_single = task->labelled && !task->problems;
    if (only_single || (problem && strcmp(problem, "single_label_classification") == 0))
        labels->problem = SNUG_PROBLEM_SINGLE_LABEL;
    else if (!problem)
        labels->problem = labels->count == 1 ? SNUG_PROBLEM_REGRESSION : SNUG_PROBLEM_SINGLE_LABEL;
    else if (strcmp(problem, "multi_label_classification") == 0)
        labels->problem = SNUG_PROBLEM_MULTI_LABEL;
    else if (strcmp(problem, "regression") == 0)
        labels->problem = SNUG_PROBLEM_REGRESSION;
    else
        return snug_fail(r->ctx, SNUG_E_INPUT,
                         "%s: problem_type %s is unknown (single_label_classification, multi_label_classification and "
                         "regression are known)",
                         r->path, problem);
    if (labels->problem == SNUG_PROBLEM_REGRESSION && labels->count != 1)
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: regression to %lld values is not supported (to one is)",
                         r->path, (long long)labels->count);
    return SNUG_OK;
}

static void read_architecture(const struct snug_reading *r) {
    struct snug_config *config = r->config;
    const char *name = json_string_value(json_array_get(json_object_get(r->json, "architectures"), 0));
    const struct snug_family *family = config->family;
    int found = -1;
    config->task = snug_family_task(family);
    if (!name) return;
    for (int task = 0; task < SNUG_TASK_COUNT; task++)
        if (snug_family_has(family, (enum snug_task)task) && !snug_task_info((enum snug_task)task)->other_class &&
            strcmp(name, snug_family_class(family, (enum snug_task)task).text) == 0)
            found = task;
    for (const struct snug_architecture *a = family->further_classes; a && a->name; a++)
        if (strcmp(a->name, name) == 0) found = (int)a->task;
    config->has_head = found >= 0;
    if (found >= 0) config->task = (enum snug_task)found;
}

/* The activation that sentence-transformers applies to a CrossEncoder's logits, under its present key or that of
   earlier versions; NULL: the model is not a CrossEncoder. */
static const char *activation_of(const json_t *json) {
    const json_t *own = json_object_get(json_object_get(json, "sentence_transformers"), "activation_fn");
    if (!own) own = json_object_get(json, "sbert_ce_default_activation_function");
    return json_string_value(own);
}

bool snug_config_has_sigmoid(const struct snug_config *config) {
    const char *name = activation_of(config->json);
    return !name || !strstr(name, "Identity");
}

static snug_status read_config(snug_context *ctx, const char *path, json_t *json, struct snug_config *config) {
    struct snug_reading r = {.ctx = ctx, .path = path, .json = json, .config = config};
    *config = (struct snug_config){.json = json};
    RETURN_IF_ERROR(read_family(&r));
    if (json_object_get(json, "auto_map")) { /* as transformers without trust_remote_code */
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%s: auto_map names Python code; snug runs no code, and loads the model as an ordinary %s", path,
                 config->family->name);
        json_object_del(json, "auto_map");
    }
    if (config->family->settings_size)
        RETURN_IF_ERROR(snug_alloc(ctx, 1, config->family->settings_size, &config->settings));
    config->one_type = config->family->one_type;
    config->language_model = config->family->heads->language_model;
    config->family->read(&r);
    config->tie_word_embeddings = snug_read_bool(&r, "tie_word_embeddings", !config->family->untied);
    config->own_decoder = !config->tie_word_embeddings;
    snug_quantization_read(&r);
    RETURN_IF_ERROR(r.status);
    if (!config->embedding_size) config->embedding_size = config->hidden_size;
    if (!config->positions) config->positions = config->max_position_embeddings - config->first_position;
    RETURN_IF_ERROR(check_sum(&r));
    read_architecture(&r);
    RETURN_IF_ERROR(read_labels(&r));
    if (config->has_head && config->task == SNUG_TASK_CLASSIFICATION && config->labels.count == 1 &&
        activation_of(json))
        config->task = SNUG_TASK_RERANKING;
    return SNUG_OK;
}

static snug_status read_generation(snug_context *ctx, const char *folder, struct snug_config *out) {
    char *file;
    RETURN_IF_ERROR(snug_path_join(ctx, &file, folder, SNUG_GENERATION_CONFIG));
    const snug_status status =
        snug_file_exists(NULL, file) ? snug_json_read(ctx, NULL, file, &out->generation) : SNUG_OK;
    free(file);
    return status;
}

snug_status snug_config_read(snug_context *ctx, const char *path, struct snug_config *out) {
    char *file = NULL;
    json_t *json = NULL;
    *out = (struct snug_config){0};
    const bool in_folder = snug_folder_exists(path);
    RETURN_IF_ERROR(in_folder ? snug_path_join(ctx, &file, path, "config.json") : snug_strdup(ctx, path, &file));
    snug_status status = in_folder && !snug_entry_kind(NULL, file) ? snug_fail_model_folder(ctx, path, "no config.json")
                                                                   : snug_json_read(ctx, NULL, file, &json);
    if (status == SNUG_OK) status = read_config(ctx, file, json, out);
    if (status == SNUG_OK && in_folder) status = read_generation(ctx, path, out);
    if (status != SNUG_OK) snug_config_free(out);
    free(file);
    return status;
}

static const char *find_shape(const char *name) {
    for (size_t i = 0; snug_families[i]; i++)
        for (const struct snug_shape *shape = snug_families[i]->shapes; shape && shape->name; shape++)
            if (strcmp(shape->name, name) == 0) return shape->json;
    return NULL;
}

snug_status snug_config_parse(snug_context *ctx, const char *name, const char *text, struct snug_config *out) {
    json_error_t error;
    json_t *json = snug_json_parse(text, strlen(text), 0, &error);
    if (!json) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while making the shape %s", name);
    snug_status status = read_config(ctx, name, json, out);
    if (status != SNUG_OK) snug_config_free(out);
    return status;
}

snug_status snug_config_builtin(snug_context *ctx, const char *name, struct snug_config *out) {
    const char *shape = find_shape(name);
    return shape ? snug_config_parse(ctx, name, shape, out) : SNUG_END;
}

snug_status snug_config_find(snug_context *ctx, const struct snug_hub_place *place, const char *name_or_path,
                             struct snug_config *out) {
    if (snug_folder_exists(name_or_path) || snug_file_exists(NULL, name_or_path))
        return snug_config_read(ctx, name_or_path, out);
    char *folder = NULL;
    snug_status status = snug_model_locate(ctx, place, name_or_path, &folder);
    if (status == SNUG_OK) {
        status = snug_config_read(ctx, folder, out);
        free(folder);
        return status;
    }
    snug_status builtin = snug_config_builtin(ctx, name_or_path, out);
    if (builtin == SNUG_END) return status;
    snug_clear_error(ctx);
    return builtin;
}

/* ---- changing ------------------------------------------------------------------------------------------------- */

snug_status snug_config_set_task(snug_context *ctx, struct snug_config *config, enum snug_task task,
                                 struct snug_labels *labels) {
    config->task = task;
    config->has_head = true;
    json_t *json = config->json;
    const struct snug_task_info *info = snug_task_info(task);
    int failed =
        json_object_set_new(json, "architectures", json_pack("[s]", snug_family_class(config->family, task).text));
    if (info->labelled) {
        if (labels != &config->labels) {
            snug_labels_free(&config->labels);
            config->labels = *labels;
            *labels = (struct snug_labels){0};
        }
        json_t *id2label = json_object(), *label2id = json_object();
        for (int64_t i = 0; i < config->labels.count; i++) {
            char key[24];
            snprintf(key, sizeof key, "%lld", (long long)i);
            failed |= json_object_set_new(id2label, key, json_string(config->labels.names[i]));
            failed |= json_object_set_new(label2id, config->labels.names[i], json_integer(i));
        }
        failed |= json_object_set_new(json, "id2label", id2label);
        failed |= json_object_set_new(json, "label2id", label2id);
        if (info->problems) /* where there is one, it has no name */
            failed |= json_object_set_new(json, "problem_type", json_string(snug_problem_name(config->labels.problem)));
        else
            json_object_del(json, "problem_type");
        if (!info->problems) config->labels.problem = SNUG_PROBLEM_SINGLE_LABEL;
        json_object_del(json, "num_labels");
        config->has_label_names = true;
    }
    if (failed) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while changing the model's config");
    return SNUG_OK;
}

snug_status snug_config_set_score(snug_context *ctx, struct snug_config *config) {
    json_t *json = config->json;
    for (int64_t i = 1; i < config->labels.count; i++) free(config->labels.names[i]);
    config->labels.count = 1;
    config->labels.problem = SNUG_PROBLEM_REGRESSION;
    json_object_del(json, "num_labels");
    json_object_del(json, "problem_type");
    int failed = json_object_set_new(json, "id2label", json_pack("{s:s}", "0", config->labels.names[0])) |
                 json_object_set_new(json, "label2id", json_pack("{s:i}", config->labels.names[0], 0));
    if (!activation_of(json))
        failed |= json_object_set_new(json, "sentence_transformers",
                                      json_pack("{s:s}", "activation_fn", "torch.nn.modules.activation.Sigmoid"));
    return failed ? snug_fail(ctx, SNUG_E_MEMORY, "out of memory while changing the model's config") : SNUG_OK;
}

/* The number of values, as the JSON reader counts them. */
static int64_t count_values(const json_t *value) {
    int64_t count = 1;
    size_t i;
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)value, key, item) count += count_values(item);
    json_array_foreach(value, i, item) count += count_values(item);
    return count;
}

snug_status snug_config_check_size(snug_context *ctx, const struct snug_config *config, const char *path) {
    const size_t bytes = json_dumpb(config->json, NULL, 0, JSON_INDENT(2)) + 1;
    const int64_t values = bytes < SNUG_JSON_VALUES_MOST ? 0 : count_values(config->json);
    if (bytes > SNUG_FILE_BYTES_MOST)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s: the names of its %lld classes make a config.json of %.1f MiB, and at most %.1f can be "
                         "read back: shorten the labels",
                         path, (long long)config->labels.count, (double)bytes / 0x1p20,
                         (double)SNUG_FILE_BYTES_MOST / 0x1p20);
    if (values > SNUG_JSON_VALUES_MOST)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s: its %lld classes make a config.json of %lld values, and at most %d can be read back",
                         path, (long long)config->labels.count, (long long)values, (int)SNUG_JSON_VALUES_MOST);
    return SNUG_OK;
}

snug_status snug_config_set_key(snug_context *ctx, json_t *json, const char *key, json_t *value) {
    if (json_object_set_new(json, key, value) == 0) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while changing the model's config");
}

snug_status snug_config_untie(snug_context *ctx, struct snug_config *config) {
    config->own_decoder = true;
    return snug_config_set_key(ctx, config->json, "tie_word_embeddings", json_false());
}

snug_status snug_config_grow(snug_context *ctx, struct snug_config *config, int64_t vocab_size) {
    config->new_tokens += vocab_size - config->vocab_size;
    config->vocab_size = vocab_size;
    return snug_config_set_key(ctx, config->json, "vocab_size", json_integer(vocab_size));
}

snug_status snug_config_set_dtype(snug_context *ctx, struct snug_config *config, enum snug_dtype dtype) {
    json_object_del(config->json, "torch_dtype"); /* its name in older versions of transformers */
    return snug_config_set_key(ctx, config->json, "dtype", json_string(dtype == SNUG_BF16 ? "bfloat16" : "float32"));
}

size_t snug_config_list(const struct snug_config *config, const char **names) {
    names[0] = "config.json";
    names[1] = SNUG_GENERATION_CONFIG;
    return config->generation && snug_task_info(config->task)->causal ? 2 : 1;
}

snug_status snug_config_write(snug_context *ctx, const struct snug_config *config, const struct snug_folder *folder) {
    const char *names[SNUG_CONFIG_FILES];
    const json_t *const files[SNUG_CONFIG_FILES] = {config->json, config->generation};
    for (size_t i = 0; i < snug_config_list(config, names); i++)
        RETURN_IF_ERROR(snug_json_write(ctx, folder, names[i], files[i]));
    return SNUG_OK;
}

void snug_config_free(struct snug_config *config) {
    snug_labels_free(&config->labels);
    json_decref(config->json);
    json_decref(config->generation);
    free(config->settings);
    snug_sentence_free(config->sentence);
    *config = (struct snug_config){0};
}
