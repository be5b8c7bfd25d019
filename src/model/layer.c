/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layer.h"

#include <stdio.h>

#include "model/family.h"

/* What the next block reads, and the sum to which its output is added; one tensor, unless norms come before blocks. */
struct stream {
    int32_t x, sum;
};

/* ---- parameters ------------------------------------------------------------------------------------------------- */

static struct snug_name in_layer(const struct snug_builder *b, const struct snug_layer *layer, const char *rest) {
    struct snug_name name;
    snprintf(name.text, sizeof name.text, "%s%s.%d.%s", b->config->family->prefix, layer->layer, b->layer, rest);
    return name;
}

static struct snug_affine norm_in_layer(struct snug_builder *b, const struct snug_layer *layer, const char *rest) {
    return snug_build_norm(b, b->config->hidden_size, in_layer(b, layer, rest).text, !layer->no_norm_bias);
}

static struct snug_affine build_qkv(struct snug_builder *b, const struct snug_layer *layer) {
    const int64_t hidden = b->config->hidden_size;
    const struct snug_name query = in_layer(b, layer, layer->query);
    if (!layer->key) return snug_build_linear(b, 3 * hidden, hidden, query.text, !layer->no_attention_bias);
    const struct snug_name key = in_layer(b, layer, layer->key), value = in_layer(b, layer, layer->value);
    const char *const names[] = {query.text, key.text, value.text};
    return snug_build_fused_linear(b, hidden, hidden, 3, names, !layer->no_attention_bias);
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
        norm = snug_build_norm(b, b->config->hidden_size, snug_model_name(b, layer->final_norm).text,
                               !layer->no_norm_bias);
    }
    snug_build_part(b, SNUG_PART_LAYER, number);
    return norm;
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

/* Adds a block's output z to the sum, and normalises that. */
static struct stream add_block(struct snug_builder *b, const struct snug_layer *layer, int32_t z, struct stream s,
                               double dropout, struct snug_affine norm, const char *name) {
    if (layer->pre_norm)
        s.x = snug_residual_sum_norm(b, z, s.sum, dropout, norm, name, &s.sum);
    else
        s.x = s.sum = snug_residual_norm(b, z, s.sum, dropout, norm, name);
    return s;
}

/* pools: the head reads one row of each sequence. The other tokens are then used as keys and values only, and three
   quarters of the layer's matmuls skip them. */
static struct stream build_layer(struct snug_builder *b, struct stream s, const struct snug_layer *layer, bool pools) {
    const struct snug_config *c = b->config;
    const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
    const struct snug_affine qkv = build_qkv(b, layer);
    const struct snug_affine out =
        snug_build_linear(b, hidden, hidden, in_layer(b, layer, layer->out).text, !layer->no_attention_bias);
    const struct snug_affine norm = norm_in_layer(b, layer, layer->pre_norm ? layer->ffn_norm : layer->attention_norm);
    const struct snug_affine up = snug_build_linear(b, layer->gated ? 2 * inner : inner, hidden,
                                                    in_layer(b, layer, layer->up).text, !layer->no_ffn_bias);
    const struct snug_affine down =
        snug_build_linear(b, hidden, inner, in_layer(b, layer, layer->down).text, !layer->no_ffn_bias);
    const struct snug_affine output_norm = build_output_norm(b, layer);

    /* In this order gradients of 16 bits are added as they always were. */
    const int32_t sum = pools && !layer->pre_norm ? snug_pool(b, s.sum, layer->pooling, "pooled") : s.sum;
    const struct snug_attention_form form = layer->form ? layer->form(b) : snug_attention_form(b);
    const int32_t operands = snug_linear(b, s.x, qkv, "qkv");
    if (layer->rotation) {
        const struct snug_rotation rotation = layer->rotation(b);
        snug_rotate(b, operands, form.heads + form.kv_heads, form.head_dim, &rotation);
    }
    int32_t attended = snug_attention(b, operands, operands, operands, layer->bias, form);
    if (pools) {
        s.sum = layer->pre_norm ? snug_pool(b, s.sum, layer->pooling, "pooled") : sum;
        attended = snug_pool(b, attended, layer->pooling, "attention.pooled");
    }
    const int32_t z = snug_linear(b, attended, out, "attention.dense");
    s = add_block(b, layer, z, s, layer->attention_dropout, norm, layer->pre_norm ? "ffn.input" : "attention.norm");
    int32_t a = layer->gated ? snug_gated_linear(b, s.x, up, "ffn.up", c->hidden_act, "ffn.activation")
                             : snug_activated_linear(b, s.x, up, "ffn.up", c->hidden_act, "ffn.activation");
    if (layer->activation_dropout > 0) a = snug_dropout(b, a, layer->activation_dropout, "ffn.dropout");
    return add_block(b, layer, snug_linear(b, a, down, "ffn.down"), s, layer->ffn_dropout, output_norm,
                     layer->pre_norm ? "output" : "ffn.norm");
}

int32_t snug_build_layers(struct snug_builder *b, int32_t x, const struct snug_layer *layer) {
    const int32_t last = (int32_t)b->config->num_hidden_layers - 1;
    const bool pools = snug_head_of(b->config) == SNUG_HEAD_SEQUENCE, means = layer->pooling == SNUG_POOL_MEAN;
    struct stream s = {x, x};
    if (layer->pre_norm && !layer->first_normed) {
        snug_build_part(b, SNUG_PART_LAYER, 0);
        s.x = snug_norm(b, x, norm_in_layer(b, layer, layer->attention_norm), "input");
    }
    for (int32_t i = 0; i <= last; i++) {
        snug_build_part(b, SNUG_PART_LAYER, i);
        s = build_layer(b, s, layer, pools && !means && i == last);
    }
    snug_build_part(b, SNUG_PART_HEAD, 0);
    if (pools && means) s.x = snug_pool(b, s.x, SNUG_POOL_MEAN, "means");
    b->phase = SNUG_PHASE_HEAD;
    return s.x;
}
