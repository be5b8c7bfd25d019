/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma (arXiv:2403.08295), Gemma 2 (arXiv:2408.00118), which norms what a block adds, too, and caps scores and logits,
   and the text model of Gemma 3 (arXiv:2503.19786), which norms queries and keys instead. */
#include <math.h>
#include <string.h>

#include "model/decoders/decoder.h"

static void read_gemma(struct snug_reading *r, const struct snug_decoder_defaults *defaults) {
    struct snug_decoder *d = r->config->settings;
    snug_read_decoder(r, defaults);
    d->attention_bias = snug_read_bool(r, "attention_bias", false);
    d->embedding_scale = sqrt((double)r->config->hidden_size);
    if (snug_read_bool(r, "use_bidirectional_attention", false) && r->status == SNUG_OK)
        r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: use_bidirectional_attention is not supported", r->path);
}

static void read_gemma1(struct snug_reading *r) {
    static const struct snug_decoder_defaults defaults = {.vocabulary = 256000,
                                                          .hidden = 3072,
                                                          .inner = 24576,
                                                          .layers = 28,
                                                          .heads = 16,
                                                          .kv_heads = 16,
                                                          .head_dim = 256,
                                                          .positions = 8192,
                                                          .padding = 0,
                                                          .activation = "gelu_pytorch_tanh"};
    read_gemma(r, &defaults);
    if (r->config->hidden_act == SNUG_GELU) r->config->hidden_act = SNUG_GELU_TANH; /* what "gelu" means there */
    snug_read_rotation(r, 1e4);
}

/* The scale and the caps of Gemma 2 and 3. */
static void read_scores(struct snug_reading *r, double cap, double final_cap) {
    struct snug_decoder *d = r->config->settings;
    double scalar = 256;
    snug_read_real(r, "query_pre_attn_scalar", scalar, 1e-6, 1e12, &scalar);
    d->scale = 1 / sqrt(scalar);
    snug_read_cap(r, "attn_logit_softcapping", cap, &d->softcap);
    snug_read_cap(r, "final_logit_softcapping", final_cap, &d->final_softcap);
}

static const struct snug_decoder_defaults gemma2 = {.vocabulary = 256000,
                                                    .hidden = 2304,
                                                    .inner = 9216,
                                                    .layers = 26,
                                                    .heads = 8,
                                                    .kv_heads = 4,
                                                    .head_dim = 256,
                                                    .positions = 8192,
                                                    .padding = 0,
                                                    .activation_key = "hidden_activation",
                                                    .activation = "gelu_pytorch_tanh"};

static void read_gemma2(struct snug_reading *r) {
    read_gemma(r, &gemma2);
    read_scores(r, 50, 30);
    snug_read_rotation(r, 1e4);
    if (snug_read_sliding(r, 4096, 2)) snug_read_layer_types(r);
}

static void read_gemma3(struct snug_reading *r) {
    struct snug_decoder_defaults defaults = gemma2;
    int64_t pattern = 6;
    defaults.vocabulary = 262208;
    defaults.positions = 131072;
    read_gemma(r, &defaults);
    read_scores(r, 0, 0);
    snug_read_rotations(r, 1e6, "rope_local_base_freq", 1e4);
    snug_read_size(r, "sliding_window_pattern", pattern, SNUG_LAYERS_MOST, &pattern);
    if (snug_read_sliding(r, 4096, pattern)) snug_read_layer_types(r);
}

static int32_t decode_gemma1(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = snug_llama_layer(b->config);
    layer.unit_offset = true;
    return snug_build_decoder(b, &layer, word);
}

static struct snug_layer sandwiched(const struct snug_config *config) {
    struct snug_layer layer = snug_llama_layer(config);
    layer.unit_offset = true;
    layer.attention_output_norm = "post_attention_layernorm";
    layer.ffn_norm = "pre_feedforward_layernorm";
    layer.ffn_output_norm = "post_feedforward_layernorm";
    return layer;
}

static int32_t decode_gemma2(struct snug_builder *b, int32_t *word) {
    const struct snug_layer layer = sandwiched(b->config);
    return snug_build_decoder(b, &layer, word);
}

static int32_t decode_gemma3(struct snug_builder *b, int32_t *word) {
    struct snug_layer layer = sandwiched(b->config);
    layer.query_norm = "self_attn.q_norm";
    layer.key_norm = "self_attn.k_norm";
    return snug_build_decoder(b, &layer, word);
}

static const struct snug_gguf_form gemma_gguf = {.architecture = "gemma", .activation = SNUG_GELU_TANH, .tied = true};
static const struct snug_gguf_form gemma2_gguf = {
    .architecture = "gemma2", .activation = SNUG_GELU_TANH, .windows = true, .tied = true, .shared = 46};
static const struct snug_gguf_form gemma3_gguf = {
    .architecture = "gemma3", .activation = SNUG_GELU_TANH, .windows = true, .shared = 62};

const struct snug_family snug_family_gemma = {SNUG_DECODER("gemma", "Gemma", "Gemma"),
                                              .tokenizer_class = "GemmaTokenizer",
                                              .lora_targets = "q_proj v_proj",
                                              .read = read_gemma1,
                                              .encode = decode_gemma1,
                                              .gguf = &gemma_gguf};

const struct snug_family snug_family_gemma2 = {SNUG_DECODER("gemma2", "Gemma 2", "Gemma2"),
                                               .tokenizer_class = "GemmaTokenizer",
                                               .lora_targets = "q_proj v_proj",
                                               .read = read_gemma2,
                                               .encode = decode_gemma2,
                                               .gguf = &gemma2_gguf};

/* Gemma3ForSequenceClassification is that of the model with vision. */
static const struct snug_architecture gemma3_classes[] = {
    {"Gemma3TextForSequenceClassification", SNUG_TASK_CLASSIFICATION, true}, {0}};

const struct snug_family snug_family_gemma3_text = {SNUG_DECODER("gemma3_text", "Gemma 3", "Gemma3"),
                                                    .further_classes = gemma3_classes,
                                                    .tokenizer_class = "GemmaTokenizer",
                                                    .lora_targets = "q_proj v_proj",
                                                    .read = read_gemma3,
                                                    .encode = decode_gemma3,
                                                    .gguf = &gemma3_gguf};
