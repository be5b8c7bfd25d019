/* SPDX-License-Identifier: Apache-2.0 */
#include "train/adapter.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "data/task.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/family.h"
#include "model/weight_files.h"

static bool is_adapter(const struct snug_folder *folder) {
    return snug_file_exists(folder, SNUG_ADAPTER_CONFIG) && !snug_file_exists(folder, SNUG_WEIGHTS) &&
           !snug_file_exists(folder, SNUG_WEIGHTS_INDEX);
}

static snug_status read_config(snug_context *ctx, const struct snug_folder *folder, char **path, json_t **json) {
    RETURN_IF_ERROR(snug_path_join(ctx, path, folder->path, SNUG_ADAPTER_CONFIG));
    const snug_status status = snug_json_read(ctx, folder, SNUG_ADAPTER_CONFIG, json);
    if (status != SNUG_OK) free(*path);
    return status;
}

static snug_status find_base(snug_context *ctx, const struct snug_folder *folder, char **base) {
    const char *name = NULL;
    char *path;
    json_t *json;
    *base = NULL;
    RETURN_IF_ERROR(read_config(ctx, folder, &path, &json));
    snug_status status = snug_json_string(ctx, path, json, "base_model_name_or_path", NULL, &name);
    if (status == SNUG_OK && !name)
        status = snug_fail(ctx, SNUG_E_INPUT,
                           "%s names no base_model_name_or_path: give the model with --model_name_or_path, and this "
                           "folder with --adapter_name_or_path",
                           path);
    if (status == SNUG_OK) status = snug_strdup(ctx, name, base);
    json_decref(json);
    free(path);
    return status;
}

static snug_status open_folder(const struct snug_args *args, const char *name, struct snug_folder *out) {
    const struct snug_hub_place place = snug_args_place(args);
    char *folder;
    RETURN_IF_ERROR(snug_model_locate(args->ctx, &place, name, &folder));
    const snug_status status = snug_folder_open(args->ctx, NULL, folder, out);
    free(folder);
    return status;
}

bool snug_adapter_is_named(const struct snug_args *args) {
    struct snug_folder folder;
    if (args->adapter_name_or_path) return true;
    if (!args->model_name_or_path || !snug_folder_exists(args->model_name_or_path)) return false;
    const snug_status status = snug_folder_open(args->ctx, NULL, args->model_name_or_path, &folder);
    if (status != SNUG_OK) {
        snug_clear_error(args->ctx); /* whoever opens it next says so */
        return false;
    }
    const bool found = is_adapter(&folder);
    snug_folder_close(&folder);
    return found;
}

snug_status snug_adapter_find_folders(const struct snug_args *args, struct snug_folder *model,
                                      struct snug_folder *adapter) {
    char *base;
    *adapter = (struct snug_folder){0};
    RETURN_IF_ERROR(open_folder(args, args->model_name_or_path, model));
    if (args->adapter_name_or_path) return open_folder(args, args->adapter_name_or_path, adapter);
    if (!is_adapter(model)) return SNUG_OK;
    *adapter = *model;
    *model = (struct snug_folder){0};
    RETURN_IF_ERROR(find_base(args->ctx, adapter, &base));
    const snug_status status = open_folder(args, base, model);
    free(base);
    return status;
}

/* ---- the configuration ------------------------------------------------------------------------------------------- */

static const struct {
    const char *peft;
    enum snug_task task;
} task_types[] = {{"SEQ_CLS", SNUG_TASK_CLASSIFICATION},
                  {"TOKEN_CLS", SNUG_TASK_TOKEN_CLASSIFICATION},
                  {"CAUSAL_LM", SNUG_TASK_CLM},
                  {"CAUSAL_LM", SNUG_TASK_DPO},
                  {"QUESTION_ANS", SNUG_TASK_QUESTION_ANSWERING}};
enum { TASK_TYPES = sizeof task_types / sizeof *task_types };

/* PEFT's name of the task; NULL: it has none for masked LM. */
static const char *task_type(enum snug_task task) {
    for (int i = 0; i < TASK_TYPES; i++)
        if (task_types[i].task == task) return task_types[i].peft;
    return NULL;
}

/* Rows of the last weight of a classifier; 0: there is none. */
static snug_status count_classes(snug_context *ctx, const struct snug_folder *folder, int64_t *classes) {
    static const char *const names[] = {"classifier.weight", "classifier.out_proj.weight", "score.weight"};
    struct snug_safetensors files;
    *classes = 0;
    RETURN_IF_ERROR(snug_safetensors_open(ctx, folder, SNUG_ADAPTER_WEIGHTS, &files));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, SNUG_ADAPTER_PREFIX "%s", names[i]);
        const struct snug_stored_tensor *stored = snug_safetensors_find(&files, name);
        if (stored) *classes = stored->shape[0];
    }
    snug_safetensors_close(&files);
    return SNUG_OK;
}

/* LABEL_0, LABEL_1, … as transformers names them. */
static snug_status make_labels(snug_context *ctx, int64_t count, struct snug_labels *out) {
    *out = (struct snug_labels){.problem = SNUG_PROBLEM_SINGLE_LABEL};
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)count, sizeof *out->names, (void **)&out->names));
    snug_status status = SNUG_OK;
    for (; out->count < count && status == SNUG_OK; out->count++)
        status = snug_format(ctx, &out->names[out->count], "LABEL_%lld", (long long)out->count);
    return status;
}

static snug_status take_task(snug_context *ctx, const struct snug_folder *folder, const char *type,
                             struct snug_config *config) {
    struct snug_labels labels = {0};
    int64_t classes = 0;
    int i = 0;
    while (i < TASK_TYPES && strcmp(task_types[i].peft, type) != 0) i++;
    if (i == TASK_TYPES) return SNUG_OK;
    const bool labelled = snug_task_info(task_types[i].task)->labelled;
    if (labelled) RETURN_IF_ERROR(count_classes(ctx, folder, &classes));
    const bool renamed = classes && classes != config->labels.count;
    snug_status status = renamed ? make_labels(ctx, classes, &labels) : SNUG_OK;
    if (status == SNUG_OK)
        status = snug_config_set_task(ctx, config, task_types[i].task, renamed ? &labels : &config->labels);
    if (renamed) config->has_label_names = false;
    snug_labels_free(&labels);
    return status;
}

/* The configuration that snug wrote. Tokens that the model's does not have are new: the adapters have their rows. */
static snug_status read_own_config(snug_context *ctx, const struct snug_folder *model,
                                   const struct snug_folder *adapter, struct snug_config *out) {
    struct snug_config base = {0};
    snug_status status = snug_config_read(ctx, adapter->path, out);
    if (status == SNUG_OK) status = snug_config_read(ctx, model->path, &base);
    if (status == SNUG_OK && out->vocab_size > base.vocab_size) out->new_tokens = out->vocab_size - base.vocab_size;
    snug_config_free(&base);
    return status;
}

/* The number of tokens that a list of ids needs. */
static int64_t tokens_of(const json_t *ids) {
    const json_t *id;
    int64_t most = 0;
    size_t i;
    json_array_foreach(ids, i, id) most = snug_max(most, json_integer_value(id) + 1);
    return most;
}

static snug_status grow(snug_context *ctx, int64_t tokens, struct snug_config *config) {
    if (tokens <= config->vocab_size || tokens > SNUG_VOCABULARY_MOST) return SNUG_OK;
    return snug_config_grow(ctx, config, tokens);
}

/* Ids beyond the model's vocabulary are those of new tokens. */
static snug_status take_new_tokens(snug_context *ctx, json_t *tokens, struct snug_config *config) {
    int64_t most = tokens_of(tokens);
    const char *module;
    json_t *ids;
    json_object_foreach(tokens, module, ids) most = snug_max(most, tokens_of(ids));
    return grow(ctx, most, config);
}

/* A word table or output that is saved as a whole has the rows of new tokens. */
static snug_status take_new_rows(snug_context *ctx, const struct snug_folder *folder, struct snug_config *config) {
    struct snug_safetensors files;
    char names[2][256] = {SNUG_ADAPTER_PREFIX, SNUG_ADAPTER_PREFIX};
    const size_t prefix = strlen(SNUG_ADAPTER_PREFIX), rest = sizeof *names - prefix;
    int64_t most = 0;
    RETURN_IF_ERROR(snug_safetensors_open(ctx, folder, SNUG_ADAPTER_WEIGHTS, &files));
    snug_family_word_name(config, names[0] + prefix, rest);
    snug_family_decoder_name(config, names[1] + prefix, rest);
    for (int i = 0; i < 2; i++) {
        const struct snug_stored_tensor *stored = snug_safetensors_find(&files, names[i]);
        if (stored) most = snug_max(most, stored->shape[0]);
    }
    snug_safetensors_close(&files);
    return grow(ctx, most, config);
}

snug_status snug_adapter_config(snug_context *ctx, const struct snug_folder *model, const struct snug_folder *adapter,
                                struct snug_config *out) {
    const char *type = "";
    char *path;
    json_t *json;
    if (snug_file_exists(adapter, "config.json")) return read_own_config(ctx, model, adapter, out);
    RETURN_IF_ERROR(read_config(ctx, adapter, &path, &json));
    snug_status status = snug_config_read(ctx, model->path, out);
    if (status == SNUG_OK) status = snug_json_string(ctx, path, json, "task_type", type, &type);
    if (status == SNUG_OK) status = take_task(ctx, adapter, type, out);
    if (status == SNUG_OK) status = take_new_tokens(ctx, json_object_get(json, "trainable_token_indices"), out);
    if (status == SNUG_OK) status = take_new_rows(ctx, adapter, out);
    json_decref(json);
    free(path);
    return status;
}

/* ---- the arguments' ---------------------------------------------------------------------------------------------- */

/* Names separated by commas. */
static json_t *list_of(const char *names) {
    json_t *list = json_array();
    for (const char *at = names; *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        if (length) snug_json_append(&list, json_stringn(at, length));
        at += length;
    }
    return list;
}

/* A name, or a list of them, or one regular expression, as which a comma may be part of it. */
static json_t *targets_of(const char *text) {
    const bool pattern = text[strcspn(text, "()[]{}|*+?\\^$")];
    if (pattern || strcasecmp(text, "all-linear") == 0) return json_string(text);
    return list_of(text);
}

/* A JSON object in the argument or in the file that it names. */
static snug_status add_pattern(const struct snug_adapter_source *from, json_t **to, const char *key,
                               const char *value) {
    json_t *json = NULL;
    if (!value)
        json = json_object();
    else if (value[strspn(value, " \t\n")] == '{')
        RETURN_IF_ERROR(snug_json_read_text(from->args->ctx, key, value, strlen(value), &json));
    else
        RETURN_IF_ERROR(snug_json_read(from->args->ctx, NULL, value, &json));
    snug_json_add(to, key, json);
    return SNUG_OK;
}

/* Adds the ids of new tokens to a list, which has none of them: the arguments name ids of the model's own. */
static void add_new_ids(json_t *list, const struct snug_config *config) {
    for (int64_t id = config->vocab_size - config->new_tokens; id < config->vocab_size; id++)
        snug_json_append(&list, json_integer(id));
}

/* The last part of the name of a weight's module. */
static void name_module(const char *weight, char *name, size_t size) {
    const char *end = weight + strlen(weight) - strlen(".weight"), *begin = end;
    while (begin > weight && begin[-1] != '.') begin--;
    snprintf(name, size, "%.*s", (int)(end - begin), begin);
}

/* The list of a module's ids in an object of them, which is new if there is none. */
static json_t *ids_of_module(json_t *object, const char *module) {
    json_t *list = json_object_get(object, module);
    if (list) return list;
    list = json_array();
    json_object_set_new(object, module, list);
    return list;
}

/* The rows of new tokens are trained, of the word table, and of an output of its own: no file has them, so that the
   adapter's must. A list is of the word table alone. */
static snug_status add_new_tokens(const struct snug_adapter_source *from, const json_t *saved, json_t **tokens) {
    const struct snug_config *config = from->config;
    const bool untied = snug_head_of(config) == SNUG_HEAD_VOCABULARY && config->own_decoder;
    char word[256], decoder[256], words[64], output[64];
    snug_family_word_name(config, word, sizeof word);
    name_module(word, words, sizeof words);
    if (!json_is_object(*tokens)) {
        json_t *object = json_object();
        if (json_is_array(*tokens)) json_object_set(object, words, *tokens);
        json_decref(*tokens);
        *tokens = object;
    }
    if (snug_adapter_place(saved, word) < 0) add_new_ids(ids_of_module(*tokens, words), config);
    if (untied) {
        snug_family_decoder_name(config, decoder, sizeof decoder);
        name_module(decoder, output, sizeof output);
        if (snug_adapter_place(saved, decoder) < 0) add_new_ids(ids_of_module(*tokens, output), config);
    }
    return *tokens ? SNUG_OK : snug_fail(from->args->ctx, SNUG_E_MEMORY, "out of memory while listing new tokens");
}

/* Ids separated by commas, also in brackets; or lists of them by modules, as a pattern. */
static snug_status add_tokens(const struct snug_adapter_source *from, json_t **to) {
    static const char key[] = "trainable_token_indices", between[] = "[], ";
    const char *value = from->args->trainable_token_indices, *at = value;
    json_t *json = value ? json_array() : json_null();
    while (at && (at += strspn(at, between), isdigit((unsigned char)*at))) {
        char *end;
        snug_json_append(&json, json_integer(strtoll(at, &end, 10))); /* beyond 64 bits: the largest number */
        at = end;
    }
    if (!at || (!*at && json_array_size(json) > 0)) {
        snug_json_add(to, key, json);
        return SNUG_OK;
    }
    json_decref(json);
    return add_pattern(from, to, key, value);
}

/* The base model as it is found again: a folder by its whole path. */
static json_t *base_json(const struct snug_adapter_source *from) {
    const char *name = from->args->model_name_or_path;
    if (!from->model->path) return json_null(); /* a plan needs none */
    char *real = realpath(name, NULL);
    json_t *json = snug_json_from_text(real ? real : name);
    free(real);
    return json;
}

/* The members that PEFT writes, in its order. */
static void add_constants(json_t **to) {
    static const char *const empty[] = {"alora_invocation_tokens",
                                        "arrow_config",
                                        "auto_mapping",
                                        "corda_config",
                                        "eva_config",
                                        "exclude_modules",
                                        "layer_replication",
                                        "layers_pattern",
                                        "layers_to_transform",
                                        "megatron_config",
                                        "revision",
                                        "target_parameters",
                                        NULL};
    static const char *const off[] = {"ensure_weight_tying", "use_qalora", NULL};
    for (const char *const *key = empty; *key; key++) snug_json_add(to, *key, json_null());
    for (const char *const *key = off; *key; key++) snug_json_add(to, *key, json_false());
    snug_json_add(to, "inference_mode", json_true());
    snug_json_add(to, "init_lora_weights", json_true());
    snug_json_add(to, "loftq_config", json_object());
    snug_json_add(to, "megatron_core", json_string("megatron.core"));
    snug_json_add(to, "peft_type", json_string("LORA"));
    snug_json_add(to, "qalora_group_size", json_integer(16));
}

static snug_status describe(const struct snug_adapter_source *from, json_t **to) {
    const struct snug_args *args = from->args;
    const char *type = task_type(from->config->task);
    const bool gpt2 = from->config->family == snug_family_find("gpt2");
    add_constants(to);
    snug_json_add(to, "base_model_name_or_path", base_json(from));
    snug_json_add(to, "bias", json_string(args->bias));
    snug_json_add(to, "fan_in_fan_out", json_boolean(gpt2));
    snug_json_add(to, "lora_alpha", json_integer(args->lora_alpha));
    snug_json_add(to, "lora_bias", json_boolean(args->lora_bias));
    snug_json_add(to, "lora_dropout", snug_json_number(args->lora_dropout));
    snug_json_add(to, "modules_to_save",
                  args->lora_modules_to_save ? list_of(args->lora_modules_to_save) : json_null());
    snug_json_add(to, "r", json_integer(args->lora_r));
    snug_json_add(to, "target_modules",
                  args->lora_target_modules ? targets_of(args->lora_target_modules) : json_null());
    snug_json_add(to, "task_type", type ? json_string(type) : json_null());
    snug_json_add(to, "use_dora", json_boolean(args->use_dora));
    snug_json_add(to, "use_rslora", json_boolean(args->use_rslora));
    RETURN_IF_ERROR(add_tokens(from, to));
    RETURN_IF_ERROR(snug_family_copy_decoder(args->ctx, from->config, *to));
    if (from->config->new_tokens) {
        json_t *tokens = json_incref(json_object_get(*to, "trainable_token_indices"));
        const snug_status status = add_new_tokens(from, json_object_get(*to, "modules_to_save"), &tokens);
        snug_json_add(to, "trainable_token_indices", tokens);
        RETURN_IF_ERROR(status);
    }
    RETURN_IF_ERROR(add_pattern(from, to, "rank_pattern", args->rank_pattern));
    return add_pattern(from, to, "alpha_pattern", args->alpha_pattern);
}

/* ---- the run's --------------------------------------------------------------------------------------------------- */

/* A classifier is trained and saved with the adapters, under the names that PEFT gives it. */
static void add_classifiers(json_t **json, enum snug_head head) {
    const char *const names[] = {"classifier", head == SNUG_HEAD_SPAN ? "qa_outputs" : "score"};
    json_t *saved = json_object_get(*json, "modules_to_save"), *name;
    size_t k;
    saved = json_is_array(saved) ? json_incref(saved) : json_array();
    for (int i = 0; i < 2; i++) {
        bool has = false;
        json_array_foreach(saved, k, name) has |=
            json_is_string(name) && strcmp(json_string_value(name), names[i]) == 0;
        if (!has) snug_json_append(&saved, json_string(names[i]));
    }
    snug_json_add(json, "modules_to_save", saved);
}

static snug_status take(const struct snug_adapter_source *from, const char *path, json_t **json, bool strict,
                        struct snug_adapter **out) {
    const struct snug_task_info *task = snug_task_info(from->config->task);
    if (task->labelled || task->objects) add_classifiers(json, task->head);
    if (!*json) return snug_fail(from->args->ctx, SNUG_E_MEMORY, "out of memory while reading %s", path);
    RETURN_IF_ERROR(snug_adapter_read(from->args->ctx, path, *json, from->config->family->lora_targets, strict, out));
    return SNUG_OK;
}

/* An argument of adapters that is given, although it has no effect; NULL: none. */
static const char *useless(const struct snug_args *args, bool continues) {
    static const char *const names[] = {
        "lora_r",     "lora_alpha", "lora_dropout",           "lora_target_modules", "lora_modules_to_save",
        "use_rslora", "use_dora",   "lora_task_type",         "rank_pattern",        "alpha_pattern",
        "bias",       "lora_bias",  "trainable_token_indices"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (continues ? snug_args_is_set(args, names[i]) : snug_args_is_chosen(args, names[i])) return names[i];
    return NULL;
}

static snug_status read_folder(const struct snug_adapter_source *from, struct snug_adapter **out) {
    char *path;
    json_t *json;
    RETURN_IF_ERROR(read_config(from->args->ctx, from->folder, &path, &json));
    snug_status status = take(from, path, &json, false, out);
    if (status == SNUG_OK) status = snug_family_copy_decoder(from->args->ctx, from->config, snug_adapter_json(*out));
    json_decref(json);
    free(path);
    return status;
}

static snug_status check_arguments(const struct snug_adapter_source *from) {
    const struct snug_args *args = from->args;
    const char *type = task_type(from->config->task), *name = useless(args, false);
    if (!args->use_peft)
        return !name || !from->trains
                   ? SNUG_OK
                   : snug_fail(from->args->ctx, SNUG_E_USAGE, "--%s is for LoRA adapters: give --use_peft, too", name);
    if (args->freeze)
        return snug_fail(
            from->args->ctx, SNUG_E_USAGE,
            "--freeze: with --use_peft all but the adapters and --lora_modules_to_save is frozen: leave it "
            "out");
    if (args->lora_task_type && (!type || strcmp(args->lora_task_type, type) != 0))
        return snug_fail(from->args->ctx, SNUG_E_USAGE, "--lora_task_type %s: the task is %s%s%s: leave it out",
                         args->lora_task_type, snug_task_name(from->config->task), type ? ", which is " : "",
                         type ? type : "");
    if (from->trains && !from->plans && !from->model->path)
        return snug_fail(from->args->ctx, SNUG_E_USAGE,
                         "--use_peft: adapters are trained beside the weights of a model: give --model_name_or_path");
    return SNUG_OK;
}

snug_status snug_adapter_open(const struct snug_adapter_source *from, struct snug_adapter **out) {
    const struct snug_args *args = from->args;
    json_t *json = json_object();
    snug_status status = SNUG_OK;
    *out = NULL;
    if (from->folder->path) {
        const char *name = from->trains ? useless(args, true) : NULL;
        if (name)
            status = snug_fail(from->args->ctx, SNUG_E_USAGE,
                               "--%s: the adapter in %s has its own settings: leave it out", name, from->folder->path);
        else
            status = read_folder(from, out);
    } else {
        status = check_arguments(from);
        if (status == SNUG_OK && args->use_peft && from->trains) {
            status = describe(from, &json);
            if (status == SNUG_OK) status = take(from, "--use_peft", &json, true, out);
        }
    }
    json_decref(json);
    return status;
}
