/* SPDX-License-Identifier: Apache-2.0 */
/* Llama (Touvron et al., arXiv:2302.13971; Llama 3, arXiv:2407.21783) and Mistral (Jiang et al., arXiv:2310.06825),
   whose layers have a window. */
#include "model/decoders/decoder.h"

static const struct snug_decoder_defaults llama = {
    .vocabulary = 32000, .hidden = 4096, .inner = 11008, .layers = 32, .heads = 32, .positions = 2048, .padding = -1};

static void read_llama(struct snug_reading *r) {
    struct snug_decoder *d = r->config->settings;
    snug_read_decoder(r, &llama);
    d->attention_bias = snug_read_bool(r, "attention_bias", false);
    d->mlp_bias = snug_read_bool(r, "mlp_bias", false);
    snug_read_rotation(r, 1e4);
}

static const struct snug_decoder_defaults mistral = {.vocabulary = 32000,
                                                     .hidden = 4096,
                                                     .inner = 14336,
                                                     .layers = 32,
                                                     .heads = 32,
                                                     .kv_heads = 8,
                                                     .positions = 131072,
                                                     .padding = -1};

/* The window is every layer's: layer_types is not read, as in transformers. */
static void read_mistral(struct snug_reading *r) {
    struct snug_decoder *d = r->config->settings;
    snug_read_decoder(r, &mistral);
    snug_read_rotation(r, 1e4);
    if (!snug_read_window(r, 4096)) return;
    for (int64_t i = 0; i < r->config->num_hidden_layers; i++) snug_set_layer(d->sliding, i);
}

static int32_t decode(struct snug_builder *b, int32_t *word) {
    const struct snug_layer layer = snug_llama_layer(b->config);
    return snug_build_decoder(b, &layer, word);
}

const struct snug_family snug_family_llama = {SNUG_DECODER("llama", "Llama", "Llama"), .untied = true,
                                              .tokenizer_class = "LlamaTokenizer", .read = read_llama,
                                              .encode = decode};

const struct snug_family snug_family_mistral = {SNUG_DECODER("mistral", "Mistral", "Mistral"), .untied = true,
                                                .tokenizer_class = "LlamaTokenizer", .read = read_mistral,
                                                .encode = decode};
