/* SPDX-License-Identifier: Apache-2.0 */
/* RoBERTa with pre-norm layers, fairseq's --encoder-normalize-before (Ott et al., arXiv:1904.01038): a norm before each
   block instead of after its residual sum, and one after the last layer. */
#include <stdio.h>

#include "model/encoders/encoder.h"

static void read(struct snug_reading *r) {
    struct snug_config *c = r->config;
    c->hidden_size = 768;
    c->num_hidden_layers = c->num_attention_heads = 12;
    c->intermediate_size = 3072;
    c->vocab_size = 50265;
    c->max_position_embeddings = 512;
    c->type_vocab_size = 2;
    c->layer_norm_eps = 1e-12;
    c->pad_token_id = 1;
    snug_read_encoder(r);
    snug_read_first_position(r);
}

/* "encoder.layer.NUMBER." + rest, with the prefix */
static struct snug_name in_layer(const struct snug_builder *b, int32_t layer, const char *rest) {
    struct snug_name name;
    snprintf(name.text, sizeof name.text, "%sencoder.layer.%d.%s", b->config->family->prefix, layer, rest);
    return name;
}

/* The norm that reads the output of a layer: of the next layer's attention, or the encoder's last. */
static struct snug_affine next_norm(struct snug_builder *b, int32_t layer) {
    const bool last = layer + 1 == b->config->num_hidden_layers;
    const struct snug_name name =
        last ? snug_encoder_name(b, "LayerNorm") : in_layer(b, layer + 1, "attention.LayerNorm");
    if (last)
        snug_build_part(b, SNUG_PART_HEAD, 0);
    else
        snug_build_part(b, SNUG_PART_LAYER, layer + 1);
    const struct snug_affine norm = snug_build_norm(b, b->config->hidden_size, name.text);
    snug_build_part(b, SNUG_PART_LAYER, layer);
    return norm;
}

/* x: the norm of the sum so far, *sum; returns the norm of the new one. first_tokens: as in encoder.c. */
static int32_t encoder_layer(struct snug_builder *b, int32_t x, int32_t *sum, int32_t layer, bool first_tokens) {
    const struct snug_config *c = b->config;
    const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
    const double dropout = c->hidden_dropout_prob;
    snug_build_part(b, SNUG_PART_LAYER, layer);
    const struct snug_name query = in_layer(b, layer, "attention.self.query"),
                           key = in_layer(b, layer, "attention.self.key"),
                           value = in_layer(b, layer, "attention.self.value");
    const char *const projections[] = {query.text, key.text, value.text};
    struct snug_affine qkv = snug_build_linear(b, hidden, hidden, 3, projections);
    struct snug_affine out = snug_build_dense(b, hidden, hidden, in_layer(b, layer, "attention.output.dense").text);
    struct snug_affine norm = snug_build_norm(b, hidden, in_layer(b, layer, "intermediate.LayerNorm").text);
    struct snug_affine up = snug_build_dense(b, inner, hidden, in_layer(b, layer, "intermediate.dense").text);
    struct snug_affine down = snug_build_dense(b, hidden, inner, in_layer(b, layer, "output.dense").text);
    struct snug_affine next = next_norm(b, layer);

    const int32_t operands = snug_linear(b, x, qkv, "qkv");
    int32_t attended = snug_attention(b, operands, operands, operands, 0, snug_attention_form(b));
    if (first_tokens) {
        *sum = snug_gather(b, *sum, SNUG_EXTENT_SEQUENCES, "first_tokens");
        attended = snug_gather(b, attended, SNUG_EXTENT_SEQUENCES, "attention.first_tokens");
    }
    const int32_t z = snug_linear(b, attended, out, "attention.dense");
    x = snug_residual_sum_norm(b, z, *sum, dropout, norm, "ffn.input", sum);
    const int32_t a = snug_activated_linear(b, x, up, "ffn.up", c->hidden_act, "ffn.activation");
    return snug_residual_sum_norm(b, snug_linear(b, a, down, "ffn.down"), *sum, dropout, next, "output", sum);
}

static int32_t encode(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    const bool classifies = snug_head_of(c) == SNUG_HEAD_SEQUENCE;
    int32_t sum = snug_build_embeddings(b, c->hidden_size, word);
    snug_build_part(b, SNUG_PART_LAYER, 0);
    const struct snug_affine norm = snug_build_norm(b, c->hidden_size, in_layer(b, 0, "attention.LayerNorm").text);
    int32_t x = snug_norm(b, sum, norm, "input");
    for (int32_t i = 0; i < c->num_hidden_layers; i++)
        x = encoder_layer(b, x, &sum, i, classifies && i + 1 == c->num_hidden_layers);
    snug_build_part(b, SNUG_PART_HEAD, 0);
    b->phase = SNUG_PHASE_HEAD;
    return x;
}

const struct snug_family snug_family_roberta_prelayernorm = {.model_type = "roberta-prelayernorm",
                                                             .name = "RoBERTa-PreLayerNorm",
                                                             .prefix = "roberta_prelayernorm.",
                                                             .class_name = "RobertaPreLayerNorm",
                                                             .tokenizer_class = "RobertaTokenizer",
                                                             .read = read,
                                                             .encode = encode,
                                                             .heads = &snug_roberta_heads};
