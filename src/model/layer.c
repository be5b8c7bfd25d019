/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layer.h"

#include <stdio.h>

#include "data/task.h"
#include "model/family.h"
#include "model/sentence.h"

/* What the next block reads, and the sum to which its output is added; one tensor, unless norms come before blocks. */
struct stream {
    int32_t x, sum;
};

/* A layer's parameters. Those that it has not are 0. */
struct parameters {
    struct snug_affine operands[3]; /* query, key and value; the first alone is all three, unless they are separate */
    bool separate;
    struct snug_affine head_norms[2];
    struct snug_affine position_key, position_query;
    struct snug_affine out, up, down;
    struct snug_affine gate;           /* unless up has both */
    struct snug_affine norm;           /* between the blocks */
    struct snug_affine output_norm;    /* after the second block */
    struct snug_affine block_norms[2]; /* of what the blocks add */
};

/* ---- parameters ------------------------------------------------------------------------------------------------- */

static struct snug_name in_layer(const struct snug_builder *b, const struct snug_layer *layer, const char *rest) {
    struct snug_name name;
    snprintf(name.text, sizeof name.text, "%s%s.%d.%s", b->config->family->prefix, layer->layer, b->layer, rest);
    return name;
}

static struct snug_affine build_norm(struct snug_builder *b, const struct snug_layer *layer, int64_t size,
                                     const char *name) {
    return snug_build_norm_of(b, size, name, (struct snug_affine){.rms = layer->rms, .unit_offset = layer->unit_offset},
                              !layer->no_norm_bias);
}

/* rest NULL: none. */
static struct snug_affine norm_in_layer(struct snug_builder *b, const struct snug_layer *layer, const char *rest) {
    if (!rest) return (struct snug_affine){0};
    return build_norm(b, layer, b->config->hidden_size, in_layer(b, layer, rest).text);
}

static struct snug_affine linear_in_layer(struct snug_builder *b, const struct snug_layer *layer, int64_t outputs,
                                          int64_t inputs, const char *rest, bool bias) {
    const struct snug_name name = in_layer(b, layer, rest);
    return layer->transposed ? snug_build_transposed_linear(b, outputs, inputs, name.text, bias)
                             : snug_build_linear(b, outputs, inputs, name.text, bias);
}

/* Query and key are linears of positions, too. */
static bool shares_positions(const struct snug_layer *layer) { return layer->positions && !layer->position_key; }

/* Decoders' query and key differ in width, so that they are one tensor only where no program of the run trains them. */
static bool is_separate(struct snug_builder *b, const struct snug_layer *layer, const char *const names[3]) {
    if (!layer->key) return false;
    if (shares_positions(layer)) return true;
    const bool grows = layer->rotation && layer->rotation(b).growth != 0; /* of queries alone */
    const bool fixed = b->program->untrained && !b->config->quantized.type && !layer->query_norm && !grows;
    return (layer->separate && !fixed) || snug_build_splits(b, 3, names);
}

static void build_positions(struct snug_builder *b, const struct snug_layer *layer, int64_t width,
                            struct parameters *p) {
    const int64_t hidden = b->config->hidden_size;
    const bool own = !shares_positions(layer);
    if (layer->position_keys)
        p->position_key = own ? linear_in_layer(b, layer, width, hidden, layer->position_key, true) : p->operands[1];
    if (layer->position_queries)
        p->position_query =
            own ? linear_in_layer(b, layer, width, hidden, layer->position_query, true) : p->operands[0];
}

static void build_operands(struct snug_builder *b, const struct snug_layer *layer,
                           const struct snug_attention_form *form, struct parameters *p) {
    const int64_t hidden = b->config->hidden_size, d = form->head_dim;
    const int64_t widths[] = {form->heads * d, form->kv_heads * d, form->kv_heads * d};
    const char *const rests[] = {layer->query, layer->key, layer->value};
    const char *const norms[] = {layer->query_norm, layer->key_norm};
    const bool bias = !layer->no_attention_bias;
    const struct snug_name full[] = {in_layer(b, layer, rests[0]), in_layer(b, layer, rests[1] ? rests[1] : ""),
                                     in_layer(b, layer, rests[2] ? rests[2] : "")};
    const char *const names[] = {full[0].text, full[1].text, full[2].text};
    p->separate = is_separate(b, layer, names);
    if (p->separate) {
        if (!shares_positions(layer)) snug_build_stack(b, hidden, 3, names);
        for (int n = 0; n < 3; n++) p->operands[n] = linear_in_layer(b, layer, widths[n], hidden, rests[n], bias);
        for (int n = 0; n < 2 && norms[n]; n++) {
            p->head_norms[n] =
                build_norm(b, layer, layer->whole_norms ? widths[n] : d, in_layer(b, layer, norms[n]).text);
            if (!layer->whole_norms) p->head_norms[n].parts = (int32_t)(widths[n] / d);
        }
    } else if (!layer->key) {
        p->operands[0] = linear_in_layer(b, layer, widths[0] + 2 * widths[1], hidden, layer->query, bias);
    } else {
        p->operands[0] = snug_build_fused_linear(b, widths, hidden, 3, names, bias);
    }
}

/* What a block adds. */
static struct snug_affine build_output(struct snug_builder *b, const struct snug_layer *layer, int64_t inputs,
                                       const char *rest, bool bias) {
    const size_t first = b->program->parameter_count;
    const struct snug_affine linear = linear_in_layer(b, layer, b->config->hidden_size, inputs, rest, bias);
    if (layer->outputs_by_depth) snug_build_mark_output(b, first);
    return linear;
}

static void build_up(struct snug_builder *b, const struct snug_layer *layer, struct parameters *p) {
    const int64_t hidden = b->config->hidden_size, inner = b->config->intermediate_size;
    const bool bias = !layer->no_ffn_bias;
    if (!layer->gate) {
        p->up = linear_in_layer(b, layer, layer->gated ? 2 * inner : inner, hidden, layer->up, bias);
        return;
    }
    const struct snug_name gate = in_layer(b, layer, layer->gate), up = in_layer(b, layer, layer->up);
    const char *const names[] = {gate.text, up.text};
    if (!snug_build_splits(b, 2, names)) {
        p->up = snug_build_fused_linear(b, (int64_t[]){inner, inner}, hidden, 2, names, bias);
        return;
    }
    snug_build_stack(b, hidden, 2, names);
    p->gate = snug_build_linear(b, inner, hidden, gate.text, bias);
    p->up = snug_build_linear(b, inner, hidden, up.text, bias);
}

/* The norm of a layer's output: after its sum, or before the next layer's attention, or the final one. */
static struct snug_affine build_output_norm(struct snug_builder *b, const struct snug_layer *layer) {
    const int32_t number = b->layer;
    struct snug_affine norm;
    if (!layer->pre_norm) return norm_in_layer(b, layer, layer->ffn_norm);
    if (number + 1 < b->config->num_hidden_layers) {
        snug_build_part(b, SNUG_PART_LAYER, number + 1);
        norm = norm_in_layer(b, layer, layer->attention_norm);
    } else {
        snug_build_part(b, SNUG_PART_HEAD, 0);
        norm = build_norm(b, layer, b->config->hidden_size, snug_model_name(b, layer->final_norm).text);
    }
    snug_build_part(b, SNUG_PART_LAYER, number);
    return norm;
}

static struct parameters build_parameters(struct snug_builder *b, const struct snug_layer *layer,
                                          const struct snug_attention_form *form) {
    const int64_t width = (int64_t)form->heads * form->head_dim;
    const char *const block_norms[] = {layer->attention_output_norm, layer->ffn_output_norm};
    struct parameters p = {0};
    build_operands(b, layer, form, &p);
    build_positions(b, layer, width, &p);
    p.out = build_output(b, layer, width, layer->out, !layer->no_attention_bias && !layer->no_out_bias);
    p.norm = norm_in_layer(b, layer, layer->pre_norm ? layer->ffn_norm : layer->attention_norm);
    build_up(b, layer, &p);
    p.down = build_output(b, layer, b->config->intermediate_size, layer->down, !layer->no_ffn_bias);
    for (int n = 0; n < 2; n++) p.block_norms[n] = norm_in_layer(b, layer, block_norms[n]);
    p.output_norm = build_output_norm(b, layer);
    return p;
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

/* Adds a block's output z, or its norm `own`, to the sum, and normalises that if there is a norm. */
static struct stream add_block(struct snug_builder *b, const struct snug_layer *layer, int32_t z, struct stream s,
                               double dropout, struct snug_affine own, struct snug_affine norm, const char *name) {
    char own_name[48];
    snprintf(own_name, sizeof own_name, "%s.normed", name);
    if (own.weight) z = snug_norm(b, z, own, own_name);
    if (!layer->pre_norm) {
        s.x = s.sum = snug_residual_norm(b, z, s.sum, dropout, norm, name);
        return s;
    }
    const double scale = layer->block_scale > 0 ? layer->block_scale : 1;
    if (norm.weight && scale == 1) {
        s.x = snug_residual_sum_norm(b, z, s.sum, dropout, norm, name, &s.sum);
        return s;
    }
    char sum_name[48];
    snprintf(sum_name, sizeof sum_name, "%s.sum", name);
    s.sum = snug_scaled_sum(b, z, s.sum, scale, sum_name);
    s.x = norm.weight ? snug_norm(b, s.sum, norm, name) : s.sum;
    return s;
}

static int32_t attend_positions(struct snug_builder *b, const struct snug_layer *layer, const struct parameters *p,
                                const int32_t operands[3], struct snug_attention_form form) {
    const int32_t rows = snug_dropout(b, layer->positions, layer->position_dropout, "positions");
    const int32_t keys = layer->position_keys ? snug_linear(b, rows, p->position_key, "position.key") : 0;
    const int32_t queries = layer->position_queries ? snug_linear(b, rows, p->position_query, "position.query") : 0;
    return snug_position_attention(b, operands, keys, queries, form);
}

static int32_t attend(struct snug_builder *b, int32_t x, const struct snug_layer *layer, const struct parameters *p,
                      struct snug_attention_form form) {
    static const char *const names[] = {"query", "key", "value"}, *const normed[] = {"query.norm", "key.norm"};
    const struct snug_rotation rotation = layer->rotation ? layer->rotation(b) : (struct snug_rotation){0};
    const bool rotates = rotation.pairs && !b->program->cache_pages;
    int32_t operands[3];
    if (!p->separate) {
        operands[0] = operands[1] = operands[2] = snug_linear(b, x, p->operands[0], "qkv");
        if (rotates) snug_rotate(b, operands[0], form.heads + form.kv_heads, form.head_dim, &rotation);
    }
    if (p->separate) snug_linears(b, x, 3, p->operands, names, operands);
    for (int n = 0; n < 2 && p->separate; n++) { /* queries and keys */
        if (p->head_norms[n].weight) operands[n] = snug_head_norm(b, operands[n], p->head_norms[n], normed[n]);
        struct snug_rotation own = rotation;
        if (n == 1) own.growth = 0; /* of queries */
        if (rotates) snug_rotate(b, operands[n], n ? form.kv_heads : form.heads, form.head_dim, &own);
    }
    if (layer->positions) return attend_positions(b, layer, p, operands, form);
    if (b->program->cache_pages) return snug_cached_attention(b, operands, &rotation, form);
    return snug_attention(b, operands[0], operands[1], operands[2], layer->bias, form);
}

/* pools: the head reads one row of each sequence. The other tokens are then used as keys and values only, and three
   quarters of the layer's matmuls skip them. */
static struct stream build_layer(struct snug_builder *b, struct stream s, const struct snug_layer *layer, bool pools) {
    const struct snug_config *c = b->config;
    const struct snug_attention_form form = layer->form ? layer->form(b) : snug_attention_form(b);
    const struct parameters p = build_parameters(b, layer, &form);

    /* In this order gradients of 16 bits are added as they always were. */
    const int32_t sum = pools && !layer->pre_norm ? snug_pool(b, s.sum, layer->pooling, "pooled") : s.sum;
    int32_t attended = attend(b, s.x, layer, &p, form);
    if (pools) {
        s.sum = layer->pre_norm ? snug_pool(b, s.sum, layer->pooling, "pooled") : sum;
        attended = snug_pool(b, attended, layer->pooling, "attention.pooled");
    }
    int32_t z = snug_linear(b, attended, p.out, "attention.dense");
    s = add_block(b, layer, z, s, layer->attention_dropout, p.block_norms[0], p.norm,
                  layer->pre_norm ? "ffn.input" : "attention.norm");
    int32_t a = p.gate.weight  ? snug_gated_linears(b, s.x, p.gate, p.up, c->hidden_act, "ffn.activation")
                : layer->gated ? snug_gated_linear(b, s.x, p.up, "ffn.up", c->hidden_act, "ffn.activation")
                               : snug_activated_linear(b, s.x, p.up, "ffn.up", c->hidden_act, "ffn.activation");
    if (layer->activation_dropout > 0) a = snug_dropout(b, a, layer->activation_dropout, "ffn.dropout");
    z = snug_linear(b, a, p.down, "ffn.down");
    return add_block(b, layer, z, s, layer->ffn_dropout, p.block_norms[1], p.output_norm,
                     layer->pre_norm ? "output" : "ffn.norm");
}

int32_t snug_build_layers(struct snug_builder *b, int32_t x, const struct snug_layer *layer) {
    const int32_t last = (int32_t)b->config->num_hidden_layers - 1;
    struct snug_layer own = *layer;
    if (snug_head_of(b->config) == SNUG_HEAD_VECTOR) own.pooling = b->config->sentence->pooling;
    const bool pools = !snug_task_is_per_token(snug_task_info(b->config->task));
    const bool late = snug_pool_sums(own.pooling) || (own.after_first && last == 0);
    struct stream s = {x, x};
    if (layer->pre_norm && !layer->first_normed && layer->attention_norm) {
        snug_build_part(b, SNUG_PART_LAYER, 0);
        s.x = snug_norm(b, x, norm_in_layer(b, layer, layer->attention_norm), "input");
    }
    for (int32_t i = 0; i <= last; i++) {
        snug_build_part(b, SNUG_PART_LAYER, i);
        s = build_layer(b, s, &own, pools && !late && i == last);
        if (own.after_first && i == 0) s.x = s.sum = own.after_first(b, x, s.x);
    }
    snug_build_part(b, SNUG_PART_HEAD, 0);
    if (pools && late) s.x = snug_pool(b, s.x, own.pooling, "pooled");
    b->phase = SNUG_PHASE_HEAD;
    return s.x;
}
