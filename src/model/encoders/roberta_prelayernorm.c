/* SPDX-License-Identifier: Apache-2.0 */
/* RoBERTa with pre-norm layers, fairseq's --encoder-normalize-before (Ott et al., arXiv:1904.01038): a norm before each
   block instead of after its residual sum, and one after the last layer. */
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

static int32_t encode(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = snug_bert_layer(b->config);
    layer.pre_norm = true;
    layer.attention_norm = "attention.LayerNorm";
    layer.ffn_norm = "intermediate.LayerNorm";
    layer.final_norm = "LayerNorm";
    const int32_t x = snug_build_embeddings(b, b->config->hidden_size, word);
    return snug_build_layers(b, x, &layer);
}

const struct snug_family snug_family_roberta_prelayernorm = {.model_type = "roberta-prelayernorm",
                                                             .name = "RoBERTa-PreLayerNorm",
                                                             .prefix = "roberta_prelayernorm.",
                                                             .class_name = "RobertaPreLayerNorm",
                                                             .tokenizer_class = "RobertaTokenizer",
                                                             .read = read,
                                                             .encode = encode,
                                                             .heads = &snug_roberta_heads};
