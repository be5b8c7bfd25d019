/* SPDX-License-Identifier: Apache-2.0 */
/* DistilBERT (Sanh et al., arXiv:1910.01108): BERT's encoder without token types and pooler, with its own names. */
#include "model/encoders/encoder.h"

static void read(struct snug_reading *r) {
    struct snug_config *c = r->config;
    const int64_t most = SNUG_DIMENSION_MOST;
    const char *size = snug_read_key(r, "dim", "hidden_size"),
               *layers = snug_read_key(r, "n_layers", "num_hidden_layers"),
               *heads = snug_read_key(r, "n_heads", "num_attention_heads");
    snug_read_size(r, size, 768, most, &c->hidden_size);
    snug_read_size(r, layers, 6, SNUG_LAYERS_MOST, &c->num_hidden_layers);
    snug_read_size(r, heads, 12, SNUG_HEADS_MOST, &c->num_attention_heads);
    snug_read_size(r, "hidden_dim", 3072, most, &c->intermediate_size);
    snug_read_size(r, "vocab_size", 30522, SNUG_VOCABULARY_MOST, &c->vocab_size);
    snug_read_size(r, "max_position_embeddings", 512, most, &c->max_position_embeddings);
    snug_read_check_heads(r, size, heads);
    snug_read_real(r, "initializer_range", 0.02, 0, 1e6, &c->initializer_range);
    snug_read_padding(r, 0);
    snug_read_dropout(r, "dropout", 0.1, &c->hidden_dropout_prob);
    snug_read_dropout(r, "attention_dropout", 0.1, &c->attention_probs_dropout_prob);
    snug_read_dropout(r, "seq_classif_dropout", 0.2, &c->classifier_dropout);
    snug_read_dropout(r, "qa_dropout", 0.1, &c->answer_dropout);
    snug_read_activation(r, "activation");
    c->layer_norm_eps = 1e-12; /* not configurable */
    if (snug_read_bool(r, "sinusoidal_pos_embds", false) && r->status == SNUG_OK)
        r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED,
                              "%s: sinusoidal_pos_embds is not supported, only learned positions", r->path);
}

/* relu between the layers, over hidden [B,h], the first token of each sequence */
static void classification_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_pooled_classifier(b, hidden, "pre_classifier", true, SNUG_RELU, b->config->classifier_dropout);
}

static void token_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_token_classifier(b, hidden, b->config->hidden_dropout_prob);
}

static void span_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_span_scores(b, hidden, b->config->answer_dropout);
}

static const struct snug_language_model_names vocab = {.dense = "vocab_transform",
                                                       .norm = "vocab_layer_norm",
                                                       .decoder = "vocab_projector",
                                                       .bias = "vocab_projector.bias"};

static void masked_lm(struct snug_builder *b, int32_t hidden, int32_t word) {
    snug_build_masked_lm(b, hidden, word, b->config->hidden_act);
}

static int32_t encode(struct snug_builder *b, int32_t *word) {
    const struct snug_layer layer = {.ffn_dropout = b->config->hidden_dropout_prob,
                                     .layer = "transformer.layer",
                                     .query = "attention.q_lin",
                                     .key = "attention.k_lin",
                                     .value = "attention.v_lin",
                                     .out = "attention.out_lin",
                                     .attention_norm = "sa_layer_norm",
                                     .up = "ffn.lin1",
                                     .down = "ffn.lin2",
                                     .ffn_norm = "output_layer_norm"};
    const int32_t x = snug_build_embeddings(b, b->config->hidden_size, word);
    return snug_build_layers(b, x, &layer);
}

static const char *const prefixes[] = {"vocab_", "pre_classifier.", "classifier.", "qa_outputs.", NULL};

static const struct snug_heads heads = {.build = {[SNUG_HEAD_SEQUENCE] = classification_head,
                                                  [SNUG_HEAD_TOKEN] = token_head,
                                                  [SNUG_HEAD_VOCABULARY] = masked_lm,
                                                  [SNUG_HEAD_SPAN] = span_head,
                                                  [SNUG_HEAD_CHOICE] = classification_head},
                                        .prefixes = prefixes,
                                        .language_model = &vocab};

const struct snug_family snug_family_distilbert = {.model_type = "distilbert",
                                                   .name = "DistilBERT",
                                                   .prefix = "distilbert.",
                                                   .class_name = "DistilBert",
                                                   .one_type = true,
                                                   .tokenizer_class = "BertTokenizer",
                                                   .read = read,
                                                   .encode = encode,
                                                   .heads = &heads};
