/* SPDX-License-Identifier: Apache-2.0 */
/* What encoders share: the embeddings, and the heads. */
#ifndef SNUG_MODEL_ENCODERS_ENCODER_H
#define SNUG_MODEL_ENCODERS_ENCODER_H

#include "model/family.h"
#include "model/layer.h"

/* BERT's layers, which most families have. */
struct snug_layer snug_bert_layer(const struct snug_config *c);

/* norm(word + position + type), the tables of that many columns; no types where type_vocab_size is 0. word: the table
 */
int32_t snug_build_embeddings(struct snug_builder *b, int64_t size, int32_t *word);

/* The scores of a sequence: one for each class, or a single one, which is compared with the others of its group. */
int64_t snug_sequence_scores(const struct snug_builder *b);
/* Heads on the layers' output. Marks their parameters. */
/* linear(dropout(activation(linear(first token)))), called dense and classifier. own: dense belongs to the head, not
   to the encoder */
void snug_build_pooled_classifier(struct snug_builder *b, int32_t hidden, const char *dense, bool own,
                                  enum snug_activation activation, double dropout);
/* linear(dropout(activation(linear(dropout(first token))))), called classifier.dense and classifier.out_proj */
void snug_build_two_layer_classifier(struct snug_builder *b, int32_t hidden, enum snug_activation activation);
/* linear(dropout(token)), called classifier, over the tokens that have a label */
void snug_build_token_classifier(struct snug_builder *b, int32_t hidden, double dropout);

/* decoder(norm(activation(dense(token)))) over the masked tokens, with the family's names; the decoder is the word
   table unless it has an own one, whose bias is saved under both of its names. */
void snug_build_masked_lm(struct snug_builder *b, int32_t hidden, int32_t word, enum snug_activation activation);
/* linear(dropout(token)), called qa_outputs, over all tokens */
void snug_build_span_scores(struct snug_builder *b, int32_t hidden, double dropout);
/* The same without dropout, which most families have. */
void snug_build_span_head(struct snug_builder *b, int32_t hidden, int32_t word);
/* The token classifier with classifier_dropout, which most families have. */
void snug_build_token_head(struct snug_builder *b, int32_t hidden, int32_t word);
/* The heads of RoBERTa and MPNet: a two-layer classifier with tanh, a token classifier, lm_head. */
extern const struct snug_heads snug_roberta_heads;

#endif
