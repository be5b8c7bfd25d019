/* SPDX-License-Identifier: Apache-2.0 */
#include "model/sentence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "io/safetensors.h"
#include "model/family.h"
#include "model/weights.h"

/* ---- reading --------------------------------------------------------------------------------------------------- */

struct reading {
    snug_context *ctx;
    const char *folder;
    struct snug_sentence *to;
};

/* Reads folder/sub/name; *json is NULL if it does not exist. */
static snug_status read_json(const struct reading *r, const char *sub, const char *name, char **path, json_t **json) {
    *json = NULL;
    RETURN_IF_ERROR(snug_format(r->ctx, path, "%s/%s%s%s", r->folder, sub, *sub ? "/" : "", name));
    return snug_file_exists(NULL, *path) ? snug_json_read(r->ctx, NULL, *path, json) : SNUG_OK;
}

static snug_status need_json(const struct reading *r, const char *sub, const char *name, char **path, json_t **json) {
    const snug_status status = read_json(r, sub, name, path, json);
    if (status != SNUG_OK || *json) return status;
    return snug_fail(r->ctx, SNUG_E_INPUT, "%s is missing, which " SNUG_SENTENCE_LIST " lists", *path);
}

/* sentence-transformers 6 names one mode, or a list of them; earlier versions have a switch for each. */
static const struct {
    const char *mode, *key;
    enum snug_pooling pooling;
} poolings[] = {
    {"mean", "pooling_mode_mean_tokens", SNUG_POOL_MEAN},
    {"cls", "pooling_mode_cls_token", SNUG_POOL_FIRST},
    {"lasttoken", "pooling_mode_lasttoken", SNUG_POOL_LAST},
    {"weightedmean", "pooling_mode_weightedmean_tokens", SNUG_POOL_WEIGHTED_MEAN},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", SNUG_POOL_ROOT_MEAN},
};
enum { POOLINGS = sizeof poolings / sizeof *poolings };

const char *snug_pooling_key(int i) { return i < POOLINGS ? poolings[i].key : NULL; }
enum snug_pooling snug_pooling_of(int i) { return poolings[i].pooling; }

static snug_status take_pooling(const struct reading *r, const char *path, const json_t *json) {
    const json_t *mode = json_object_get(json, "pooling_mode");
    int found = 0, count = 0;
    if (json_is_array(mode) && json_array_size(mode) == 1) mode = json_array_get(mode, 0);
    for (int i = 0; i < POOLINGS; i++) {
        const bool named = json_is_string(mode) && strcmp(json_string_value(mode), poolings[i].mode) == 0;
        if (!named && (mode || !json_is_true(json_object_get(json, poolings[i].key)))) continue;
        found = i;
        count++;
    }
    const bool most = json_is_true(json_object_get(json, "pooling_mode_max_tokens")) && !mode;
    if (most || count > 1 || (mode && !count))
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED,
                         "%s: this pooling is not supported: one of mean, cls, lasttoken, weightedmean and "
                         "mean_sqrt_len_tokens is, but not max, nor several together",
                         path);
    r->to->pooling = poolings[found].pooling; /* without any it is the mean */
    bool prompt;
    RETURN_IF_ERROR(snug_json_bool(r->ctx, path, json, "include_prompt", true, &prompt));
    r->to->without_prompt = !prompt;
    return SNUG_OK;
}

static snug_status read_pooling(const struct reading *r, const char *sub) {
    char *path = NULL;
    json_t *json;
    snug_status status = need_json(r, sub, "config.json", &path, &json);
    if (status == SNUG_OK) status = take_pooling(r, path, json);
    json_decref(json);
    free(path);
    return status;
}

static const struct {
    const char *class; /* with its package, which may be another one in older files */
    bool activates;
    enum snug_activation activation;
} activations[] = {
    {"torch.nn.modules.activation.Tanh", true, SNUG_TANH}, {"torch.nn.modules.linear.Identity", false, SNUG_TANH},
    {"torch.nn.modules.activation.ReLU", true, SNUG_RELU}, {"torch.nn.modules.activation.GELU", true, SNUG_GELU},
    {"torch.nn.modules.activation.SiLU", true, SNUG_SILU},
};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

const char *snug_dense_activation(const struct snug_sentence_module *m) {
    int i = 0;
    while (activations[i].activates != m->activates || activations[i].activation != m->activation) i++;
    return activations[i].class;
}

static const char *last_part(const char *class) { return strrchr(class, '.') ? strrchr(class, '.') + 1 : class; }

static snug_status take_dense(const struct reading *r, const char *path, const json_t *json,
                              struct snug_sentence_module *m) {
    const char *full, *name;
    bool residual;
    RETURN_IF_ERROR(snug_json_int(r->ctx, path, json, "in_features", 0, &m->in));
    RETURN_IF_ERROR(snug_json_int(r->ctx, path, json, "out_features", 0, &m->out));
    RETURN_IF_ERROR(snug_json_bool(r->ctx, path, json, "bias", true, &m->bias));
    RETURN_IF_ERROR(snug_json_bool(r->ctx, path, json, "use_residual", false, &residual));
    RETURN_IF_ERROR(snug_json_string(r->ctx, path, json, "activation_function", "Tanh", &full));
    if (m->in != r->to->size || m->out < 1 || m->out > SNUG_DIMENSION_MOST)
        return snug_fail(r->ctx, SNUG_E_INPUT,
                         "%s: in_features %lld and out_features %lld do not follow a vector of %lld", path,
                         (long long)m->in, (long long)m->out, (long long)r->to->size);
    name = last_part(full);
    for (int i = 0; i < ACTIVATIONS && !residual; i++) {
        if (strcmp(name, last_part(activations[i].class)) != 0) continue;
        m->activates = activations[i].activates;
        m->activation = activations[i].activation;
        r->to->size = m->out;
        return SNUG_OK;
    }
    return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: %s %s is not supported", path,
                     residual ? "use_residual" : "activation_function", residual ? "true" : full);
}

static snug_status read_dense(const struct reading *r, struct snug_sentence_module *m) {
    char *path = NULL;
    json_t *json;
    snug_status status = need_json(r, m->folder, "config.json", &path, &json);
    if (status == SNUG_OK) status = take_dense(r, path, json, m);
    json_decref(json);
    free(path);
    return status;
}

/* The last part of a module's class: the packages before it have moved. */
static const char *class_of(const json_t *module) {
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *point = type ? strrchr(type, '.') : NULL;
    return point ? point + 1 : "";
}

static snug_status read_module(const struct reading *r, const char *path, size_t index, const json_t *module) {
    const char *class = class_of(module), *sub = json_string_value(json_object_get(module, "path"));
    struct snug_sentence *to = r->to;
    const bool fits = sub && strlen(sub) < sizeof to->modules->folder;
    if (index == 0 && strcmp(class, "Transformer") == 0 && fits && !*sub) return SNUG_OK;
    if (index == 1 && strcmp(class, "Pooling") == 0 && fits && *sub) return read_pooling(r, sub);
    const bool dense = strcmp(class, "Dense") == 0, normalize = strcmp(class, "Normalize") == 0;
    if (index < 2 || !fits || !*sub || (!dense && !normalize) || to->count == SNUG_SENTENCE_MODULES)
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED,
                         "%s: module %zu, %s in \"%s\", is not supported there: a Transformer in the folder itself, a "
                         "Pooling, then up to %d Dense and Normalize are",
                         path, index, *class ? class : "without a type", sub ? sub : "", (int)SNUG_SENTENCE_MODULES);
    struct snug_sentence_module *m = &to->modules[to->count++];
    *m = (struct snug_sentence_module){.dense = dense};
    snprintf(m->folder, sizeof m->folder, "%s", sub);
    return dense ? read_dense(r, m) : SNUG_OK;
}

/* A JSON list, which snug_json_read() does not take. */
static snug_status read_list(const struct reading *r, const char *path, json_t **out) {
    char *text;
    size_t size;
    json_error_t error;
    RETURN_IF_ERROR(snug_file_read(r->ctx, NULL, path, &text, &size));
    *out = snug_json_parse(text, size, 0, &error);
    free(text);
    if (!*out) return snug_fail(r->ctx, snug_json_status(&error), "%s:%d: %s", path, error.line, error.text);
    if (json_is_array(*out) && json_array_size(*out) > 1) return SNUG_OK;
    return snug_fail(r->ctx, SNUG_E_INPUT, "%s is not a list of modules, a Transformer and a Pooling at least", path);
}

static snug_status read_modules(const struct reading *r) {
    char *path;
    json_t *list = NULL;
    RETURN_IF_ERROR(snug_path_join(r->ctx, &path, r->folder, SNUG_SENTENCE_LIST));
    snug_status status = read_list(r, path, &list);
    for (size_t i = 0; status == SNUG_OK && i < json_array_size(list); i++)
        status = read_module(r, path, i, json_array_get(list, i));
    json_decref(list);
    free(path);
    return status;
}

static snug_status read_transformer(const struct reading *r) {
    char *path = NULL;
    json_t *json;
    bool lower = false;
    snug_status status = read_json(r, "", SNUG_SENTENCE_LENGTH, &path, &json);
    if (status == SNUG_OK) status = snug_json_int(r->ctx, path, json, "max_seq_length", 0, &r->to->max_seq_length);
    if (status == SNUG_OK) status = snug_json_bool(r->ctx, path, json, "do_lower_case", false, &lower);
    if (status == SNUG_OK && r->to->max_seq_length < 0)
        status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: max_seq_length must be at least 1", path);
    if (lower)
        snug_log(r->ctx, SNUG_LOG_WARNING,
                 "%s: do_lower_case is not applied: texts are lowercased only if the tokenizer does it", path);
    json_decref(json);
    free(path);
    return status;
}

static snug_status read_settings(const struct reading *r) {
    char *path = NULL;
    const snug_status status = read_json(r, "", SNUG_SENTENCE_SETTINGS, &path, &r->to->settings);
    free(path);
    return status;
}

bool snug_sentence_is_in(const struct snug_folder *folder) { return snug_file_exists(folder, SNUG_SENTENCE_LIST); }

/* As sentence-transformers makes one of a plain model. */
static void choose_pooling(const struct snug_config *config, struct snug_sentence *to) {
    const char *class = json_string_value(json_array_get(json_object_get(config->json, "architectures"), 0));
    const char *end = class ? strstr(class, "ForCausalLM") : NULL;
    to->pooling = end ? SNUG_POOL_LAST : SNUG_POOL_MEAN;
}

snug_status snug_sentence_open(snug_context *ctx, const struct snug_folder *folder, struct snug_config *config) {
    void *memory;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *config->sentence, &memory));
    struct snug_sentence *to = config->sentence = memory;
    const struct reading r = {.ctx = ctx, .folder = folder->path, .to = to};
    to->size = config->hidden_size;
    choose_pooling(config, to);
    const bool given = snug_sentence_is_in(folder);
    if (given) RETURN_IF_ERROR(read_modules(&r));
    if (given) RETURN_IF_ERROR(read_transformer(&r));
    if (given) RETURN_IF_ERROR(read_settings(&r));
    if (!to->settings) to->settings = json_object();
    return to->settings ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory for the settings of the embedding");
}

void snug_sentence_free(struct snug_sentence *sentence) {
    if (sentence) json_decref(sentence->settings);
    free(sentence);
}

snug_status snug_sentence_prompt(snug_context *ctx, const struct snug_sentence *sentence, const char *name,
                                 const char **out) {
    const json_t *prompts = json_object_get(sentence->settings, "prompts"), *value;
    const char *chosen = name ? name : json_string_value(json_object_get(sentence->settings, "default_prompt_name"));
    char known[256] = "";
    const char *key;
    *out = chosen ? json_string_value(json_object_get(prompts, chosen)) : NULL;
    if (*out || !name) return SNUG_OK;
    json_object_foreach((json_t *)(uintptr_t)prompts, key, value)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "", key);
    if (!*known)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "--prompt_name %s: the model has no named prompts: leave it out, or give a text with --prompt",
                         name);
    return snug_fail(ctx, SNUG_E_USAGE,
                     "--prompt_name %s: the model has no prompt of this name: give one of its names, which are %s",
                     name, known);
}

/* ---- programs -------------------------------------------------------------------------------------------------- */

static int32_t add_dense(struct snug_builder *b, int32_t x, const struct snug_sentence_module *m) {
    char name[64];
    snprintf(name, sizeof name, "%s.linear", m->folder);
    const size_t first = b->program->parameter_count;
    const struct snug_affine linear = snug_build_linear(b, m->out, m->in, name, m->bias);
    for (size_t i = first; i < b->program->parameter_count; i++) b->program->parameters[i].apart = true;
    snug_build_mark_head(b, first);
    return m->activates ? snug_activated_linear(b, x, linear, name, m->activation, m->folder)
                        : snug_linear(b, x, linear, m->folder);
}

void snug_build_sentence(struct snug_builder *b, int32_t hidden) {
    const struct snug_sentence *s = b->config->sentence;
    int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "pooled");
    bool unit = false; /* a normalization that is not done yet: the last one is that of the vectors */
    for (int i = 0; i < s->count; i++) {
        if (s->modules[i].dense && unit) x = snug_normalize_rows(b, x, true, true, "normalized");
        if (s->modules[i].dense) x = add_dense(b, x, &s->modules[i]);
        unit = !s->modules[i].dense;
    }
    const int32_t vectors = snug_normalize_rows(b, x, unit, false, "vectors");
    if (b->training)
        snug_build_vector_loss(b, vectors, &s->loss, s->scored);
    else
        snug_build_vectors(b, vectors);
}

/* ---- weights --------------------------------------------------------------------------------------------------- */

struct stored {
    snug_context *ctx;
    const struct snug_safetensors *files;
    const struct snug_stored_tensor *tensor;
};

static snug_status load_parameter(const struct stored *from, const struct snug_program *program,
                                  const struct snug_memory *memory, const struct snug_parameter *p, const char *path) {
    const struct snug_stored_tensor *tensor = from->tensor;
    const int64_t count = snug_parameter_count(p);
    float *values;
    if (!tensor || !snug_weight_has_shape(tensor, p, p->shape[0]))
        return snug_fail(from->ctx, SNUG_E_INPUT,
                         "%s: the tensor %s is missing, or has another shape than its config.json", path,
                         strchr(p->name, '.') + 1);
    RETURN_IF_ERROR(snug_alloc(from->ctx, (size_t)count, sizeof *values, (void **)&values));
    snug_status status = snug_safetensors_read(from->ctx, from->files, tensor, 0, count, values);
    if (status == SNUG_OK) status = snug_parameter_write(program, memory, p, 0, count, values);
    free(values);
    return status;
}

/* Where a module's parameters are: its folder, without its name before theirs; or in a checkpoint, which has no
   folders, with the model's weights. */
static snug_status open_module(snug_context *ctx, const struct snug_folder *folder, const char *path, bool *own,
                               struct snug_safetensors *files) {
    const char *name = "model.safetensors";
    struct snug_folder in;
    *own = snug_sentence_is_in(folder);
    if (!*own) RETURN_IF_ERROR(snug_weights_find(ctx, folder, &name));
    if (!*own) return snug_safetensors_open(ctx, folder, name, files);
    RETURN_IF_ERROR(snug_folder_open(ctx, NULL, path, &in));
    const snug_status status = snug_safetensors_open(ctx, &in, name, files);
    snug_folder_close(&in);
    return status;
}

static snug_status load_module(snug_context *ctx, const struct snug_folder *folder,
                               const struct snug_sentence_module *m, const struct snug_program *program,
                               const struct snug_memory *memory) {
    struct snug_safetensors files;
    bool own;
    char *path, prefix[64];
    RETURN_IF_ERROR(snug_path_join(ctx, &path, folder->path, m->folder));
    snug_status status = open_module(ctx, folder, path, &own, &files);
    const bool open = status == SNUG_OK;
    const int length = snprintf(prefix, sizeof prefix, "%s.", m->folder);
    for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        if (!p->apart || strncmp(p->name, prefix, (size_t)length) != 0) continue;
        const struct stored from = {ctx, &files, snug_safetensors_find(&files, p->name + (own ? length : 0))};
        status = load_parameter(&from, program, memory, p, path);
    }
    if (open) snug_safetensors_close(&files);
    free(path);
    return status;
}

snug_status snug_sentence_load(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                               const struct snug_config *config, const struct snug_memory *memory) {
    const struct snug_sentence *s = config->sentence;
    for (int i = 0; s && i < s->count; i++)
        if (s->modules[i].dense) RETURN_IF_ERROR(load_module(ctx, folder, &s->modules[i], program, memory));
    return SNUG_OK;
}
