/* SPDX-License-Identifier: Apache-2.0 */
/* RoBERTa (Liu et al., arXiv:1907.11692) and the models of its shape, CamemBERT, XLM-RoBERTa and RoBERTa-PreLayerNorm:
   BERT's encoder with other heads; position ids start at padding_idx + 1. */
#include "model/encoders/encoder.h"

static void read_with_vocabulary(struct snug_reading *r, int64_t vocabulary) {
    struct snug_config *c = r->config;
    c->hidden_size = 768;
    c->num_hidden_layers = c->num_attention_heads = 12;
    c->intermediate_size = 3072;
    c->vocab_size = vocabulary;
    c->max_position_embeddings = 512;
    c->type_vocab_size = 2;
    c->layer_norm_eps = 1e-12;
    c->pad_token_id = 1;
    snug_read_encoder(r);
    snug_read_first_position(r);
}

static void read_roberta(struct snug_reading *r) { read_with_vocabulary(r, 50265); }
static void read_others(struct snug_reading *r) { read_with_vocabulary(r, 30522); }

static int32_t encode(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    const int32_t x = snug_build_embeddings(b, c->hidden_size, word);
    const struct snug_layer layer = snug_bert_layer(b->config);
    return snug_build_layers(b, x, &layer);
}

/* fairseq's --encoder-normalize-before (Ott et al., arXiv:1904.01038): a norm before each block instead of after its
   residual sum, and one after the last layer. */
static int32_t encode_pre_norm(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = snug_bert_layer(b->config);
    layer.pre_norm = true;
    layer.attention_norm = "attention.LayerNorm";
    layer.ffn_norm = "intermediate.LayerNorm";
    layer.final_norm = "LayerNorm";
    const int32_t x = snug_build_embeddings(b, b->config->hidden_size, word);
    return snug_build_layers(b, x, &layer);
}

const struct snug_family snug_family_roberta = {.model_type = "roberta",
                                                .name = "RoBERTa",
                                                .prefix = "roberta.",
                                                .class_name = "Roberta",
                                                .tokenizer_class = "RobertaTokenizer",
                                                .lora_targets = "query value",
                                                .read = read_roberta,
                                                .encode = encode,
                                                .heads = &snug_roberta_heads};

const struct snug_family snug_family_camembert = {.model_type = "camembert",
                                                  .name = "CamemBERT",
                                                  .prefix = "roberta.",
                                                  .class_name = "Camembert",
                                                  .tokenizer_class = "CamembertTokenizer",
                                                  .read = read_others,
                                                  .encode = encode,
                                                  .heads = &snug_roberta_heads};

const struct snug_family snug_family_xlm_roberta = {.model_type = "xlm-roberta",
                                                    .name = "XLM-RoBERTa",
                                                    .prefix = "roberta.",
                                                    .class_name = "XLMRoberta",
                                                    .tokenizer_class = "XLMRobertaTokenizer",
                                                    .lora_targets = "query value",
                                                    .read = read_others,
                                                    .encode = encode,
                                                    .heads = &snug_roberta_heads};

const struct snug_family snug_family_roberta_prelayernorm = {.model_type = "roberta-prelayernorm",
                                                             .name = "RoBERTa-PreLayerNorm",
                                                             .prefix = "roberta_prelayernorm.",
                                                             .class_name = "RobertaPreLayerNorm",
                                                             .tokenizer_class = "RobertaTokenizer",
                                                             .read = read_roberta,
                                                             .encode = encode_pre_norm,
                                                             .heads = &snug_roberta_heads};
