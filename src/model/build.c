/* SPDX-License-Identifier: Apache-2.0 */
#include "model/build.h"

#include <stdio.h>
#include <string.h>

/* ---- parameters ----------------------------------------------------------------------------------------------- */

static int32_t add_weights(struct snug_builder *b, int64_t rows, int64_t cols, const char *name) {
    int32_t tensor = -1;
    if (b->status == SNUG_OK)
        b->status = snug_program_tensor(b->program,
                                        (struct snug_tensor){.dtype = SNUG_F32,
                                                             .memory_class = SNUG_MEMORY_WEIGHTS,
                                                             .rows = rows,
                                                             .cols = cols,
                                                             .layer = b->layer,
                                                             .persistent = true},
                                        &tensor, "%s", name);
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

int32_t snug_build_table(struct snug_builder *b, int64_t rows, int64_t cols, const char *name) {
    int32_t tensor = add_weights(b, rows, cols, name);
    add_parameter(
        b, (struct snug_parameter){.tensor = tensor, .shape = {rows, cols}, .init = SNUG_INIT_NORMAL, .decay = true},
        name, ".weight");
    return tensor;
}

int32_t snug_build_bias(struct snug_builder *b, int64_t size, const char *name) {
    int32_t tensor = add_weights(b, 1, size, name);
    add_parameter(b, (struct snug_parameter){.tensor = tensor, .shape = {size, 0}, .init = SNUG_INIT_ZEROS}, name, "");
    return tensor;
}

struct snug_affine snug_build_norm(struct snug_builder *b, const char *prefix) {
    const int64_t size = b->config->hidden_size;
    char name[96];
    struct snug_affine norm;
    snprintf(name, sizeof name, "%s.weight", prefix);
    norm.weight = add_weights(b, 1, size, name);
    add_parameter(b, (struct snug_parameter){.tensor = norm.weight, .shape = {size, 0}, .init = SNUG_INIT_ONES}, name,
                  "");
    snprintf(name, sizeof name, "%s.bias", prefix);
    norm.bias = snug_build_bias(b, size, name);
    return norm;
}

struct snug_affine snug_build_linear(struct snug_builder *b, int64_t outputs, int64_t inputs, int count,
                                     const char *const names[]) {
    char name[128];
    struct snug_affine linear;
    snprintf(name, sizeof name, "%s%s.weight", names[0], count > 1 ? "+" : "");
    linear.weight = add_weights(b, outputs * count, inputs, name);
    for (int i = 0; i < count; i++)
        add_parameter(b,
                      (struct snug_parameter){.tensor = linear.weight,
                                              .row = outputs * i,
                                              .shape = {outputs, inputs},
                                              .init = SNUG_INIT_NORMAL,
                                              .decay = true},
                      names[i], ".weight");
    snprintf(name, sizeof name, "%s%s.bias", names[0], count > 1 ? "+" : "");
    linear.bias = add_weights(b, count, outputs, name);
    for (int i = 0; i < count; i++)
        add_parameter(
            b, (struct snug_parameter){.tensor = linear.bias, .row = i, .shape = {outputs, 0}, .init = SNUG_INIT_ZEROS},
            names[i], ".bias");
    return linear;
}

void snug_build_mark_head(struct snug_builder *b, size_t first) {
    for (size_t i = first; i < b->program->parameter_count; i++) b->program->parameters[i].head = true;
}

/* ---- operations ----------------------------------------------------------------------------------------------- */

static int32_t add_value(struct snug_builder *b, int32_t extent_of, int64_t cols, bool low_precision,
                         const char *name) {
    int32_t tensor = -1;
    if (b->status != SNUG_OK) return -1;
    char full[88];
    if (b->layer >= 0) snprintf(full, sizeof full, "layer.%d.%s", b->layer, name);
    b->status = snug_program_tensor(
        b->program,
        (struct snug_tensor){.dtype = SNUG_F32,
                             .memory_class = SNUG_MEMORY_TEMPORARY,
                             .extent = extent_of < 0 ? SNUG_EXTENT_TOKENS : b->program->tensors[extent_of].extent,
                             .cols = cols,
                             .layer = b->layer,
                             .low_precision = low_precision},
        &tensor, "%s", b->layer >= 0 ? full : name);
    return tensor;
}

static int64_t cols_of(const struct snug_builder *b, int32_t tensor) {
    return b->status == SNUG_OK ? b->program->tensors[tensor].cols : 0;
}

static void add_op(struct snug_builder *b, struct snug_op op) {
    op.phase = b->phase;
    op.layer = b->layer;
    if (b->status == SNUG_OK) b->status = snug_program_op(b->program, op);
}

/* A dropout's site is counted whether it is on or not, so that a model's sites keep their numbers. */
static uint32_t next_site(struct snug_builder *b) { return b->program->sites++; }
static float rate(const struct snug_builder *b, double p) { return b->training ? (float)p : 0; }

int32_t snug_embed(struct snug_builder *b, int32_t word, int32_t position, int32_t type, struct snug_affine norm) {
    const int64_t hidden = b->config->hidden_size;
    int32_t s = add_value(b, -1, hidden, true, "embeddings.sum"),
            y = add_value(b, -1, hidden, true, "embeddings.output");
    add_op(b, (struct snug_op){.kind = SNUG_OP_EMBED,
                               .in = SNUG_INPUTS(word, position, type, norm.weight, norm.bias),
                               .out = SNUG_OUTPUTS(s, y),
                               .eps = (float)b->config->layer_norm_eps,
                               .p = rate(b, b->config->hidden_dropout_prob),
                               .site = next_site(b),
                               .padding = (int32_t)b->config->pad_token_id});
    return y;
}

int32_t snug_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name) {
    const int64_t outputs = b->status == SNUG_OK ? b->program->tensors[w.weight].rows : 0;
    /* Logits stay fp32: their softmax wants the bits. */
    int32_t y = add_value(b, x, outputs, strcmp(name, "logits") != 0, name);
    add_op(b, (struct snug_op){.kind = SNUG_OP_LINEAR, .in = SNUG_INPUTS(x, w.weight, w.bias), .out = SNUG_OUTPUTS(y)});
    return y;
}

/* The product is stored without its bias, which the activation adds wherever it reads the product: in passing, while a
   GPU's product takes 8 % longer with it (727 instead of 788 TFLOP/s in BERT-large's feed-forward network, bf16). */
int32_t snug_activated_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name,
                              enum snug_activation activation, const char *activated) {
    const int32_t u = snug_linear(b, x, (struct snug_affine){w.weight, -1}, name);
    const int32_t a = add_value(b, u, cols_of(b, u), true, activated);
    add_op(b, (struct snug_op){.kind = SNUG_OP_ACTIVATION,
                               .in = SNUG_INPUTS(u, w.bias),
                               .out = SNUG_OUTPUTS(a),
                               .activation = activation});
    return a;
}

int32_t snug_attention(struct snug_builder *b, int32_t qkv) {
    const int64_t heads = b->config->num_attention_heads;
    int32_t o = add_value(b, qkv, b->config->hidden_size, true, "attention.output");
    int32_t lse = add_value(b, qkv, heads, false, "attention.log_sum_exp");
    add_op(b, (struct snug_op){.kind = SNUG_OP_ATTENTION,
                               .in = SNUG_INPUTS(qkv),
                               .out = SNUG_OUTPUTS(o, lse),
                               .heads = (int32_t)heads,
                               .p = rate(b, b->config->attention_probs_dropout_prob),
                               .site = next_site(b)});
    return o;
}

int32_t snug_residual_norm(struct snug_builder *b, int32_t z, int32_t x, struct snug_affine norm, const char *name) {
    char sum[48];
    snprintf(sum, sizeof sum, "%s.sum", name);
    int32_t s = b->training ? add_value(b, x, cols_of(b, x), true, sum) : -1; /* for the way back */
    int32_t y = add_value(b, x, cols_of(b, x), true, name);
    add_op(b, (struct snug_op){.kind = SNUG_OP_RESIDUAL_NORM,
                               .in = SNUG_INPUTS(z, x, norm.weight, norm.bias),
                               .out = SNUG_OUTPUTS(s, y),
                               .eps = (float)b->config->layer_norm_eps,
                               .p = rate(b, b->config->hidden_dropout_prob),
                               .site = next_site(b)});
    return y;
}

int32_t snug_norm(struct snug_builder *b, int32_t s, struct snug_affine norm, const char *name) {
    int32_t y = add_value(b, s, cols_of(b, s), true, name);
    add_op(b, (struct snug_op){.kind = SNUG_OP_NORM,
                               .in = SNUG_INPUTS(s, norm.weight, norm.bias),
                               .out = SNUG_OUTPUTS(y),
                               .eps = (float)b->config->layer_norm_eps});
    return y;
}

int32_t snug_dropout(struct snug_builder *b, int32_t x, double p, const char *name) {
    uint32_t site = next_site(b);
    if (rate(b, p) == 0) return x;
    int32_t y = add_value(b, x, cols_of(b, x), true, name);
    add_op(b,
           (struct snug_op){
               .kind = SNUG_OP_DROPOUT, .in = SNUG_INPUTS(x), .out = SNUG_OUTPUTS(y), .p = rate(b, p), .site = site});
    return y;
}

int32_t snug_gather(struct snug_builder *b, int32_t x, enum snug_extent extent, const char *name) {
    int32_t r = add_value(b, x, cols_of(b, x), true, name);
    if (b->status == SNUG_OK) b->program->tensors[r].extent = extent;
    add_op(b, (struct snug_op){.kind = SNUG_OP_GATHER, .in = SNUG_INPUTS(x), .out = SNUG_OUTPUTS(r)});
    return r;
}

void snug_loss_op(struct snug_builder *b, int32_t logits, enum snug_loss_kind kind, double label_smoothing) {
    if (b->status == SNUG_OK)
        b->status = snug_program_tensor(
            b->program,
            (struct snug_tensor){
                .memory_class = SNUG_MEMORY_TEMPORARY, .rows = 1, .cols = 1, .layer = -1, .persistent = true},
            &b->program->loss, "loss");
    b->program->logits = logits;
    add_op(b, (struct snug_op){.kind = SNUG_OP_LOSS,
                               .in = SNUG_INPUTS(logits),
                               .out = SNUG_OUTPUTS(b->program->loss),
                               .loss = kind,
                               .label_smoothing = (float)label_smoothing});
}
