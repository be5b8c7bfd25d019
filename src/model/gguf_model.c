/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/decoders/decoder.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *own, *theirs;
} names[] = {
    {"embed_tokens", "token_embd"},
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"norm", "output_norm"},
    {"ln_f", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"ln_1", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"attn.c_attn", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"attn.c_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.c_proj", "ffn_down"},
    {"post_attention_layernorm", "ffn_norm"}, /* unless the next ones exist, too */
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"ln_2", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};
enum { NAMES = sizeof names / sizeof *names };

static bool ends(const char *text, const char *end) {
    const size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* Whether the norm after attention is of what attention adds, not of what the feed-forward network reads. */
static bool norms_outputs(const struct snug_program *program) {
    bool found = false;
    for (size_t i = 0; i < program->parameter_count; i++)
        found |= strstr(program->parameters[i].name, ".post_feedforward_layernorm.") != NULL;
    return found;
}

bool snug_gguf_find(const struct snug_config *config, const struct snug_program *program, size_t parameter,
                    char name[64], struct snug_gguf_part *part) {
    const struct snug_decoder *d = snug_decoder_of(config);
    const struct snug_parameter *p = &program->parameters[parameter];
    const size_t prefix = strlen(config->family->prefix);
    const char *at = strncmp(p->name, config->family->prefix, prefix) == 0 ? p->name + prefix : p->name,
               *end = strrchr(at, '.');
    char block[32] = "";
    const char *number = strncmp(at, "layers.", 7) == 0 ? at + 7 : strncmp(at, "h.", 2) == 0 ? at + 2 : NULL;
    if (number) {
        char *rest;
        snprintf(block, sizeof block, "blk.%ld.", strtol(number, &rest, 10));
        at = rest + 1;
    }
    const size_t length = (size_t)(end - at);
    int i = 0;
    while (i < NAMES && (strlen(names[i].own) != length || strncmp(at, names[i].own, length) != 0)) i++;
    if (i == NAMES) return false;
    const bool output = strcmp(names[i].own, "post_attention_layernorm") == 0 && norms_outputs(program);
    snprintf(name, 64, "%s%s%s", block, output ? "post_attention_norm" : names[i].theirs, end);
    const char *theirs = names[i].theirs;
    const bool rotated = strcmp(theirs, "attn_q") == 0 || strcmp(theirs, "attn_k") == 0;
    const bool linear = p->shape[1] && strcmp(theirs, "token_embd") != 0 && strcmp(theirs, "position_embd") != 0 &&
                        strcmp(theirs, "output") != 0;
    *part = (struct snug_gguf_part){.parameter = parameter, .head = d->head_dim};
    part->add_one = !p->shape[1] && ends(name, "_norm.weight") && p->init == SNUG_INIT_ZEROS;
    if (config->family->gguf->permuted && rotated) part->order = SNUG_GGUF_PAIRS;
    if (config->family->gguf->transposed && linear) part->order = SNUG_GGUF_COLUMNS;
    return true;
}

/* ---- what llama.cpp does not have -------------------------------------------------------------------------------- */

snug_status snug_gguf_check_family(snug_context *ctx, const struct snug_config *config) {
    if (!config->family->gguf)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s models have no language model to export: --format gguf is of decoders",
                         config->family->name);
    if (config->task == SNUG_TASK_CLM) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                     "this %s model is a classifier: --format gguf is of language models, llama.cpp has no other",
                     config->family->name);
}

/* Of all layers, or of those without a window. */
static const json_t *rope_of(const struct snug_config *config) {
    const json_t *scaling = json_object_get(config->json, "rope_scaling"),
                 *parameters = json_object_get(config->json, "rope_parameters");
    const json_t *rope = json_object_size(scaling) ? scaling : parameters,
                 *full = json_object_get(rope, "full_attention");
    return full ? full : rope;
}

static const char *rope_kind(const struct snug_config *config) {
    const json_t *rope = rope_of(config);
    const char *kind = json_string_value(json_object_get(rope, "rope_type")),
               *old = json_string_value(json_object_get(rope, "type"));
    if (snug_decoder_of(config)->rope.longer.pairs) return "longrope"; /* also by an older name */
    return kind ? kind : old ? old : "default";
}

static double number(const json_t *rope, const char *key, double otherwise) {
    const json_t *value = json_object_get(rope, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static bool has_any(const uint64_t *layers) {
    uint64_t any = 0;
    for (int i = 0; i < SNUG_LAYERS_MOST / 64; i++) any |= layers[i];
    return any;
}

/* 1 / sqrt(channels of a head), or of its share of the hidden ones where llama.cpp takes a Gemma of so many layers for
   the one of 27 billion parameters. */
static double their_scale(const struct snug_config *c) {
    const struct snug_decoder *d = snug_decoder_of(c);
    const int64_t share = c->hidden_size / c->num_attention_heads;
    return 1 / sqrt((double)(c->num_hidden_layers == c->family->gguf->shared ? share : d->head_dim));
}

static bool rotates_other_layers(const struct snug_config *c) {
    bool other = false;
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        other |= snug_has_layer(snug_decoder_of(c)->unrotated, i) !=
                 (c->family->gguf->unrotated > 0 && (i + 1) % c->family->gguf->unrotated == 0);
    return other;
}

static snug_status check(snug_context *ctx, const struct snug_config *c) {
    const struct snug_decoder *d = snug_decoder_of(c);
    const struct snug_gguf_form *form = c->family->gguf;
    const char *kind = rope_kind(c);
    const struct {
        bool differs;
        const char *what;
    } list[] = {
        {!form->scaled && fabs(d->scale / their_scale(c) - 1) > 1e-6, "this scale of attention's scores"},
        {d->inverse_layers, "scale_attn_by_inverse_layer_idx"},
        {c->hidden_act != form->activation, "this activation"},
        {d->attention_bias && !form->biases, "attention_bias"},
        {d->mlp_bias && !form->biases, "mlp_bias"},
        {form->tied && c->own_decoder, "an lm_head that is not the word table"},
        {rotates_other_layers(c), "these layers without rotation"},
        {form->permuted && 2 * d->rope.rotation.pairs != d->head_dim, "partial_rotary_factor"},
        {strcmp(kind, "llama3") == 0 && !form->permuted, "rope_type llama3"},
        {strcmp(kind, "longrope") == 0 && !form->own_trained, "rope_type longrope"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].differs)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED, "llama.cpp's %s models do not have %s: it would give other text",
                             c->family->name, list[i].what);
    if (has_any(d->sliding) && !form->windows)
        snug_log(ctx, SNUG_LOG_WARNING,
                 "llama.cpp's %s models have no sliding window (%lld tokens here): longer texts give other text there",
                 c->family->name, (long long)d->window);
    return SNUG_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

struct description {
    struct snug_gguf *file;
    const struct snug_config *config;
    char key[128];
};

static const char *key_of(struct description *d, const char *rest) {
    snprintf(d->key, sizeof d->key, "%s.%s", d->config->family->gguf->architecture, rest);
    return d->key;
}

static void add_count(struct description *d, const char *key, int64_t value) {
    snug_gguf_add_count(d->file, key_of(d, key), value);
}

static void add_real(struct description *d, const char *key, double value) {
    snug_gguf_add_real(d->file, key_of(d, key), value);
}

static void add_if(struct description *d, const char *key, const json_t *rope, const char *own) {
    const json_t *value = json_object_get(rope, own);
    if (json_is_number(value)) add_real(d, key, json_number_value(value));
}

static void add_rope(struct description *d) {
    const struct snug_config *c = d->config;
    const struct snug_decoder *decoder = snug_decoder_of(c);
    const json_t *rope = rope_of(c);
    const char *kind = rope_kind(c);
    const double positions = (double)c->max_position_embeddings;
    const double trained = number(json_object_get(rope, "original_max_position_embeddings") ? rope : c->json,
                                  "original_max_position_embeddings", positions);
    const bool linear = strcmp(kind, "linear") == 0, yarn = strcmp(kind, "yarn") == 0,
               longer = strcmp(kind, "longrope") == 0;
    add_count(d, "rope.dimension_count", 2 * (int64_t)decoder->rope.rotation.pairs);
    add_real(d, "rope.freq_base", decoder->rope.theta);
    if (has_any(decoder->sliding) && c->family->gguf->windows)
        add_real(d, "rope.freq_base_swa", decoder->sliding_rope.theta);
    if (linear || yarn || longer) snug_gguf_add_text(d->file, key_of(d, "rope.scaling.type"), kind, strlen(kind));
    if (linear || yarn) add_real(d, "rope.scaling.factor", number(rope, "factor", positions / trained));
    if (yarn || c->family->gguf->own_trained) add_count(d, "rope.scaling.original_context_length", (int64_t)trained);
    if (longer) add_real(d, "rope.scaling.attn_factor", decoder->rope.rotation.factor);
    if (!yarn) return;
    add_if(d, "rope.scaling.yarn_attn_factor", rope, "attention_factor");
    add_if(d, "rope.scaling.yarn_beta_fast", rope, "beta_fast");
    add_if(d, "rope.scaling.yarn_beta_slow", rope, "beta_slow");
    add_if(d, "rope.scaling.yarn_log_multiplier", rope, "mscale_all_dim");
    add_if(d, "attention.temperature_scale", rope, "llama_4_scaling_beta");
}

static void add_windows(struct description *d) {
    const struct snug_decoder *decoder = snug_decoder_of(d->config);
    if (!has_any(decoder->sliding) || !d->config->family->gguf->windows) return;
    add_count(d, "attention.sliding_window", decoder->window);
    snug_gguf_add_array(d->file, key_of(d, "attention.sliding_window_pattern"), SNUG_GGUF_BOOL,
                        (uint64_t)d->config->num_hidden_layers);
    for (int64_t i = 0; i < d->config->num_hidden_layers; i++) {
        const uint8_t slides = snug_has_layer(decoder->sliding, i);
        snug_gguf_append(d->file, &slides, sizeof slides);
    }
}

static void describe(struct description *d) {
    const struct snug_config *c = d->config;
    const struct snug_decoder *decoder = snug_decoder_of(c);
    const bool rms = decoder->rope.rotation.pairs;
    add_count(d, "context_length", c->max_position_embeddings);
    add_count(d, "embedding_length", c->hidden_size);
    add_count(d, "block_count", c->num_hidden_layers);
    add_count(d, "feed_forward_length", c->intermediate_size);
    add_count(d, "vocab_size", c->vocab_size);
    add_count(d, "attention.head_count", c->num_attention_heads);
    add_count(d, "attention.head_count_kv", decoder->kv_heads);
    add_count(d, "attention.key_length", decoder->head_dim);
    add_count(d, "attention.value_length", decoder->head_dim);
    add_real(d, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", c->layer_norm_eps);
    if (rms) add_rope(d);
    add_windows(d);
    if (c->family->gguf->own_window) add_count(d, "attention.sliding_window", decoder->window);
    if (decoder->softcap > 0) add_real(d, "attn_logit_softcapping", decoder->softcap);
    if (decoder->final_softcap > 0) add_real(d, "final_logit_softcapping", decoder->final_softcap);
    if (!c->family->gguf->scaled) return;
    add_real(d, "attention.scale", decoder->scale);
    add_real(d, "embedding_scale", decoder->embedding_scale);
    add_real(d, "residual_scale", decoder->block_scale);
    add_real(d, "logit_scale", decoder->logits_divisor);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

double snug_gguf_factor(const struct snug_gguf_part *part, int64_t i) {
    const double pairs = part->rotation->pairs;
    return pow(part->theta, -(double)i / pairs) / part->rotation->frequencies[i];
}

static void add_factors(struct snug_gguf *file, const char *name, const struct snug_rotation *rotation, double theta,
                        struct snug_gguf_part *parts) {
    struct snug_gguf_tensor tensor = {.rows = rotation->pairs};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    parts[file->tensor_count] = (struct snug_gguf_part){SNUG_GGUF_FACTORS, .rotation = rotation, .theta = theta};
    snug_gguf_add_tensor(file, &tensor);
}

static snug_status add_parameter(struct snug_gguf *file, const struct snug_config *config,
                                 const struct snug_program *program, size_t parameter, enum snug_gguf_type type,
                                 struct snug_gguf_part *parts) {
    const struct snug_parameter *p = &program->parameters[parameter];
    struct snug_gguf_part *part = &parts[file->tensor_count];
    char name[64];
    if (!snug_gguf_find(config, program, parameter, name, part))
        return snug_fail(file->ctx, SNUG_E_UNSUPPORTED, "llama.cpp has no tensor for %s", p->name);
    const bool turned = part->order == SNUG_GGUF_COLUMNS, single = !p->shape[1] || ends(name, "position_embd.weight");
    struct snug_gguf_tensor tensor = {
        .type = single ? SNUG_GGUF_F32 : type, .rows = p->shape[turned], .cols = p->shape[!turned]};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    snug_gguf_add_tensor(file, &tensor);
    if (!config->family->gguf->untied || config->own_decoder || !p->by_vocabulary) return file->status;
    parts[file->tensor_count] = *part;
    snprintf(tensor.name, sizeof tensor.name, "output.weight");
    snug_gguf_add_tensor(file, &tensor);
    return file->status;
}

snug_status snug_gguf_add_model(struct snug_gguf *file, const struct snug_config *config,
                                const struct snug_program *program, enum snug_gguf_type type,
                                struct snug_gguf_part **parts) {
    enum { FURTHER = 3 }; /* factors, and a second word table */
    const struct snug_rope *rope = &snug_decoder_of(config)->rope;
    struct description d = {.file = file, .config = config};
    RETURN_IF_ERROR(check(file->ctx, config));
    describe(&d);
    RETURN_IF_ERROR(snug_alloc(file->ctx, program->parameter_count + FURTHER, sizeof **parts, (void **)parts));
    if (strcmp(rope_kind(config), "llama3") == 0)
        add_factors(file, "rope_freqs.weight", &rope->rotation, rope->theta, *parts);
    if (rope->longer.pairs) {
        add_factors(file, "rope_factors_long.weight", &rope->longer, rope->theta, *parts);
        add_factors(file, "rope_factors_short.weight", &rope->rotation, rope->theta, *parts);
    }
    for (size_t i = 0; i < program->parameter_count; i++)
        RETURN_IF_ERROR(add_parameter(file, config, program, i, type, *parts));
    return file->status;
}
