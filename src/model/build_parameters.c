/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters, with their adapters. */
#include <stdio.h>

#include "model/build.h"
#include "model/family.h"

void snug_build_share(struct snug_builder *b, int32_t tensor) {
    if (b->status == SNUG_OK) b->program->tensors[tensor].identity = ++b->program->identities;
}

static int32_t add_weights(struct snug_builder *b, int64_t rows, int64_t cols, const char *name) {
    int32_t tensor = 0;
    if (b->status == SNUG_OK)
        b->status = snug_program_tensor(b->program,
                                        (struct snug_tensor){.dtype = SNUG_F32,
                                                             .memory_class = SNUG_MEMORY_WEIGHTS,
                                                             .rows = rows,
                                                             .cols = cols,
                                                             .part = b->part,
                                                             .layer = b->layer,
                                                             .persistent = true,
                                                             .trainable = true},
                                        &tensor, "%s", name);
    snug_build_share(b, tensor);
    return tensor;
}

static void add_parameter(struct snug_builder *b, struct snug_parameter parameter, const char *name,
                          const char *suffix) {
    struct snug_program *program = b->program;
    if (b->status != SNUG_OK) return;
    b->status = snug_grow(program->ctx, (void **)&program->parameters, &program->parameter_capacity,
                          program->parameter_count + 1, sizeof *program->parameters);
    if (b->status != SNUG_OK) return;
    snprintf(parameter.name, sizeof parameter.name, "%s%s", name, suffix);
    program->parameters[program->parameter_count++] = parameter;
}

/* One of an adapter's weights; parameter.tensor: of which it has rows, or none. */
static int32_t add_lora_weight(struct snug_builder *b, struct snug_parameter parameter, const char *module,
                               const char *which) {
    const bool vector = !parameter.shape[1];
    char name[128];
    snprintf(name, sizeof name, "%s.%s", module, which);
    if (!parameter.tensor)
        parameter.tensor =
            add_weights(b, vector ? 1 : parameter.shape[0], vector ? parameter.shape[0] : parameter.shape[1], name);
    parameter.decay = !vector || parameter.init == SNUG_INIT_LENGTHS; /* as Trainer, by their names */
    parameter.lora = true;
    add_parameter(b, parameter, name, "");
    return parameter.tensor;
}

typedef snug_status find_form(const struct snug_adapter *adapter, const char *module, struct snug_lora_form *out);

static struct snug_lora add_lora_of(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *module,
                                    find_form *find) {
    const struct snug_adapter *adapter = b->config->adapter;
    struct snug_lora_form form;
    struct snug_lora lora = {0};
    if (!adapter || b->status != SNUG_OK) return lora;
    b->status = find(adapter, module, &form);
    if (b->status != SNUG_OK) return lora;
    snug_adapter_note(adapter, module, form.r > 0, &b->use);
    if (!form.r) return lora;
    lora = (struct snug_lora){.scale = form.scale, .dropout = form.dropout};
    struct snug_parameter a = {.shape = {form.r, inputs}, .init = SNUG_INIT_UNIFORM};
    if (b->stack.a) {
        a.tensor = b->stack.a;
        a.row = b->stack.of_u.first;
        lora.of_u = b->stack.of_u;
        b->stack.of_u.first += b->stack.of_u.count;
        if (b->stack.of_u.first == b->program->tensors[a.tensor].rows) b->stack = (struct snug_lora){0};
    }
    lora.a = add_lora_weight(b, a, module, "lora_A.weight");
    lora.b = add_lora_weight(b, (struct snug_parameter){.shape = {outputs, form.r}, .init = SNUG_INIT_ZEROS}, module,
                             "lora_B.weight");
    if (form.bias)
        lora.bias = add_lora_weight(b, (struct snug_parameter){.shape = {outputs}, .init = SNUG_INIT_ZEROS}, module,
                                    "lora_B.bias");
    if (form.dora)
        lora.lengths = add_lora_weight(b, (struct snug_parameter){.shape = {outputs}, .init = SNUG_INIT_LENGTHS},
                                       module, "lora_magnitude_vector");
    return lora;
}

static struct snug_lora add_lora(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *module) {
    return add_lora_of(b, outputs, inputs, module, snug_adapter_find);
}

/* The rows of a module's table that are trained by themselves. */
static struct snug_token_rows add_token_rows(struct snug_builder *b, const json_t *ids, int64_t vocabulary,
                                             int64_t cols, const char *module) {
    const int64_t count = (int64_t)json_array_size(ids);
    struct snug_token_rows rows = {0};
    char weight[160];
    snprintf(weight, sizeof weight, "%s.weight", module);
    if (b->status == SNUG_OK && snug_adapter_saves(b->config->adapter, weight) >= 0)
        b->status = snug_fail(b->program->ctx, SNUG_E_USAGE,
                              "modules_to_save and trainable_token_indices both name %s: its rows are trained all, or "
                              "some: leave one of them out",
                              module);
    for (int64_t i = 0; i < count && b->status == SNUG_OK; i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, (size_t)i));
        if (id >= vocabulary)
            b->status = snug_fail(b->program->ctx, SNUG_E_USAGE,
                                  "trainable_token_indices: %lld is not the id of a token: %s has %lld rows",
                                  (long long)id, module, (long long)vocabulary);
    }
    rows.rows = add_lora_weight(b, (struct snug_parameter){.shape = {count, cols}, .init = SNUG_INIT_ROWS}, module,
                                SNUG_TOKEN_ROWS);
    if (b->status == SNUG_OK)
        b->status = snug_program_tensor(b->program,
                                        (struct snug_tensor){.dtype = SNUG_I32,
                                                             .memory_class = SNUG_MEMORY_WEIGHTS,
                                                             .rows = 1,
                                                             .cols = count + vocabulary,
                                                             .part = b->part,
                                                             .layer = b->layer,
                                                             .persistent = true},
                                        &rows.tokens, "%s.token_indices", module);
    snug_build_share(b, rows.tokens);
    if (b->status == SNUG_OK) b->program->parameters[b->program->parameter_count - 1].tokens = rows.tokens;
    return rows;
}

/* New tokens beside adapters: no file of the model has their rows, so that the adapters' must. */
static void check_new_tokens(struct snug_builder *b, const json_t *ids, const char *module) {
    const struct snug_config *c = b->config;
    int64_t found = 0;
    char weight[160];
    for (size_t i = 0; i < json_array_size(ids); i++)
        found += json_integer_value(json_array_get(ids, i)) >= c->vocab_size - c->new_tokens;
    snprintf(weight, sizeof weight, "%s.weight", module);
    if (b->status != SNUG_OK || found == c->new_tokens || snug_adapter_saves(c->adapter, weight) >= 0) return;
    b->status =
        snug_fail(b->program->ctx, SNUG_E_INPUT,
                  "%s has rows for %lld new tokens, which no file of the model has, and trainable_token_indices "
                  "names %lld of them: the adapters must have all, or the whole module (modules_to_save)",
                  module, (long long)c->new_tokens, (long long)found);
}

/* One weight cannot have both in PEFT, and adapters of tied weights are two here. */
static void check_adapters(struct snug_builder *b, bool lora, struct snug_token_rows rows, const char *module) {
    const bool tied = snug_head_of(b->config) == SNUG_HEAD_VOCABULARY && !b->config->own_decoder;
    if (b->status == SNUG_OK && lora && tied && snug_adapter_ties(b->config->adapter))
        b->status = snug_fail(b->program->ctx, SNUG_E_UNSUPPORTED,
                              "ensure_weight_tying: target_modules name %s, and one adapter of the word table and the "
                              "output is not supported yet: leave it out of target_modules",
                              module);
    if (b->status == SNUG_OK && lora && rows.rows)
        b->status = snug_fail(b->program->ctx, SNUG_E_USAGE,
                              "%s has an adapter (target_modules) and rows of tokens that are trained "
                              "(trainable_token_indices), which PEFT refuses, too: leave it out of one of them",
                              module);
}

/* PEFT gives the output the rows of the word table, too, where it saves a copy of it as a whole: it stops. */
static void check_copied(struct snug_builder *b, const char *output) {
    if (b->status == SNUG_OK && b->config->copied_decoder && b->word_ids) /* which is then not saved itself */
        b->status =
            snug_fail(b->program->ctx, SNUG_E_USAGE,
                      "modules_to_save names %s, and rows of the tied word table %s are trained "
                      "(trainable_token_indices%s), for which PEFT has no form: name %s in modules_to_save, too",
                      output, b->use.words, b->config->new_tokens ? ", new tokens" : "", b->use.words);
}

/* A tied table has one set of rows, unless the settings name others for the output. */
void snug_build_output_adapters(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *name,
                                struct snug_affine *linear) {
    const struct snug_adapter *adapter = b->config->adapter;
    linear->lora = add_lora_of(b, outputs, inputs, name, snug_adapter_find_output);
    if (!adapter || b->status != SNUG_OK) return;
    const json_t *ids = snug_adapter_tokens(adapter, name, false);
    if (!b->config->own_decoder && snug_adapter_ties(adapter) && ids && b->word_ids && !json_equal(ids, b->word_ids))
        b->status = snug_fail(b->program->ctx, SNUG_E_USAGE,
                              "ensure_weight_tying: trainable_token_indices names other ids of %s than of the word "
                              "table, which PEFT refuses, too",
                              name);
    const bool shared = !b->config->own_decoder && b->word_ids && (!ids || json_equal(ids, b->word_ids));
    snprintf(b->use.output, sizeof b->use.output, "%s", name);
    if (shared)
        linear->rows = b->word_rows;
    else if (ids)
        linear->rows = add_token_rows(b, ids, outputs, inputs, name);
    check_adapters(b, linear->lora.a, linear->rows, name);
    if (b->config->own_decoder) check_new_tokens(b, ids, name);
    check_copied(b, name);
}

/* Equal parameters are needed by optimizers of whole parameters; a dropout of their own, by PEFT's results. */
static bool can_stack(const struct snug_lora_form *one, const struct snug_lora_form *other) {
    return one->r == other->r && one->scale == other->scale && one->dropout == 0 && !one->dora;
}

void snug_build_stack(struct snug_builder *b, int64_t inputs, int count, const char *const names[]) {
    struct snug_lora_form first = {0};
    char name[128];
    int adapted = 0;
    for (int i = 0; i < count && b->config->adapter && b->status == SNUG_OK; i++) {
        struct snug_lora_form form;
        b->status = snug_adapter_find(b->config->adapter, names[i], &form); /* r is 0 if it fails */
        if (!form.r) continue;
        if (adapted++ == 0) first = form;
        if (!can_stack(&first, &form)) return;
    }
    if (adapted < 2) return;
    snprintf(name, sizeof name, "%s+.lora_A.weight", names[0]);
    b->stack.a = add_weights(b, first.r * adapted, inputs, name);
    b->stack.of_u = (struct snug_column_range){0, (int32_t)first.r};
}

static void note_linear(struct snug_builder *b, const char *module) {
    if (b->config->adapter) snug_adapter_note(b->config->adapter, module, false, &b->use);
}

bool snug_build_splits(struct snug_builder *b, int count, const char *const names[]) {
    bool splits = false;
    for (int i = 0; i < count && b->config->adapter && b->status == SNUG_OK; i++) {
        struct snug_lora_form form = {0};
        char weight[128];
        snprintf(weight, sizeof weight, "%s.weight", names[i]);
        b->status = snug_adapter_find(b->config->adapter, names[i], &form);
        splits |= form.r > 0 || snug_adapter_saves(b->config->adapter, weight) >= 0;
    }
    return splits;
}

int32_t snug_build_table(struct snug_builder *b, int64_t rows, int64_t cols, int64_t zero_row, const char *name) {
    int32_t tensor = add_weights(b, rows, cols, name);
    add_parameter(b,
                  (struct snug_parameter){.tensor = tensor,
                                          .shape = {rows, cols},
                                          .init = SNUG_INIT_NORMAL,
                                          .decay = true,
                                          .has_zero_row = zero_row >= 0,
                                          .zero_row = zero_row},
                  name, ".weight");
    return tensor;
}

int32_t snug_build_word_table(struct snug_builder *b, int64_t size, const char *name) {
    const struct snug_config *c = b->config;
    const int32_t word = snug_build_table(b, c->vocab_size, size, c->pad_token_id, name);
    struct snug_lora_form form = {0};
    snug_build_mark_vocabulary(b);
    if (c->adapter && b->status == SNUG_OK) {
        snprintf(b->use.words, sizeof b->use.words, "%s", name);
        b->word_ids = snug_adapter_tokens(c->adapter, name, true);
        if (b->word_ids) b->word_rows = add_token_rows(b, b->word_ids, c->vocab_size, size, name);
        if (b->status == SNUG_OK) b->status = snug_adapter_find_table(c->adapter, name, &form);
        check_adapters(b, form.r > 0, b->word_rows, name);
        check_new_tokens(b, b->word_ids, name);
    }
    if (b->status != SNUG_OK || !form.r) return word;
    snug_adapter_note(c->adapter, name, true, &b->use);
    b->words.scale = form.scale;
    b->words.a = add_lora_weight(
        b, (struct snug_parameter){.shape = {c->vocab_size, form.r}, .init = SNUG_INIT_ZEROS, .turned = true}, name,
        "lora_embedding_A");
    b->words.b = add_lora_weight(b, (struct snug_parameter){.shape = {size, form.r}, .init = SNUG_INIT_GAUSSIAN}, name,
                                 "lora_embedding_B");
    return word;
}

int32_t snug_build_bias(struct snug_builder *b, int64_t size, const char *name) {
    int32_t tensor = add_weights(b, 1, size, name);
    add_parameter(b, (struct snug_parameter){.tensor = tensor, .shape = {size, 0}, .init = SNUG_INIT_ZEROS}, name, "");
    return tensor;
}

struct snug_affine snug_build_norm_of(struct snug_builder *b, int64_t size, const char *prefix, struct snug_affine form,
                                      bool bias) {
    char name[96];
    struct snug_affine norm = form;
    snprintf(name, sizeof name, "%s.weight", prefix);
    norm.weight = add_weights(b, 1, size, name);
    add_parameter(b,
                  (struct snug_parameter){.tensor = norm.weight,
                                          .shape = {size, 0},
                                          .init = form.unit_offset ? SNUG_INIT_ZEROS : SNUG_INIT_ONES},
                  name, "");
    snprintf(name, sizeof name, "%s.bias", prefix);
    if (bias) norm.bias = snug_build_bias(b, size, name);
    return norm;
}

struct snug_affine snug_build_norm(struct snug_builder *b, int64_t size, const char *prefix, bool bias) {
    return snug_build_norm_of(b, size, prefix, (struct snug_affine){0}, bias);
}

struct snug_affine snug_build_fused_linear(struct snug_builder *b, const int64_t outputs[], int64_t inputs, int count,
                                           const char *const names[], bool bias) {
    char name[128];
    struct snug_affine linear = {0};
    int64_t all = 0, row = 0;
    for (int i = 0; i < count; i++) all += outputs[i];
    snprintf(name, sizeof name, "%s%s.weight", names[0], count > 1 ? "+" : "");
    linear.weight = add_weights(b, all, inputs, name);
    for (int i = 0; i < count; row += outputs[i++])
        add_parameter(b,
                      (struct snug_parameter){.tensor = linear.weight,
                                              .row = row,
                                              .shape = {outputs[i], inputs},
                                              .init = SNUG_INIT_NORMAL,
                                              .decay = true},
                      names[i], ".weight");
    if (count == 1) linear.lora = add_lora(b, outputs[0], inputs, names[0]);
    for (int i = 0; i < count && count > 1; i++) note_linear(b, names[i]);
    if (!bias || b->status != SNUG_OK) return linear; /* after a failure sizes may be 0 */
    const int64_t each = outputs[count - 1];          /* the others are multiples of it */
    snprintf(name, sizeof name, "%s%s.bias", names[0], count > 1 ? "+" : "");
    linear.bias = add_weights(b, all / each, each, name);
    row = 0;
    for (int i = 0; i < count; row += outputs[i++] / each)
        add_parameter(b,
                      (struct snug_parameter){
                          .tensor = linear.bias, .row = row, .shape = {outputs[i], 0}, .init = SNUG_INIT_ZEROS},
                      names[i], ".bias");
    return linear;
}

struct snug_affine snug_build_linear(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *name,
                                     bool bias) {
    return snug_build_fused_linear(b, &outputs, inputs, 1, &name, bias);
}

struct snug_affine snug_build_convolution(struct snug_builder *b, int64_t outputs, int64_t inputs, int64_t kernel,
                                          const char *name) {
    char suffixed[128];
    struct snug_affine convolution = {0};
    struct snug_lora_form form = {0};
    if (b->config->adapter && b->status == SNUG_OK) {
        b->status = snug_adapter_find_output(b->config->adapter, name, &form); /* not of all-linear */
        if (form.r)
            b->status = snug_fail(b->program->ctx, SNUG_E_UNSUPPORTED,
                                  "target_modules name %s, a convolution, of which adapters are not supported: exclude "
                                  "it (exclude_modules)",
                                  name);
    }
    snprintf(suffixed, sizeof suffixed, "%s.weight", name);
    convolution.weight = add_weights(b, outputs, inputs * kernel, suffixed);
    add_parameter(b,
                  (struct snug_parameter){.tensor = convolution.weight,
                                          .shape = {outputs, inputs * kernel},
                                          .kernel = kernel,
                                          .init = SNUG_INIT_NORMAL,
                                          .decay = true},
                  suffixed, "");
    snprintf(suffixed, sizeof suffixed, "%s.bias", name);
    convolution.bias = snug_build_bias(b, outputs, suffixed);
    return convolution;
}

struct snug_affine snug_build_transposed_linear(struct snug_builder *b, int64_t outputs, int64_t inputs,
                                                const char *name, bool bias) {
    char suffixed[128];
    struct snug_affine linear = {.transposed = true};
    snprintf(suffixed, sizeof suffixed, "%s.weight", name);
    linear.weight = add_weights(b, inputs, outputs, suffixed);
    add_parameter(b,
                  (struct snug_parameter){
                      .tensor = linear.weight, .shape = {inputs, outputs}, .init = SNUG_INIT_NORMAL, .decay = true},
                  suffixed, "");
    linear.lora = add_lora(b, outputs, inputs, name);
    if (linear.lora.lengths && b->status == SNUG_OK)
        b->program->parameters[b->program->parameter_count - 1].of_columns = true;
    snprintf(suffixed, sizeof suffixed, "%s.bias", name);
    if (bias) linear.bias = snug_build_bias(b, outputs, suffixed);
    return linear;
}

void snug_build_mark_head(struct snug_builder *b, size_t first) {
    for (size_t i = first; i < b->program->parameter_count; i++) b->program->parameters[i].head = true;
}

void snug_build_mark_output(struct snug_builder *b, size_t first) {
    for (size_t i = first; i < b->program->parameter_count; i++) b->program->parameters[i].by_depth = true;
}

void snug_build_mark_vocabulary(struct snug_builder *b) {
    if (b->status == SNUG_OK) b->program->parameters[b->program->parameter_count - 1].by_vocabulary = true;
}

void snug_build_save_also(struct snug_builder *b, const char *name) {
    if (b->status == SNUG_OK) b->program->parameters[b->program->parameter_count - 1].also = name;
}
