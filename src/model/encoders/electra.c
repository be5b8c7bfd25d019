/* SPDX-License-Identifier: Apache-2.0 */
/* ELECTRA (Clark et al., arXiv:2003.10555): BERT's encoder over embeddings that may be narrower than its layers. Its
   masked LM is the generator; a classifier may be on either of the two. */
#include <string.h>

#include "model/encoders/encoder.h"

static void read(struct snug_reading *r) {
    struct snug_config *c = r->config;
    c->hidden_size = 256;
    c->num_hidden_layers = 12;
    c->num_attention_heads = 4;
    c->intermediate_size = 1024;
    c->vocab_size = 30522;
    c->max_position_embeddings = 512;
    c->type_vocab_size = 2;
    c->layer_norm_eps = 1e-12;
    c->pad_token_id = 0;
    snug_read_encoder(r);
    snug_read_size(r, "embedding_size", 128, SNUG_DIMENSION_MOST, &c->embedding_size);
    snug_read_dropout(r, "summary_last_dropout", 0.1, &c->summary_dropout);
}

static void classification_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_two_layer_classifier(b, hidden, SNUG_GELU);
}

/* ElectraSequenceSummary's settings. */
static bool is_usual(const struct snug_builder *b, const char *key, const char *value) {
    const char *found = json_string_value(json_object_get(b->config->json, key));
    return !found || strcmp(found, value) == 0;
}

static void choice_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    if (b->status == SNUG_OK && (!is_usual(b, "summary_type", "first") || !is_usual(b, "summary_activation", "gelu") ||
                                 json_is_false(json_object_get(b->config->json, "summary_use_proj"))))
        b->status = snug_fail(b->program->ctx, SNUG_E_UNSUPPORTED,
                              "config.json: multiple choice with other values than summary_type \"first\", "
                              "summary_activation \"gelu\" and summary_use_proj true is not supported");
    snug_build_pooled_classifier(b, hidden, "sequence_summary.summary", true, SNUG_GELU, b->config->summary_dropout);
}

static const struct snug_language_model_names generator = {.dense = "generator_predictions.dense",
                                                           .norm = "generator_predictions.LayerNorm",
                                                           .decoder = "generator_lm_head",
                                                           .bias = "generator_lm_head.bias"};

static void masked_lm(struct snug_builder *b, int32_t hidden, int32_t word) {
    snug_build_masked_lm(b, hidden, word, SNUG_GELU);
}

static int32_t encode(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    int32_t x = snug_build_embeddings(b, c->embedding_size, word);
    if (c->embedding_size != c->hidden_size) {
        const struct snug_name name = snug_model_name(b, "embeddings_project");
        struct snug_affine project = snug_build_linear(b, c->hidden_size, c->embedding_size, name.text, true);
        x = snug_linear(b, x, project, "embeddings.projection");
    }
    const struct snug_layer layer = snug_bert_layer(b->config);
    return snug_build_layers(b, x, &layer);
}

static const char *const prefixes[] = {"discriminator_predictions.",
                                       "generator_predictions.",
                                       "generator_lm_head.",
                                       "classifier.",
                                       "sequence_summary.",
                                       "qa_outputs.",
                                       NULL};

static const struct snug_heads heads = {.build = {[SNUG_HEAD_SEQUENCE] = classification_head,
                                                  [SNUG_HEAD_TOKEN] = snug_build_token_head,
                                                  [SNUG_HEAD_VOCABULARY] = masked_lm,
                                                  [SNUG_HEAD_SPAN] = snug_build_span_head,
                                                  [SNUG_HEAD_CHOICE] = choice_head},
                                        .prefixes = prefixes,
                                        .language_model = &generator};

const struct snug_family snug_family_electra = {.model_type = "electra",
                                                .name = "ELECTRA",
                                                .prefix = "electra.",
                                                .class_name = "Electra",
                                                .tokenizer_class = "BertTokenizer",
                                                .read = read,
                                                .lora_targets = "query value",
                                                .encode = encode,
                                                .heads = &heads};
