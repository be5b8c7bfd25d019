/* SPDX-License-Identifier: Apache-2.0 */
#include "model/encoders/encoder.h"

#include <stdio.h>

#include "data/task.h"

const struct snug_layer snug_bert_layer = {.layer = "encoder.layer",
                                           .query = "attention.self.query",
                                           .key = "attention.self.key",
                                           .value = "attention.self.value",
                                           .out = "attention.output.dense",
                                           .attention_norm = "attention.output.LayerNorm",
                                           .up = "intermediate.dense",
                                           .down = "output.dense",
                                           .norm = "output.LayerNorm"};

/* ---- names ---------------------------------------------------------------------------------------------------- */

struct snug_name snug_encoder_name(const struct snug_builder *b, const char *rest) {
    struct snug_name name;
    snprintf(name.text, sizeof name.text, "%s%s", b->config->family->prefix, rest);
    return name;
}

static struct snug_name in_layer(const struct snug_builder *b, const struct snug_layer *layer, const char *rest) {
    struct snug_name name;
    snprintf(name.text, sizeof name.text, "%s%s.%d.%s", b->config->family->prefix, layer->layer, b->layer, rest);
    return name;
}

struct snug_affine snug_build_dense(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *name) {
    return snug_build_linear(b, outputs, inputs, 1, &name);
}

/* ---- the encoder ---------------------------------------------------------------------------------------------- */

int32_t snug_build_embeddings(struct snug_builder *b, int64_t size, int32_t *word) {
    const struct snug_config *c = b->config;
    const struct snug_name words = snug_encoder_name(b, "embeddings.word_embeddings"),
                           positions = snug_encoder_name(b, "embeddings.position_embeddings"),
                           types = snug_encoder_name(b, "embeddings.token_type_embeddings"),
                           norm = snug_encoder_name(b, "embeddings.LayerNorm");
    *word = snug_build_table(b, c->vocab_size, size, c->pad_token_id, words.text);
    snug_build_mark_vocabulary(b);
    const int32_t position =
        snug_build_table(b, c->max_position_embeddings, size, c->first_position - 1, positions.text);
    const int32_t type = c->type_vocab_size ? snug_build_table(b, c->type_vocab_size, size, -1, types.text) : 0;
    return snug_embed(b, *word, position, type, snug_build_norm(b, size, norm.text));
}

/* first_tokens: only the first token of each sequence is needed. The other tokens are then used as keys and values
   only, and three quarters of the layer's matmuls skip them. */
static int32_t encoder_layer(struct snug_builder *b, int32_t x, const struct snug_layer *n, bool first_tokens) {
    const struct snug_config *c = b->config;
    const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
    const double dropout = c->hidden_dropout_prob;
    const struct snug_name query = in_layer(b, n, n->query), key = in_layer(b, n, n->key),
                           value = in_layer(b, n, n->value);
    const char *const projections[] = {query.text, key.text, value.text};
    struct snug_affine qkv = snug_build_linear(b, hidden, hidden, 3, projections);
    struct snug_affine out = snug_build_dense(b, hidden, hidden, in_layer(b, n, n->out).text);
    struct snug_affine norm1 = snug_build_norm(b, hidden, in_layer(b, n, n->attention_norm).text);
    struct snug_affine up = snug_build_dense(b, inner, hidden, in_layer(b, n, n->up).text);
    struct snug_affine down = snug_build_dense(b, hidden, inner, in_layer(b, n, n->down).text);
    struct snug_affine norm2 = snug_build_norm(b, hidden, in_layer(b, n, n->norm).text);

    int32_t residual = first_tokens ? snug_gather(b, x, SNUG_EXTENT_SEQUENCES, "first_tokens") : x;
    const int32_t operands = snug_linear(b, x, qkv, "qkv");
    int32_t attended = snug_attention(b, operands, operands, operands, n->bias, snug_attention_form(b));
    if (first_tokens) attended = snug_gather(b, attended, SNUG_EXTENT_SEQUENCES, "attention.first_tokens");
    int32_t y = snug_residual_norm(b, snug_linear(b, attended, out, "attention.dense"), residual,
                                   n->keeps_attention ? 0 : dropout, norm1, "attention.norm");
    int32_t a = snug_activated_linear(b, y, up, "ffn.up", c->hidden_act, "ffn.activation");
    return snug_residual_norm(b, snug_linear(b, a, down, "ffn.down"), y, dropout, norm2, "ffn.norm");
}

int32_t snug_build_layers(struct snug_builder *b, int32_t x, const struct snug_layer *layer) {
    const int64_t layers = b->config->num_hidden_layers;
    const bool classifies = snug_head_of(b->config) == SNUG_HEAD_SEQUENCE;
    for (int32_t i = 0; i < layers; i++) {
        snug_build_part(b, SNUG_PART_LAYER, i);
        x = encoder_layer(b, x, layer, classifies && i + 1 == layers);
    }
    snug_build_part(b, SNUG_PART_HEAD, 0);
    b->phase = SNUG_PHASE_HEAD;
    return x;
}

/* ---- heads ---------------------------------------------------------------------------------------------------- */

void snug_build_loss(struct snug_builder *b, int32_t logits) {
    const struct snug_task_info *task = snug_task_info(b->config->task);
    snug_loss_op(b, logits, task->loss[b->config->labels.problem], task->labelled ? b->label_smoothing : 0);
}

void snug_build_two_layer_classifier(struct snug_builder *b, int32_t hidden, enum snug_activation activation) {
    const struct snug_config *c = b->config;
    const size_t first = b->program->parameter_count;
    struct snug_affine dense = snug_build_dense(b, c->hidden_size, c->hidden_size, "classifier.dense");
    struct snug_affine out = snug_build_dense(b, c->labels.count, c->hidden_size, "classifier.out_proj");
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
    struct snug_affine classifier = snug_build_dense(b, c->labels.count, c->hidden_size, "classifier");
    snug_build_mark_head(b, first);

    int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "labelled_tokens");
    x = snug_dropout(b, x, dropout, "labelled_tokens.dropout");
    snug_build_loss(b, snug_linear(b, x, classifier, "logits"));
}

void snug_build_masked_lm(struct snug_builder *b, int32_t hidden, int32_t word, enum snug_activation activation) {
    const struct snug_config *c = b->config;
    const struct snug_masked_lm_names *names = c->family->heads->masked_lm;
    const bool renamed = c->own_decoder && names->decoder_bias;
    const int64_t size = b->status == SNUG_OK ? b->program->tensors[word].cols : 0;
    const size_t first = b->program->parameter_count;
    struct snug_affine dense = snug_build_dense(b, size, c->hidden_size, names->dense);
    struct snug_affine norm = snug_build_norm(b, size, names->norm);
    struct snug_affine decoder = {
        .weight = word, .bias = snug_build_bias(b, c->vocab_size, renamed ? names->decoder_bias : names->bias)};
    snug_build_mark_vocabulary(b);
    if (renamed) snug_build_save_also(b, names->bias);
    if (c->own_decoder) {
        decoder.weight = snug_build_table(b, c->vocab_size, size, -1, names->decoder);
        snug_build_mark_vocabulary(b);
    }
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

static void roberta_classifier(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_two_layer_classifier(b, hidden, SNUG_TANH);
}

static const struct snug_masked_lm_names lm_head = {.dense = "lm_head.dense",
                                                    .norm = "lm_head.layer_norm",
                                                    .decoder = "lm_head.decoder",
                                                    .bias = "lm_head.bias",
                                                    .decoder_bias = "lm_head.decoder.bias"};

static void roberta_masked_lm(struct snug_builder *b, int32_t hidden, int32_t word) {
    snug_build_masked_lm(b, hidden, word, SNUG_GELU);
}

static const char *const roberta_prefixes[] = {"lm_head.", "classifier.", NULL};

const struct snug_heads snug_roberta_heads = {.build = {[SNUG_HEAD_SEQUENCE] = roberta_classifier,
                                                        [SNUG_HEAD_TOKEN] = snug_build_token_head,
                                                        [SNUG_HEAD_VOCABULARY] = roberta_masked_lm},
                                              .prefixes = roberta_prefixes,
                                              .masked_lm = &lm_head};
