/* SPDX-License-Identifier: Apache-2.0 */
/* SmolLM3 (Hugging Face, 2025): Llama, of which some layers do not rotate queries and keys. */
#include "model/decoders/decoder.h"

/* The layers with a 0; or every no_rope_layer_interval-th. */
static void read_unrotated(struct snug_reading *r) {
    struct snug_decoder *d = r->config->settings;
    const json_t *list = json_object_get(r->json, "no_rope_layers");
    const bool given = list && !json_is_null(list);
    const int64_t layers = r->config->num_hidden_layers;
    int64_t interval = 4;
    snug_read_size(r, "no_rope_layer_interval", interval, SNUG_LAYERS_MOST, &interval);
    if (r->status == SNUG_OK && given && (int64_t)json_array_size(list) < layers)
        r->status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: no_rope_layers must have a number for each of %lld layers",
                              r->path, (long long)layers);
    for (int64_t i = 0; i < layers && r->status == SNUG_OK; i++)
        if (given ? json_integer_value(json_array_get(list, (size_t)i)) == 0 : (i + 1) % interval == 0)
            snug_set_layer(d->unrotated, i);
}

static void read(struct snug_reading *r) {
    static const struct snug_decoder_defaults defaults = {.vocabulary = 128256,
                                                          .hidden = 2048,
                                                          .inner = 11008,
                                                          .layers = 36,
                                                          .heads = 16,
                                                          .kv_heads = 4,
                                                          .positions = 32768,
                                                          .padding = 128004};
    struct snug_decoder *d = r->config->settings;
    snug_read_decoder(r, &defaults);
    d->attention_bias = snug_read_bool(r, "attention_bias", false);
    d->mlp_bias = snug_read_bool(r, "mlp_bias", false);
    snug_read_rotation(r, 2e6);
    read_unrotated(r);
    const bool windows = snug_read_bool(r, "use_sliding_window", false);
    const bool has_window = snug_read_window(r, 0);
    for (int64_t i = 0; windows && has_window && i < r->config->num_hidden_layers; i++)
        if (snug_has_layer(d->unrotated, i)) snug_set_layer(d->sliding, i);
    snug_read_layer_types(r);
}

static const struct snug_gguf_form gguf = {
    .architecture = "smollm3", .activation = SNUG_SILU, .permuted = true, .unrotated = 4};

const struct snug_family snug_family_smollm3 = {SNUG_DECODER("smollm3", "SmolLM3", "SmolLM3"),
                                                .tokenizer_class = "TokenizersBackend", .read = read,
                                                .encode = snug_build_llama, .gguf = &gguf};
