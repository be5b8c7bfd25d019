/* SPDX-License-Identifier: Apache-2.0 */
/* BERT (Devlin et al., arXiv:1810.04805), with transformers' parameter names. */
#include "model/encoders/encoder.h"

static void read(struct snug_reading *r) {
    struct snug_config *c = r->config;
    c->hidden_size = 768;
    c->num_hidden_layers = c->num_attention_heads = 12;
    c->intermediate_size = 3072;
    c->vocab_size = 30522;
    c->max_position_embeddings = 512;
    c->type_vocab_size = 2;
    c->layer_norm_eps = 1e-12;
    c->pad_token_id = 0;
    snug_read_encoder(r);
}

/* BertPooler, dropout and the classifier, over hidden [B,h], the first token of each sequence. */
static void classification_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_pooled_classifier(b, hidden, snug_model_name(b, "pooler.dense").text, false, SNUG_TANH,
                                 b->config->classifier_dropout);
}

static const struct snug_language_model_names predictions = {.dense = "cls.predictions.transform.dense",
                                                             .norm = "cls.predictions.transform.LayerNorm",
                                                             .decoder = "cls.predictions.decoder",
                                                             .bias = "cls.predictions.bias",
                                                             .decoder_bias = "cls.predictions.decoder.bias"};

static void masked_lm(struct snug_builder *b, int32_t hidden, int32_t word) {
    snug_build_masked_lm(b, hidden, word, b->config->hidden_act);
}

static int32_t encode(struct snug_builder *b, int32_t *word) {
    const int32_t x = snug_build_embeddings(b, b->config->hidden_size, word);
    const struct snug_layer layer = snug_bert_layer(b->config);
    return snug_build_layers(b, x, &layer);
}

static const struct snug_architecture further_classes[] = {{.name = "BertForPreTraining", .task = SNUG_TASK_MLM}, {0}};

static const char *const prefixes[] = {"cls.", "classifier.", "qa_outputs.", NULL};

static const struct snug_heads heads = {.build = {[SNUG_HEAD_SEQUENCE] = classification_head,
                                                  [SNUG_HEAD_TOKEN] = snug_build_token_head,
                                                  [SNUG_HEAD_VOCABULARY] = masked_lm,
                                                  [SNUG_HEAD_SPAN] = snug_build_span_head,
                                                  [SNUG_HEAD_CHOICE] = classification_head},
                                        .prefixes = prefixes,
                                        .language_model = &predictions};

#define SHAPE(hidden, layers, heads, intermediate)                                                                     \
    "{\"architectures\": [\"BertForMaskedLM\"], \"model_type\": \"bert\", \"hidden_size\": " #hidden                   \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads ", \"intermediate_size\": " #intermediate \
    ", \"vocab_size\": 30522, \"max_position_embeddings\": 512, \"type_vocab_size\": 2, \"hidden_dropout_prob\": 0.1," \
    " \"attention_probs_dropout_prob\": 0.1, \"layer_norm_eps\": 1e-12, \"initializer_range\": 0.02,"                  \
    " \"hidden_act\": \"gelu\", \"pad_token_id\": 0, \"tie_word_embeddings\": true}"

static const struct snug_shape shapes[] = {
    {"bert-base-uncased", SHAPE(768, 12, 12, 3072)},
    {"bert-large-uncased", SHAPE(1024, 24, 16, 4096)},
    {0},
};

const struct snug_family snug_family_bert = {.model_type = "bert",
                                             .name = "BERT",
                                             .prefix = "bert.",
                                             .class_name = "Bert",
                                             .further_classes = further_classes,
                                             .shapes = shapes,
                                             .tokenizer_class = "BertTokenizer",
                                             .read = read,
                                             .lora_targets = "query value",
                                             .encode = encode,
                                             .heads = &heads};
