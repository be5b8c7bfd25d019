/* SPDX-License-Identifier: Apache-2.0 */
#include "model/adapters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/list.h"
#include "io/json.h"
#include "program/program.h"
#include "tokenizer/regex.h"

enum { RANK_MOST = 1 << 20 };

/* A rank or an alpha of the linears whose names match. */
struct pattern {
    struct snug_regex *regex;
    double value;
};

struct snug_adapter {
    snug_context *ctx;
    const char *path;
    json_t *json;
    double r, alpha, dropout;
    bool rslora, dora, bias_of_b, strict, all_linear, ties;
    enum snug_adapter_biases biases;
    struct snug_regex *target, *excluded; /* where a text is given in place of a list */
    struct pattern *ranks, *alphas;
    size_t rank_count, alpha_count;
};

const json_t *snug_adapter_json(const struct snug_adapter *adapter) { return adapter->json; }

bool snug_adapter_ties(const struct snug_adapter *adapter) { return adapter->ties; }

/* ---- adapter_config.json --------------------------------------------------------------------------------------- */

/* Members that change what is computed, and that snug does not have. */
static const char *const unsupported[] = {"target_parameters",
                                          "layer_replication",
                                          "layers_pattern",
                                          "alora_invocation_tokens",
                                          "use_qalora",
                                          "use_bdlora",
                                          "arrow_config",
                                          "eva_config",
                                          "corda_config",
                                          "kasa_config",
                                          "lora_ga_config",
                                          "monteclora_config",
                                          "velora_config",
                                          "megatron_config",
                                          NULL};

/* Whether a member asks for nothing: null, false, an empty text, list or object. */
static bool asks_nothing(const json_t *value) {
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static snug_status check_supported(const struct snug_adapter *a) {
    const char *const *key = unsupported;
    const char *type = "LORA";
    while (*key && asks_nothing(json_object_get(a->json, *key))) key++;
    if (*key) return snug_fail(a->ctx, SNUG_E_UNSUPPORTED, "%s: %s is not supported yet", a->path, *key);
    RETURN_IF_ERROR(snug_json_string(a->ctx, a->path, a->json, "peft_type", type, &type));
    if (strcmp(type, "LORA") != 0)
        return snug_fail(a->ctx, SNUG_E_UNSUPPORTED, "%s: peft_type %s is not supported: LORA is", a->path, type);
    return SNUG_OK;
}

static snug_status read_biases(struct snug_adapter *a) {
    static const char *const names[] = {
        [SNUG_ADAPTER_NO_BIAS] = "none", [SNUG_ADAPTER_ALL_BIASES] = "all", [SNUG_ADAPTER_OWN_BIASES] = "lora_only"};
    const char *bias = names[SNUG_ADAPTER_NO_BIAS];
    int i = 0;
    RETURN_IF_ERROR(snug_json_bool(a->ctx, a->path, a->json, "lora_bias", false, &a->bias_of_b));
    RETURN_IF_ERROR(snug_json_string(a->ctx, a->path, a->json, "bias", bias, &bias));
    while (i < 3 && strcmp(names[i], bias) != 0) i++;
    a->biases = (enum snug_adapter_biases)i;
    return i < 3 ? SNUG_OK
                 : snug_fail(a->ctx, SNUG_E_INPUT, "%s: bias is \"%s\", and must be none, all or lora_only", a->path,
                             bias);
}

enum snug_adapter_biases snug_adapter_biases(const struct snug_adapter *adapter) { return adapter->biases; }

/* Most other ways of initialising change the weights of the base model, too. */
static snug_status check_init(const struct snug_adapter *a) {
    const json_t *init = json_object_get(a->json, "init_lora_weights");
    const char *name = json_string_value(init);
    if (!init || json_is_null(init) || json_is_true(init) || (name && strcmp(name, "gaussian") == 0)) return SNUG_OK;
    return snug_fail(a->ctx, SNUG_E_UNSUPPORTED, "%s: init_lora_weights %s is not supported: true and \"gaussian\" are",
                     a->path, name ? name : "false");
}

static snug_status compile(const struct snug_adapter *a, const char *before, const char *pattern, const char *after,
                           struct snug_regex **out) {
    char *text;
    RETURN_IF_ERROR(snug_format(a->ctx, &text, "\\A(?:%s%s%s)\\z", before, pattern, after));
    const snug_status status = snug_regex_compile(a->ctx, a->path, text, strlen(text), out);
    free(text);
    return status;
}

static snug_status read_patterns(struct snug_adapter *a, const char *key, struct pattern **out, size_t *count) {
    json_t *patterns = json_object_get(a->json, key), *value;
    const char *name;
    if (asks_nothing(patterns)) return SNUG_OK;
    if (!json_is_object(patterns))
        return snug_fail(a->ctx, SNUG_E_INPUT, "%s: %s must be an object of names and numbers", a->path, key);
    RETURN_IF_ERROR(snug_alloc(a->ctx, json_object_size(patterns), sizeof **out, (void **)out));
    json_object_foreach(patterns, name, value) {
        const double number = json_number_value(value);
        if (!(number >= 1) || number > RANK_MOST)
            return snug_fail(a->ctx, SNUG_E_INPUT, "%s: %s of \"%s\" must be a number of at least 1", a->path, key,
                             name);
        (*out)[*count].value = number;
        RETURN_IF_ERROR(compile(a, "(?:.*\\.)?(?:", name, ")", &(*out)[*count].regex));
        ++*count;
    }
    return SNUG_OK;
}

/* A list of names, or a regular expression of whole names. */
static snug_status read_names(struct snug_adapter *a, const char *key, struct snug_regex **regex) {
    const json_t *names = json_object_get(a->json, key), *name;
    size_t i;
    if (asks_nothing(names)) return SNUG_OK;
    if (json_is_string(names)) return compile(a, "", json_string_value(names), "", regex);
    json_array_foreach(names, i, name) {
        if (!json_is_string(name)) names = NULL;
    }
    if (json_is_array(names) && i <= SNUG_ADAPTER_NAMES_MOST) return SNUG_OK;
    return snug_fail(a->ctx, SNUG_E_INPUT, "%s: %s must be a list of names, at most 4096, or a regular expression",
                     a->path, key);
}

/* The names are separated by spaces. */
static snug_status default_targets(struct snug_adapter *a, const char *names) {
    json_t *list = json_array();
    for (const char *word = names; word && *word; word += strcspn(word, " "), word += *word == ' ')
        snug_json_append(&list, json_stringn(word, strcspn(word, " ")));
    snug_json_add(&a->json, "target_modules", list); /* an empty one is an error of snug_adapter_check() */
    return a->json ? SNUG_OK : snug_fail(a->ctx, SNUG_E_MEMORY, "%s: out of memory", a->path);
}

static snug_status read_targets(struct snug_adapter *a, const char *default_names) {
    const json_t *targets = json_object_get(a->json, "target_modules");
    if (asks_nothing(targets)) return default_targets(a, default_names);
    const char *text = json_string_value(targets);
    a->all_linear = text && strcasecmp(text, "all-linear") == 0;
    return a->all_linear ? SNUG_OK : read_names(a, "target_modules", &a->target);
}

static snug_status read_layers(const struct snug_adapter *a) {
    const json_t *layers = json_object_get(a->json, "layers_to_transform"), *layer;
    size_t i;
    if (asks_nothing(layers) || json_is_integer(layers)) return SNUG_OK;
    json_array_foreach(layers, i, layer) {
        if (!json_is_integer(layer)) layers = NULL;
    }
    if (json_is_array(layers)) return SNUG_OK;
    return snug_fail(a->ctx, SNUG_E_INPUT, "%s: layers_to_transform must be a list of layers' numbers", a->path);
}

static int by_value(const void *a, const void *b) {
    const json_int_t x = *(const json_int_t *)a, y = *(const json_int_t *)b;
    return (x > y) - (x < y);
}

/* A list of different ids. */
static snug_status check_ids(const struct snug_adapter *a, const json_t *list) {
    const size_t count = json_array_size(list);
    json_int_t *ids;
    size_t i = 0;
    RETURN_IF_ERROR(snug_alloc(a->ctx, count + 1, sizeof *ids, (void **)&ids));
    for (; i < count && json_is_integer(json_array_get(list, i)); i++)
        ids[i] = json_integer_value(json_array_get(list, i));
    bool good = count > 0 && i == count;
    qsort(ids, i, sizeof *ids, by_value);
    for (i = 0; good && i < count; i++) good = ids[i] >= 0 && ids[i] <= INT32_MAX && (i == 0 || ids[i] != ids[i - 1]);
    free(ids);
    return good ? SNUG_OK
                : snug_fail(a->ctx, SNUG_E_INPUT,
                            "%s: trainable_token_indices must be a list of different ids of tokens, or an object of "
                            "names of modules and such lists",
                            a->path);
}

static snug_status read_tokens(const struct snug_adapter *a) {
    json_t *tokens = json_object_get(a->json, "trainable_token_indices"), *list;
    const char *name;
    if (asks_nothing(tokens)) return SNUG_OK;
    if (!json_is_object(tokens)) return check_ids(a, tokens);
    json_object_foreach(tokens, name, list) RETURN_IF_ERROR(check_ids(a, list));
    return SNUG_OK;
}

static snug_status read_numbers(struct snug_adapter *a) {
    RETURN_IF_ERROR(snug_json_real(a->ctx, a->path, a->json, "r", 8, &a->r));
    RETURN_IF_ERROR(snug_json_real(a->ctx, a->path, a->json, "lora_alpha", 8, &a->alpha));
    RETURN_IF_ERROR(snug_json_real(a->ctx, a->path, a->json, "lora_dropout", 0, &a->dropout));
    RETURN_IF_ERROR(snug_json_bool(a->ctx, a->path, a->json, "use_rslora", false, &a->rslora));
    RETURN_IF_ERROR(snug_json_bool(a->ctx, a->path, a->json, "use_dora", false, &a->dora));
    RETURN_IF_ERROR(snug_json_bool(a->ctx, a->path, a->json, "ensure_weight_tying", false, &a->ties));
    if (a->dora && a->bias_of_b)
        return snug_fail(a->ctx, SNUG_E_USAGE,
                         "%s: lora_bias and use_dora exclude each other, as in PEFT: leave one of them out", a->path);
    if (!(a->r >= 1) || a->r > RANK_MOST || a->r != floor(a->r))
        return snug_fail(a->ctx, SNUG_E_INPUT, "%s: r must be a whole number of at least 1", a->path);
    if (!(a->dropout >= 0) || a->dropout >= 1)
        return snug_fail(a->ctx, SNUG_E_INPUT, "%s: lora_dropout must be at least 0 and below 1", a->path);
    return SNUG_OK;
}

static snug_status read_all(struct snug_adapter *a, const json_t *json, const char *default_names, const char *path) {
    RETURN_IF_ERROR(snug_keep_text(a->ctx, path, &a->path));
    a->json = json_deep_copy(json);
    if (!a->json) return snug_fail(a->ctx, SNUG_E_MEMORY, "%s: out of memory", path);
    struct snug_regex *saved = NULL;
    RETURN_IF_ERROR(check_supported(a));
    RETURN_IF_ERROR(read_biases(a));
    RETURN_IF_ERROR(read_numbers(a));
    RETURN_IF_ERROR(check_init(a));
    RETURN_IF_ERROR(read_targets(a, default_names));
    RETURN_IF_ERROR(read_names(a, "exclude_modules", &a->excluded));
    RETURN_IF_ERROR(read_layers(a));
    RETURN_IF_ERROR(read_tokens(a));
    RETURN_IF_ERROR(read_patterns(a, "rank_pattern", &a->ranks, &a->rank_count));
    RETURN_IF_ERROR(read_patterns(a, "alpha_pattern", &a->alphas, &a->alpha_count));
    RETURN_IF_ERROR(read_names(a, "modules_to_save", &saved));
    if (!saved) return SNUG_OK;
    snug_regex_free(saved);
    return snug_fail(a->ctx, SNUG_E_INPUT, "%s: modules_to_save must be a list of names", path);
}

snug_status snug_adapter_read(snug_context *ctx, const char *path, const json_t *json, const char *default_names,
                              bool strict, struct snug_adapter **out) {
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, (void **)out));
    (*out)->ctx = ctx;
    (*out)->strict = strict;
    const snug_status status = read_all(*out, json, default_names, path);
    if (status == SNUG_OK) return SNUG_OK;
    snug_adapter_free(*out);
    *out = NULL;
    return status;
}

static void free_patterns(struct pattern *patterns, size_t count) {
    for (size_t i = 0; i < count; i++) snug_regex_free(patterns[i].regex);
    free(patterns);
}

void snug_adapter_free(struct snug_adapter *adapter) {
    if (!adapter) return;
    snug_regex_free(adapter->target);
    snug_regex_free(adapter->excluded);
    free_patterns(adapter->ranks, adapter->rank_count);
    free_patterns(adapter->alphas, adapter->alpha_count);
    json_decref(adapter->json);
    free(adapter);
}

/* ---- names of modules ------------------------------------------------------------------------------------------ */

static snug_status matches(const struct snug_adapter *a, const struct snug_regex *regex, const char *name, bool *out) {
    struct snug_regex_scratch scratch = {0};
    size_t start, end;
    const snug_status status = snug_regex_find(a->ctx, regex, name, strlen(name), 0, &scratch, &start, &end);
    snug_regex_scratch_free(&scratch);
    *out = status == SNUG_OK;
    return status == SNUG_END ? SNUG_OK : status;
}

/* Whether name is `of` itself or its last parts, which a dot precedes. */
static bool is_end(const char *of, const char *name) {
    const size_t length = strlen(of), cut = strlen(name);
    if (length < cut || strcmp(of + length - cut, name) != 0) return false;
    return length == cut || of[length - cut - 1] == '.';
}

/* The number of the list's first name that module ends with; -1: none. */
static int64_t place_in(const json_t *list, const char *module) {
    const json_t *name;
    size_t i;
    json_array_foreach(list, i, name) {
        if (is_end(module, json_string_value(name))) return (int64_t)i;
    }
    return -1;
}

/* After the number in a module's name, a layer's: mlp.up_proj of model.layers.3.mlp.up_proj; NULL: there is none. */
static const char *after_layer(const char *module, int64_t *layer) {
    for (const char *at = strchr(module, '.'); at; at = strchr(at + 1, '.')) {
        char *end;
        *layer = strtoll(at + 1, &end, 10);
        if (end > at + 1 && *end == '.') return end + 1;
    }
    return NULL;
}

static bool has_its_layer(const struct snug_adapter *a, const char *module) {
    const json_t *layers = json_object_get(a->json, "layers_to_transform"), *layer;
    int64_t number;
    if (!after_layer(module, &number)) number = -1;
    size_t i;
    if (json_is_integer(layers)) return json_integer_value(layers) == number;
    if (json_array_size(layers) == 0) return true;
    json_array_foreach(layers, i, layer) {
        if (json_integer_value(layer) == number) return true;
    }
    return false;
}

int64_t snug_adapter_saves(const struct snug_adapter *adapter, const char *parameter) {
    return snug_adapter_place(json_object_get(adapter->json, "modules_to_save"), parameter);
}

int64_t snug_adapter_place(const json_t *list, const char *parameter) {
    const json_t *name;
    size_t i;
    /* As in PEFT: a module whose name ends with the one given, after any character, and all within it. */
    for (const char *dot = strchr(parameter, '.'); dot; dot = strchr(dot + 1, '.')) json_array_foreach(list, i, name) {
            const size_t length = (size_t)(dot - parameter), cut = json_string_length(name);
            if (length >= cut && strncmp(dot - cut, json_string_value(name), cut) == 0) return (int64_t)i;
        }
    return -1;
}

/* As PEFT's, whose names of modules may begin within a part. */
static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), cut = strlen(end);
    return length >= cut && strcmp(text + length - cut, end) == 0;
}

const json_t *snug_adapter_tokens(const struct snug_adapter *adapter, const char *module, bool words) {
    json_t *tokens = json_object_get(adapter->json, "trainable_token_indices"), *list;
    const char *name;
    if (asks_nothing(tokens)) return NULL;
    if (json_is_array(tokens)) return words ? tokens : NULL;
    json_object_foreach(tokens, name, list) {
        if (ends_with(module, name)) return list;
    }
    return NULL;
}

static snug_status is_target(const struct snug_adapter *a, const char *module, bool *out) {
    const json_t *excluded = json_object_get(a->json, "exclude_modules");
    char parameter[160];
    snprintf(parameter, sizeof parameter, "%s.weight", module);
    *out = false;
    if (snug_adapter_saves(a, parameter) >= 0 || place_in(excluded, module) >= 0) return SNUG_OK;
    if (a->excluded) RETURN_IF_ERROR(matches(a, a->excluded, module, out));
    if (*out || a->all_linear) {
        *out = !*out;
        return SNUG_OK;
    }
    if (a->target) return matches(a, a->target, module, out);
    *out = place_in(json_object_get(a->json, "target_modules"), module) >= 0 && has_its_layer(a, module);
    return SNUG_OK;
}

/* The value of the first pattern that matches. */
static snug_status look_up(const struct snug_adapter *a, const struct pattern *patterns, size_t count,
                           const char *module, double *value) {
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) {
        RETURN_IF_ERROR(matches(a, patterns[i].regex, module, &found));
        if (found) *value = patterns[i].value;
    }
    return SNUG_OK;
}

snug_status snug_adapter_find(const struct snug_adapter *adapter, const char *module, struct snug_lora_form *out) {
    double r = adapter->r, alpha = adapter->alpha;
    bool target;
    *out = (struct snug_lora_form){0};
    RETURN_IF_ERROR(is_target(adapter, module, &target));
    if (!target) return SNUG_OK;
    RETURN_IF_ERROR(look_up(adapter, adapter->ranks, adapter->rank_count, module, &r));
    RETURN_IF_ERROR(look_up(adapter, adapter->alphas, adapter->alpha_count, module, &alpha));
    *out = (struct snug_lora_form){.r = (int64_t)r,
                                   .scale = adapter->rslora ? alpha / sqrt(r) : alpha / r,
                                   .dropout = adapter->dropout,
                                   .bias = adapter->bias_of_b,
                                   .dora = adapter->dora};
    return SNUG_OK;
}

snug_status snug_adapter_find_output(const struct snug_adapter *adapter, const char *module,
                                     struct snug_lora_form *out) {
    *out = (struct snug_lora_form){0};
    return adapter->all_linear ? SNUG_OK : snug_adapter_find(adapter, module, out);
}

snug_status snug_adapter_find_table(const struct snug_adapter *adapter, const char *module,
                                    struct snug_lora_form *out) {
    RETURN_IF_ERROR(snug_adapter_find_output(adapter, module, out));
    out->dropout = 0;
    if (out->bias)
        return snug_fail(adapter->ctx, SNUG_E_UNSUPPORTED,
                         "%s: lora_bias: %s is a table, whose adapter has no bias, as in PEFT: leave one of them out",
                         adapter->path, module);
    if (out->dora)
        return snug_fail(adapter->ctx, SNUG_E_UNSUPPORTED,
                         "%s: use_dora: %s is a table, for which DoRA is not supported: leave one of them out",
                         adapter->path, module);
    return SNUG_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Adds the last part of the name of the linear to which A belongs, if it is A's weight. */
static void add_target(json_t **list, const char *parameter) {
    const char *end = strstr(parameter, ".lora_A.weight"), *begin = end;
    if (!end) return;
    while (begin[-1] != '.') begin--; /* linears of all-linear are in a layer or a head */
    json_t *name = json_stringn(begin, (size_t)(end - begin)), *other;
    bool has = false;
    size_t i;
    json_array_foreach(*list, i, other) has |= json_equal(name, other);
    if (has)
        json_decref(name);
    else
        snug_json_append(list, name);
}

void snug_adapter_stored_name(const struct snug_parameter *parameter, char *name, size_t size) {
    const char *end = parameter->name + strlen(parameter->name) - strlen("bias");
    if (parameter->wrapped)
        snprintf(name, size, "%.*sbase_layer.bias", (int)(end - parameter->name), parameter->name);
    else
        snprintf(name, size, "%s", parameter->name);
}

void snug_adapter_plain_name(const char *stored, char *name, size_t size) {
    static const char end[] = ".base_layer.bias";
    const size_t length = strlen(stored), cut = sizeof end - 1;
    const bool wrapped = length > cut && strcmp(stored + length - cut, end) == 0;
    snprintf(name, size, "%.*s%s", (int)(wrapped ? length - cut : length), stored, wrapped ? ".bias" : "");
}

json_t *snug_adapter_written(const struct snug_adapter *adapter, const struct snug_program *program) {
    json_t *json = json_deep_copy(adapter->json);
    if (!adapter->all_linear) return json;
    json_t *list = json_array();
    for (size_t i = 0; i < program->parameter_count; i++) add_target(&list, program->parameters[i].name);
    snug_json_add(&json, "target_modules", list);
    return json;
}

/* ---- what a model has ------------------------------------------------------------------------------------------ */

void snug_adapter_note(const struct snug_adapter *adapter, const char *module, bool adapted,
                       struct snug_adapter_use *use) {
    int64_t layer;
    const char *rest = after_layer(module, &layer), *name = rest ? rest : module;
    const size_t used = strlen(use->linears);
    if (!snug_list_has(use->linears, ' ', name, strlen(name)))
        snprintf(use->linears + used, sizeof use->linears - used, "%s%s", used ? " " : "", name);
    const int64_t place = place_in(json_object_get(adapter->json, "target_modules"), module);
    if (adapted) use->adapters++;
    if (adapted && place >= 0) use->matched[place] = true;
}

/* Of PEFT's own names of classifiers each model has one. */
static snug_status check_saved(const struct snug_adapter *adapter, const struct snug_adapter_use *use) {
    const json_t *saved = json_object_get(adapter->json, "modules_to_save"), *name;
    size_t i;
    json_array_foreach(saved, i, name) {
        const char *text = json_string_value(name);
        if (!adapter->strict || use->saved[i] || strcmp(text, "classifier") == 0 || strcmp(text, "score") == 0)
            continue;
        return snug_fail(adapter->ctx, SNUG_E_USAGE,
                         "%s: modules_to_save: the model has no weights of its own in a module \"%s\"; it has: %s "
                         "%s, and norms",
                         adapter->path, text, use->words, use->linears);
    }
    return SNUG_OK;
}

static snug_status check_tokens(const struct snug_adapter *adapter, const struct snug_adapter_use *use) {
    json_t *tokens = json_object_get(adapter->json, "trainable_token_indices"), *list;
    const char *name;
    json_object_foreach(tokens, name, list) {
        if (ends_with(use->words, name) || (*use->output && ends_with(use->output, name))) continue;
        return snug_fail(
            adapter->ctx, SNUG_E_USAGE,
            "%s: trainable_token_indices: \"%s\" is not a module with rows of tokens; the model has: %s%s%s",
            adapter->path, name, use->words, *use->output ? " " : "", use->output);
    }
    return SNUG_OK;
}

snug_status snug_adapter_check(const struct snug_adapter *adapter, const struct snug_adapter_use *use) {
    const json_t *targets = json_object_get(adapter->json, "target_modules"), *name;
    size_t i;
    if (json_is_array(targets) && json_array_size(targets) == 0)
        return snug_fail(
            adapter->ctx, SNUG_E_USAGE,
            "%s: PEFT has no default of target_modules for this model: name some of its linears, all-linear "
            "or a regular expression; it has: %s",
            adapter->path, use->linears);
    json_array_foreach(targets, i, name) {
        if (adapter->strict && !use->matched[i])
            return snug_fail(adapter->ctx, SNUG_E_USAGE,
                             "%s: target_modules: the model has no linear \"%s\" that can have an adapter; it has: %s",
                             adapter->path, json_string_value(name), use->linears);
    }
    RETURN_IF_ERROR(check_saved(adapter, use));
    RETURN_IF_ERROR(check_tokens(adapter, use));
    if (use->adapters) return SNUG_OK;
    return snug_fail(adapter->ctx, SNUG_E_USAGE, "%s: target_modules: no linear of the model matches; it has: %s",
                     adapter->path, use->linears);
}
