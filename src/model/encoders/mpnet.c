/* SPDX-License-Identifier: Apache-2.0 */
/* MPNet (Song et al., arXiv:2004.09297): RoBERTa's encoder without token types, whose attention has a bias for each
   relative position, the same in all layers. */
#include "model/encoders/encoder.h"

enum { BUCKETS = 32, PADDING = 1 }; /* fixed in transformers' MPNetModel, independent of config.json */

static void read(struct snug_reading *r) {
    struct snug_config *c = r->config;
    int64_t buckets = BUCKETS;
    c->hidden_size = 768;
    c->num_hidden_layers = c->num_attention_heads = 12;
    c->intermediate_size = 3072;
    c->vocab_size = 30527;
    c->max_position_embeddings = 512;
    c->type_vocab_size = 1;
    c->layer_norm_eps = 1e-12;
    c->pad_token_id = PADDING;
    snug_read_encoder(r);
    snug_read_size(r, "relative_attention_num_buckets", buckets, SNUG_DIMENSION_MOST, &buckets);
    c->type_vocab_size = 0;
    c->classifier_dropout = c->hidden_dropout_prob;
    c->pad_token_id = PADDING;
    snug_read_first_position(r);
    if (r->status == SNUG_OK && buckets != BUCKETS)
        r->status =
            snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: relative_attention_num_buckets %lld is not supported (%d is)",
                      r->path, (long long)buckets, BUCKETS);
}

static int32_t encode(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    struct snug_layer layer = snug_bert_layer(c);
    layer.query = "attention.attn.q";
    layer.key = "attention.attn.k";
    layer.value = "attention.attn.v";
    layer.out = "attention.attn.o";
    layer.attention_norm = "attention.LayerNorm";
    const int32_t x = snug_build_embeddings(b, c->hidden_size, word);
    const struct snug_name biases = snug_model_name(b, "encoder.relative_attention_bias");
    layer.bias = snug_build_table(b, BUCKETS, c->num_attention_heads, -1, biases.text);
    return snug_build_layers(b, x, &layer);
}

static const struct snug_shape shapes[] = {
    {"mpnet-base", "{\"architectures\": [\"MPNetForMaskedLM\"], \"model_type\": \"mpnet\", \"hidden_size\": 768,"
                   " \"num_hidden_layers\": 12, \"num_attention_heads\": 12, \"intermediate_size\": 3072,"
                   " \"vocab_size\": 30527, \"max_position_embeddings\": 514, \"hidden_dropout_prob\": 0.1,"
                   " \"attention_probs_dropout_prob\": 0.1, \"layer_norm_eps\": 1e-5, \"initializer_range\": 0.02,"
                   " \"hidden_act\": \"gelu\", \"relative_attention_num_buckets\": 32, \"pad_token_id\": 1,"
                   " \"tie_word_embeddings\": true}"},
    {0},
};

const struct snug_family snug_family_mpnet = {.model_type = "mpnet",
                                              .name = "MPNet",
                                              .prefix = "mpnet.",
                                              .class_name = "MPNet",
                                              .shapes = shapes,
                                              .one_type = true,
                                              .tokenizer_class = "MPNetTokenizer",
                                              .read = read,
                                              .encode = encode,
                                              .heads = &snug_roberta_heads};
