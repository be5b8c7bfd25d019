/* SPDX-License-Identifier: Apache-2.0 */
/* Phi-3, 3.5 and 4 (Abdin et al., arXiv:2404.14219): Llama's layers with fused weights. */
#include "model/decoders/decoder.h"

static void read(struct snug_reading *r) {
    static const struct snug_decoder_defaults defaults = {.vocabulary = 32064,
                                                          .hidden = 3072,
                                                          .inner = 8192,
                                                          .layers = 32,
                                                          .heads = 32,
                                                          .positions = 4096,
                                                          .padding = 32000,
                                                          .eps = 1e-5,
                                                          .trained = 4096,
                                                          .older_longrope = true};
    struct snug_decoder *d = r->config->settings;
    snug_read_decoder(r, &defaults);
    snug_read_dropout(r, "resid_pdrop", 0, &r->config->mlp_dropout);
    snug_read_rotation_of(r, 1e4, &defaults);
    if (!snug_read_window(r, 0)) return;
    for (int64_t i = 0; i < r->config->num_hidden_layers; i++) snug_set_layer(d->sliding, i);
}

static int32_t decode(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = snug_llama_layer(b->config);
    layer.separate = false;
    layer.query = "self_attn.qkv_proj";
    layer.key = layer.gate = NULL;
    layer.up = "mlp.gate_up_proj";
    return snug_build_decoder(b, &layer, word);
}

static const struct snug_gguf_form gguf = {
    .architecture = "phi3", .activation = SNUG_SILU, .own_window = true, .own_trained = true};

const struct snug_family snug_family_phi3 = {SNUG_DECODER("phi3", "Phi-3", "Phi3"),
                                             .untied = true,
                                             .tokenizer_class = "TokenizersBackend",
                                             .keeps_tokenizer_class = true,
                                             .read = read,
                                             .encode = decode,
                                             .gguf = &gguf};
