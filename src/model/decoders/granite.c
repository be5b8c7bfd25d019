/* SPDX-License-Identifier: Apache-2.0 */
/* Granite 3 (IBM, 2024): Llama with a multiplier of each kind of value. */
#include "model/decoders/decoder.h"

static void read(struct snug_reading *r) {
    static const struct snug_decoder_defaults defaults = {.vocabulary = 32000,
                                                          .hidden = 4096,
                                                          .inner = 11008,
                                                          .layers = 32,
                                                          .heads = 32,
                                                          .positions = 2048,
                                                          .padding = -1};
    struct snug_decoder *d = r->config->settings;
    snug_read_decoder(r, &defaults);
    d->attention_bias = snug_read_bool(r, "attention_bias", false);
    d->mlp_bias = snug_read_bool(r, "mlp_bias", false);
    snug_read_real(r, "embedding_multiplier", 1, 1e-12, 1e12, &d->embedding_scale);
    snug_read_real(r, "residual_multiplier", 1, 1e-12, 1e12, &d->block_scale);
    snug_read_real(r, "attention_multiplier", 1, 1e-12, 1e12, &d->scale);
    snug_read_real(r, "logits_scaling", 1, 1e-12, 1e12, &d->logits_divisor);
    snug_read_rotation(r, 1e4);
}

static int32_t decode(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = snug_llama_layer(b->config);
    layer.block_scale = snug_decoder_of(b->config)->block_scale;
    return snug_build_decoder(b, &layer, word);
}

static const struct snug_gguf_form gguf = {
    .architecture = "granite", .activation = SNUG_SILU, .permuted = true, .biases = true, .scaled = true};

/* transformers has no classifier of it. */
const struct snug_family snug_family_granite = {
    SNUG_DECODER_WITH("granite", "Granite", "Granite", snug_decoder_lm_head),
    .untied = true,
    .tokenizer_class = "TokenizersBackend",
    .keeps_tokenizer_class = true,
    .read = read,
    .encode = decode,
    .gguf = &gguf};
