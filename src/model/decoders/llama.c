/* SPDX-License-Identifier: Apache-2.0 */
/* Llama (Touvron et al., arXiv:2302.13971; Llama 3, arXiv:2407.21783), Mistral (Jiang et al., arXiv:2310.06825), whose
   layers have a window, and Ministral 3. */
#include "io/json.h"
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
    snug_read_decoder(r, &mistral);
    snug_read_rotation(r, 1e4);
    snug_read_sliding(r, 4096, 0);
}

/* What transformers' class has in place of absent rope_parameters. */
static const char ministral_rope[] =
    "{\"rope_parameters\": {\"type\": \"yarn\", \"rope_theta\": 1000000.0, \"factor\": 16.0,"
    " \"original_max_position_embeddings\": 16384, \"mscale\": 1.0, \"mscale_all_dim\": 1.0,"
    " \"llama_4_scaling_beta\": 0.1}}";

/* Queries are multiplied by a factor that grows with their position. */
static void read_growth(struct snug_reading *r) {
    struct snug_decoder *d = r->config->settings;
    const char *name;
    struct snug_reading own = *r;
    struct snug_rotation *rotation = &d->rope.rotation;
    own.json = snug_rope_dictionary(r, &name);
    rotation->growth_from = r->config->max_position_embeddings;
    snug_read_real(&own, "llama_4_scaling_beta", 0, 0, 1e6, &rotation->growth);
    snug_read_size(&own, "original_max_position_embeddings", rotation->growth_from, SNUG_DIMENSION_MOST,
                   &rotation->growth_from);
    r->status = own.status;
    if (r->status == SNUG_OK && rotation->growth > 0 && (d->rope.longer_from || 2 * rotation->pairs < d->head_dim))
        r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED,
                              "%s: llama_4_scaling_beta is not supported with rope_type dynamic or longrope, or a "
                              "partial_rotary_factor below 1",
                              r->path);
    d->sliding_rope = d->rope;
}

static void read_ministral(struct snug_reading *r) {
    static const struct snug_decoder_defaults defaults = {.vocabulary = 131072,
                                                          .hidden = 4096,
                                                          .inner = 14336,
                                                          .layers = 34,
                                                          .heads = 32,
                                                          .kv_heads = 8,
                                                          .head_dim = 128,
                                                          .positions = 262144,
                                                          .padding = 11,
                                                          .eps = 1e-5};
    json_error_t error;
    const char *name;
    json_t *absent = snug_json_parse(ministral_rope, sizeof ministral_rope - 1, 0, &error);
    struct snug_reading rope = *r;
    if (!snug_rope_dictionary(r, &name)) rope.json = absent;
    snug_read_decoder(r, &defaults);
    rope.status = r->status;
    if (!absent) rope.status = snug_fail(r->ctx, SNUG_E_MEMORY, "out of memory while reading %s", r->path);
    snug_read_rotation(&rope, 1e4);
    read_growth(&rope);
    r->status = rope.status;
    json_decref(absent);
    snug_read_sliding(r, 0, 0);
}

static const struct snug_gguf_form llama_gguf = {
    .architecture = "llama", .activation = SNUG_SILU, .permuted = true, .biases = true};
static const struct snug_gguf_form ministral_gguf = {
    .architecture = "mistral3", .activation = SNUG_SILU, .permuted = true, .biases = true};

const struct snug_family snug_family_llama = {SNUG_DECODER("llama", "Llama", "Llama"),
                                              .untied = true,
                                              .tokenizer_class = "TokenizersBackend",
                                              .lora_targets = "q_proj v_proj",
                                              .read = read_llama,
                                              .encode = snug_build_llama,
                                              .gguf = &llama_gguf};

const struct snug_family snug_family_mistral = {SNUG_DECODER("mistral", "Mistral", "Mistral"),
                                                .untied = true,
                                                .tokenizer_class = "TokenizersBackend",
                                                .keeps_tokenizer_class = true,
                                                .lora_targets = "q_proj v_proj",
                                                .read = read_mistral,
                                                .encode = snug_build_llama,
                                                .gguf = &llama_gguf};

const struct snug_family snug_family_ministral3 = {SNUG_DECODER("ministral3", "Ministral 3", "Ministral3"),
                                                   .untied = true,
                                                   .tokenizer_class = "TokenizersBackend",
                                                   .keeps_tokenizer_class = true,
                                                   .read = read_ministral,
                                                   .encode = snug_build_llama,
                                                   .gguf = &ministral_gguf};
