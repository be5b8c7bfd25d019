/* SPDX-License-Identifier: Apache-2.0 */
#include "model/encoders/encoder.h"

struct snug_layer snug_bert_layer(const struct snug_config *c) {
    return (struct snug_layer){.attention_dropout = c->hidden_dropout_prob,
                               .ffn_dropout = c->hidden_dropout_prob,
                               .layer = "encoder.layer",
                               .query = "attention.self.query",
                               .key = "attention.self.key",
                               .value = "attention.self.value",
                               .out = "attention.output.dense",
                               .attention_norm = "attention.output.LayerNorm",
                               .up = "intermediate.dense",
                               .down = "output.dense",
                               .ffn_norm = "output.LayerNorm"};
}

int32_t snug_build_embeddings(struct snug_builder *b, int64_t size, int32_t *word) {
    const struct snug_config *c = b->config;
    const struct snug_name words = snug_model_name(b, "embeddings.word_embeddings"),
                           positions = snug_model_name(b, "embeddings.position_embeddings"),
                           types = snug_model_name(b, "embeddings.token_type_embeddings"),
                           norm = snug_model_name(b, "embeddings.LayerNorm");
    *word = snug_build_word_table(b, size, words.text);
    const int32_t position =
        snug_build_table(b, c->max_position_embeddings, size, c->first_position - 1, positions.text);
    const int32_t type = c->type_vocab_size ? snug_build_table(b, c->type_vocab_size, size, -1, types.text) : 0;
    return snug_embed_normed(b, *word, position, type, snug_build_norm(b, size, norm.text, true));
}

/* ---- heads ---------------------------------------------------------------------------------------------------- */

int64_t snug_sequence_scores(const struct snug_builder *b) {
    return snug_head_of(b->config) == SNUG_HEAD_CHOICE ? 1 : b->config->labels.count;
}

void snug_build_pooled_classifier(struct snug_builder *b, int32_t hidden, const char *dense, bool own,
                                  enum snug_activation activation, double dropout) {
    const struct snug_config *c = b->config;
    const size_t first = b->program->parameter_count;
    struct snug_affine pooler = snug_build_linear(b, c->hidden_size, c->hidden_size, dense, true);
    const size_t second = b->program->parameter_count;
    struct snug_affine classifier = snug_build_linear(b, snug_sequence_scores(b), c->hidden_size, "classifier", true);
    snug_build_mark_head(b, own ? first : second);

    int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "pooler.input");
    x = snug_activated_linear(b, x, pooler, "pooler.dense", activation, "pooler.output");
    x = snug_dropout(b, x, dropout, "pooler.dropout");
    snug_build_loss(b, snug_linear(b, x, classifier, "logits"));
}

void snug_build_two_layer_classifier(struct snug_builder *b, int32_t hidden, enum snug_activation activation) {
    const struct snug_config *c = b->config;
    const size_t first = b->program->parameter_count;
    struct snug_affine dense = snug_build_linear(b, c->hidden_size, c->hidden_size, "classifier.dense", true);
    struct snug_affine out = snug_build_linear(b, c->labels.count, c->hidden_size, "classifier.out_proj", true);
    snug_build_mark_head(b, first);

    int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "classifier.input");
    x = snug_dropout(b, x, c->classifier_dropout, "classifier.input.dropout");
    x = snug_activated_linear(b, x, dense, "classifier.dense", activation, "classifier.activation");
    x = snug_dropout(b, x, c->classifier_dropout, "classifier.dropout");
    snug_build_loss(b, snug_linear(b, x, out, "logits"));
}

void snug_build_token_classifier(struct snug_builder *b, int32_t hidden, double dropout) {
    const struct snug_config *c = b->config;
    const size_t first = b->program->parameter_count;
    struct snug_affine classifier = snug_build_linear(b, c->labels.count, c->hidden_size, "classifier", true);
    snug_build_mark_head(b, first);

    int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "labelled_tokens");
    x = snug_dropout(b, x, dropout, "labelled_tokens.dropout");
    snug_build_loss(b, snug_linear(b, x, classifier, "logits"));
}

void snug_build_masked_lm(struct snug_builder *b, int32_t hidden, int32_t word, enum snug_activation activation) {
    const struct snug_config *c = b->config;
    const struct snug_language_model_names *names = c->language_model;
    const bool renamed = c->own_decoder && names->decoder_bias;
    const int64_t size = b->status == SNUG_OK ? b->program->tensors[word].cols : 0;
    const size_t first = b->program->parameter_count;
    struct snug_affine dense = snug_build_linear(b, size, c->hidden_size, names->dense, true);
    struct snug_affine norm = snug_build_norm(b, size, names->norm, true);
    struct snug_affine decoder = {
        .weight = word, .bias = snug_build_bias(b, c->vocab_size, renamed ? names->decoder_bias : names->bias)};
    snug_build_mark_vocabulary(b);
    if (renamed) snug_build_save_also(b, names->bias);
    if (c->own_decoder) {
        decoder.weight = snug_build_table(b, c->vocab_size, size, -1, names->decoder);
        snug_build_mark_vocabulary(b);
    }
    snug_build_output_adapters(b, c->vocab_size, size, names->decoder, &decoder);
    snug_build_mark_head(b, first);

    int32_t a = snug_activated_linear(b, snug_gather(b, hidden, SNUG_EXTENT_ROWS, "masked_tokens"), dense,
                                      "transform.dense", activation, "transform.activation");
    int32_t y = snug_norm(b, a, norm, "transform.norm");
    snug_build_loss(b, snug_linear(b, y, decoder, "logits"));
}

void snug_build_token_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_token_classifier(b, hidden, b->config->classifier_dropout);
}

void snug_build_span_scores(struct snug_builder *b, int32_t hidden, double dropout) {
    const size_t first = b->program->parameter_count;
    struct snug_affine scores = snug_build_linear(b, SNUG_SPAN_SCORES, b->config->hidden_size, "qa_outputs", true);
    snug_build_mark_head(b, first);
    int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "qa_outputs.input");
    x = snug_dropout(b, x, dropout, "qa_outputs.dropout");
    snug_build_loss(b, snug_linear(b, x, scores, "logits"));
}

void snug_build_span_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_span_scores(b, hidden, 0);
}

/* Over the encoder's pooler, which its other heads do not have. */
static void roberta_choice(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_pooled_classifier(b, hidden, snug_model_name(b, "pooler.dense").text, false, SNUG_TANH,
                                 b->config->hidden_dropout_prob);
}

static void roberta_classifier(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_two_layer_classifier(b, hidden, SNUG_TANH);
}

static const struct snug_language_model_names lm_head = {.dense = "lm_head.dense",
                                                         .norm = "lm_head.layer_norm",
                                                         .decoder = "lm_head.decoder",
                                                         .bias = "lm_head.bias",
                                                         .decoder_bias = "lm_head.decoder.bias"};

static void roberta_masked_lm(struct snug_builder *b, int32_t hidden, int32_t word) {
    snug_build_masked_lm(b, hidden, word, SNUG_GELU);
}

static const char *const roberta_prefixes[] = {"lm_head.", "classifier.", "qa_outputs.", NULL};

const struct snug_heads snug_roberta_heads = {.build = {[SNUG_HEAD_SEQUENCE] = roberta_classifier,
                                                        [SNUG_HEAD_TOKEN] = snug_build_token_head,
                                                        [SNUG_HEAD_VOCABULARY] = roberta_masked_lm,
                                                        [SNUG_HEAD_SPAN] = snug_build_span_head,
                                                        [SNUG_HEAD_CHOICE] = roberta_choice},
                                              .prefixes = roberta_prefixes,
                                              .language_model = &lm_head};
