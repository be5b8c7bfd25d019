/* SPDX-License-Identifier: Apache-2.0 */
/* OLMo 2 (arXiv:2501.00656) and OLMo 3: what a block adds is normed, not what it reads, and so are queries and keys,
   all heads together. */
#include "model/decoders/decoder.h"

static void read_olmo(struct snug_reading *r) {
    static const struct snug_decoder_defaults defaults = {.vocabulary = 50304,
                                                          .hidden = 4096,
                                                          .inner = 11008,
                                                          .layers = 32,
                                                          .heads = 32,
                                                          .positions = 2048,
                                                          .padding = 1,
                                                          .eps = 1e-5};
    struct snug_decoder *d = r->config->settings;
    snug_read_decoder(r, &defaults);
    d->attention_bias = snug_read_bool(r, "attention_bias", false);
}

static void read_olmo2(struct snug_reading *r) {
    read_olmo(r);
    snug_read_rotation(r, 1e4);
}

/* As in transformers, a top-level rope_theta is that of full layers alone. */
static void read_olmo3(struct snug_reading *r) {
    read_olmo(r);
    snug_read_rotations(r, 5e5, NULL, 5e5);
    if (snug_read_sliding(r, 4096, 4)) snug_read_layer_types(r);
}

static int32_t decode(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = snug_llama_layer(b->config);
    layer.attention_norm = layer.ffn_norm = NULL;
    layer.attention_output_norm = "post_attention_layernorm";
    layer.ffn_output_norm = "post_feedforward_layernorm";
    layer.query_norm = "self_attn.q_norm";
    layer.key_norm = "self_attn.k_norm";
    layer.whole_norms = true;
    return snug_build_decoder(b, &layer, word);
}

static const struct snug_gguf_form gguf = {
    .architecture = "olmo2", .activation = SNUG_SILU, .windows = true, .untied = true};

const struct snug_family snug_family_olmo2 = {SNUG_DECODER("olmo2", "OLMo 2", "Olmo2"),
                                              .untied = true,
                                              .tokenizer_class = "TokenizersBackend",
                                              .keeps_tokenizer_class = true,
                                              .read = read_olmo2,
                                              .encode = decode,
                                              .gguf = &gguf};

const struct snug_family snug_family_olmo3 = {SNUG_DECODER("olmo3", "OLMo 3", "Olmo3"),
                                              .untied = true,
                                              .tokenizer_class = "TokenizersBackend",
                                              .keeps_tokenizer_class = true,
                                              .read = read_olmo3,
                                              .encode = decode,
                                              .gguf = &gguf};
