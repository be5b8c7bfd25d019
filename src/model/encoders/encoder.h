/* SPDX-License-Identifier: Apache-2.0 */
/* What families share: the embeddings, the layers of encoders that normalise after the residual sum, and the heads. */
#ifndef SNUG_MODEL_ENCODERS_ENCODER_H
#define SNUG_MODEL_ENCODERS_ENCODER_H

#include "model/family.h"

/* A layer, and the names of its parameters. */
struct snug_layer {
    bool keeps_attention; /* no dropout after the attention */
    int32_t bias;         /* of all layers' attention, by relative position; or none */
    const char *layer;    /* text between the family's prefix and the layer's number */
    const char *query, *key, *value, *out, *attention_norm;
    const char *up, *down, *norm;
};
extern const struct snug_layer snug_bert_layer; /* BERT's, which most families use */

/* prefix + rest, up to the length of a parameter's name */
struct snug_name {
    char text[96];
};
struct snug_name snug_encoder_name(const struct snug_builder *b, const char *rest);

struct snug_affine snug_build_dense(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *name);
/* norm(word + position + type), the tables of that many columns; no types where type_vocab_size is 0. word: the table
 */
int32_t snug_build_embeddings(struct snug_builder *b, int64_t size, int32_t *word);
/* All layers. Operations appended afterwards belong to the head. For classification the result is the first tokens',
   [B,h]. */
int32_t snug_build_layers(struct snug_builder *b, int32_t x, const struct snug_layer *layer);

/* Heads on the layers' output. Marks their parameters. */
/* linear(dropout(activation(linear(dropout(first token))))), called classifier.dense and classifier.out_proj */
void snug_build_two_layer_classifier(struct snug_builder *b, int32_t hidden, enum snug_activation activation);
/* linear(dropout(token)), called classifier, over the tokens that have a label */
void snug_build_token_classifier(struct snug_builder *b, int32_t hidden, double dropout);

/* decoder(norm(activation(dense(token)))) over the masked tokens, with the family's names; the decoder is the word
   table unless it has an own one, whose bias is saved under both of its names. */
void snug_build_masked_lm(struct snug_builder *b, int32_t hidden, int32_t word, enum snug_activation activation);
/* The token classifier with classifier_dropout, which most families have. */
void snug_build_token_head(struct snug_builder *b, int32_t hidden, int32_t word);
/* The heads of RoBERTa and MPNet: a two-layer classifier with tanh, a token classifier, lm_head. */
extern const struct snug_heads snug_roberta_heads;
/* The loss of the config's task and problem. */
void snug_build_loss(struct snug_builder *b, int32_t logits);

#endif
