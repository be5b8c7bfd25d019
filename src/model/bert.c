/* SPDX-License-Identifier: Apache-2.0 */
/* BERT (Devlin et al., arXiv:1810.04805): post-norm encoder, with transformers' parameter names. */
#include "model/build.h"

#include <stdio.h>

/* "bert.encoder.layer.<n>." + rest */
struct name {
    char text[96];
};
static struct name in_layer(const struct snug_builder *b, const char *rest) {
    struct name name;
    snprintf(name.text, sizeof name.text, "bert.encoder.layer.%d.%s", b->layer, rest);
    return name;
}

static struct snug_affine linear(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *name) {
    return snug_build_linear(b, outputs, inputs, 1, &name);
}

static int32_t embeddings(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    *word = snug_build_table(b, c->vocab_size, c->hidden_size, "bert.embeddings.word_embeddings");
    int32_t position =
        snug_build_table(b, c->max_position_embeddings, c->hidden_size, "bert.embeddings.position_embeddings");
    int32_t type = snug_build_table(b, c->type_vocab_size, c->hidden_size, "bert.embeddings.token_type_embeddings");
    struct snug_affine norm = snug_build_norm(b, "bert.embeddings.LayerNorm");
    return snug_embed(b, *word, position, type, norm);
}

/* first_tokens: whether only the first token of each sequence is wanted. The others then end in the attention, as its
   keys and values, and three quarters of the layer's products are not done for them. */
static int32_t encoder_layer(struct snug_builder *b, int32_t x, bool first_tokens) {
    const struct snug_config *c = b->config;
    const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
    const struct name query = in_layer(b, "attention.self.query"), key = in_layer(b, "attention.self.key"),
                      value = in_layer(b, "attention.self.value");
    const char *const projections[] = {query.text, key.text, value.text};
    struct snug_affine qkv = snug_build_linear(b, hidden, hidden, 3, projections);
    struct snug_affine out = linear(b, hidden, hidden, in_layer(b, "attention.output.dense").text);
    struct snug_affine norm1 = snug_build_norm(b, in_layer(b, "attention.output.LayerNorm").text);
    struct snug_affine up = linear(b, inner, hidden, in_layer(b, "intermediate.dense").text);
    struct snug_affine down = linear(b, hidden, inner, in_layer(b, "output.dense").text);
    struct snug_affine norm2 = snug_build_norm(b, in_layer(b, "output.LayerNorm").text);

    int32_t residual = first_tokens ? snug_gather(b, x, SNUG_EXTENT_SEQUENCES, "first_tokens") : x;
    int32_t attended = snug_attention(b, snug_linear(b, x, qkv, "qkv"));
    if (first_tokens) attended = snug_gather(b, attended, SNUG_EXTENT_SEQUENCES, "attention.first_tokens");
    int32_t y =
        snug_residual_norm(b, snug_linear(b, attended, out, "attention.dense"), residual, norm1, "attention.norm");
    int32_t a = snug_activated_linear(b, y, up, "ffn.up", c->hidden_act, "ffn.activation");
    return snug_residual_norm(b, snug_linear(b, a, down, "ffn.down"), y, norm2, "ffn.norm");
}

/* BertPooler, dropout and the classifier, over hidden [B,h], the first token of each sequence. */
static void classification_head(struct snug_builder *b, int32_t hidden, double label_smoothing) {
    static const enum snug_loss_kind loss[] = {SNUG_CROSS_ENTROPY, SNUG_BINARY_CROSS_ENTROPY, SNUG_MEAN_SQUARED_ERROR};
    const struct snug_config *c = b->config;
    struct snug_affine pooler = linear(b, c->hidden_size, c->hidden_size, "bert.pooler.dense");
    const size_t first = b->program->parameter_count;
    struct snug_affine classifier = linear(b, c->labels.count, c->hidden_size, "classifier");
    snug_build_mark_head(b, first);

    int32_t pooled = snug_activated_linear(b, snug_gather(b, hidden, SNUG_EXTENT_ROWS, "pooler.input"), pooler,
                                           "pooler.dense", SNUG_TANH, "pooler.output");
    int32_t dropped = snug_dropout(b, pooled, c->classifier_dropout, "pooler.dropout");
    snug_loss_op(b, snug_linear(b, dropped, classifier, "logits"), loss[c->labels.problem], label_smoothing);
}

/* BertLMPredictionHead over the masked tokens; the decoder is the word embedding unless tying is off. */
static void masked_lm_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    const struct snug_config *c = b->config;
    const size_t first = b->program->parameter_count;
    struct snug_affine dense = linear(b, c->hidden_size, c->hidden_size, "cls.predictions.transform.dense");
    struct snug_affine norm = snug_build_norm(b, "cls.predictions.transform.LayerNorm");
    struct snug_affine decoder = {
        .weight = word,
        .bias = snug_build_bias(b, c->vocab_size,
                                c->tie_word_embeddings ? "cls.predictions.bias" : "cls.predictions.decoder.bias")};
    if (!c->tie_word_embeddings)
        decoder.weight = snug_build_table(b, c->vocab_size, c->hidden_size, "cls.predictions.decoder");
    snug_build_mark_head(b, first);

    int32_t a = snug_activated_linear(b, snug_gather(b, hidden, SNUG_EXTENT_ROWS, "masked_tokens"), dense,
                                      "transform.dense", c->hidden_act, "transform.activation");
    int32_t y = snug_norm(b, a, norm, "transform.norm");
    snug_loss_op(b, snug_linear(b, y, decoder, "logits"), SNUG_CROSS_ENTROPY, 0);
}

snug_status snug_build_bert(struct snug_program *program, const struct snug_config *config, bool training,
                            double label_smoothing) {
    struct snug_builder b = {
        .program = program, .config = config, .phase = SNUG_PHASE_FORWARD, .layer = -1, .training = training};
    int32_t word, x = embeddings(&b, &word);
    for (b.layer = 0; b.layer < config->num_hidden_layers; b.layer++)
        x = encoder_layer(&b, x, config->task != SNUG_TASK_MLM && b.layer + 1 == config->num_hidden_layers);
    b.layer = -1;
    b.phase = SNUG_PHASE_HEAD;
    if (config->task == SNUG_TASK_MLM)
        masked_lm_head(&b, x, word);
    else
        classification_head(&b, x, label_smoothing);
    return b.status;
}
