/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2 (Yang et al., arXiv:2407.10671), also 2.5, which has biases of queries, keys and values; Qwen3
   (arXiv:2505.09388), which norms queries and keys by head. */
#include "io/json.h"
#include "model/decoders/decoder.h"

static void read_qwen(struct snug_reading *r, int64_t head_dim) {
    const struct snug_decoder_defaults defaults = {.vocabulary = 151936,
                                                   .hidden = 4096,
                                                   .inner = 22016,
                                                   .layers = 32,
                                                   .heads = 32,
                                                   .head_dim = head_dim,
                                                   .positions = 32768,
                                                   .padding = -1};
    struct snug_decoder *d = r->config->settings;
    int64_t full = 28;
    snug_read_decoder(r, &defaults);
    snug_read_rotation(r, 1e4);
    if (r->status == SNUG_OK) r->status = snug_json_int(r->ctx, r->path, r->json, "max_window_layers", full, &full);
    const bool windows = snug_read_bool(r, "use_sliding_window", false) && snug_read_window(r, 4096);
    for (int64_t i = 0; windows && i < r->config->num_hidden_layers; i++)
        if (i >= full) snug_set_layer(d->sliding, i);
    snug_read_layer_types(r);
}

static void read_qwen2(struct snug_reading *r) {
    struct snug_decoder *d = r->config->settings;
    read_qwen(r, 0);
    d->attention_bias = true;
}

static void read_qwen3(struct snug_reading *r) {
    struct snug_decoder *d = r->config->settings;
    read_qwen(r, 128);
    d->attention_bias = snug_read_bool(r, "attention_bias", false);
}

static int32_t decode_qwen2(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = snug_llama_layer(b->config);
    layer.no_out_bias = true;
    return snug_build_decoder(b, &layer, word);
}

static int32_t decode_qwen3(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = snug_llama_layer(b->config);
    layer.query_norm = "self_attn.q_norm";
    layer.key_norm = "self_attn.k_norm";
    return snug_build_decoder(b, &layer, word);
}

static const struct snug_gguf_form qwen2_gguf = {.architecture = "qwen2", .activation = SNUG_SILU, .biases = true};
static const struct snug_gguf_form qwen3_gguf = {.architecture = "qwen3", .activation = SNUG_SILU};

const struct snug_family snug_family_qwen2 = {SNUG_DECODER("qwen2", "Qwen2", "Qwen2"),
                                              .untied = true,
                                              .tokenizer_class = "Qwen2Tokenizer",
                                              .keeps_tokenizer_class = true,
                                              .lora_targets = "q_proj v_proj",
                                              .read = read_qwen2,
                                              .encode = decode_qwen2,
                                              .gguf = &qwen2_gguf};

const struct snug_family snug_family_qwen3 = {SNUG_DECODER("qwen3", "Qwen3", "Qwen3"),
                                              .untied = true,
                                              .tokenizer_class = "Qwen2Tokenizer",
                                              .lora_targets = "q_proj v_proj",
                                              .read = read_qwen3,
                                              .encode = decode_qwen3,
                                              .gguf = &qwen3_gguf};
