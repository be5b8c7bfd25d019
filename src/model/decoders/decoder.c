/* SPDX-License-Identifier: Apache-2.0 */
#include "model/decoders/decoder.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "io/json.h"

const struct snug_decoder *snug_decoder_of(const struct snug_config *config) { return config->settings; }

/* Frequencies that earlier versions of transformers saved. */
const char *const snug_decoder_constants[] = {".rotary_emb.inv_freq", NULL};

/* ---- config.json ---------------------------------------------------------------------------------------------- */

static void refuse(struct snug_reading *r, const char *key, const char *why) {
    if (r->status == SNUG_OK) r->status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: %s %s", r->path, key, why);
}

/* null means the same as no value in a file of a family whose default is none. */
static void read_heads(struct snug_reading *r, const struct snug_decoder_defaults *defaults) {
    struct snug_config *c = r->config;
    struct snug_decoder *d = c->settings;
    const json_t *given = json_object_get(r->json, "num_key_value_heads");
    const int64_t heads = c->num_attention_heads;
    snug_read_size(r, "num_key_value_heads", given || !defaults->kv_heads ? heads : defaults->kv_heads, SNUG_HEADS_MOST,
                   &d->kv_heads);
    if (r->status == SNUG_OK && heads % d->kv_heads)
        refuse(r, "num_attention_heads", "is not a multiple of num_key_value_heads");
    const json_t *size = json_object_get(r->json, "head_dim");
    const bool derived = !defaults->head_dim && (!size || json_is_null(size));
    if (derived) snug_read_check_heads(r, "hidden_size", "num_attention_heads");
    if (r->status != SNUG_OK) return;
    snug_read_size(r, "head_dim", derived ? c->hidden_size / heads : defaults->head_dim, SNUG_DIMENSION_MOST,
                   &d->head_dim);
    if (d->head_dim > 2 * SNUG_ROTATION_PAIRS_MOST) refuse(r, "head_dim", "is larger than 512, which is not supported");
}

void snug_read_decoder(struct snug_reading *r, const struct snug_decoder_defaults *defaults) {
    struct snug_config *c = r->config;
    struct snug_decoder *d = c->settings;
    const int64_t most = SNUG_DIMENSION_MOST;
    snug_read_size(r, "hidden_size", defaults->hidden, most, &c->hidden_size);
    snug_read_size(r, "num_hidden_layers", defaults->layers, SNUG_LAYERS_MOST, &c->num_hidden_layers);
    snug_read_size(r, "num_attention_heads", defaults->heads, SNUG_HEADS_MOST, &c->num_attention_heads);
    snug_read_size(r, "intermediate_size", defaults->inner, most, &c->intermediate_size);
    snug_read_size(r, "vocab_size", defaults->vocabulary, SNUG_VOCABULARY_MOST, &c->vocab_size);
    snug_read_size(r, "max_position_embeddings", defaults->positions, most, &c->max_position_embeddings);
    read_heads(r, defaults);
    snug_read_real(r, "rms_norm_eps", defaults->eps > 0 ? defaults->eps : 1e-6, 0, 1, &c->layer_norm_eps);
    snug_read_real(r, "initializer_range", 0.02, 0, 1e6, &c->initializer_range);
    snug_read_padding(r, defaults->padding < c->vocab_size ? defaults->padding : -1);
    snug_read_dropout(r, "attention_dropout", 0, &c->attention_probs_dropout_prob);
    snug_read_function(r, defaults->activation_key ? defaults->activation_key : "hidden_act",
                       defaults->activation ? defaults->activation : "silu", &c->hidden_act, &c->hidden_act_name);
    d->scale = 1 / sqrt((double)d->head_dim);
    d->embedding_scale = d->block_scale = d->logits_divisor = 1;
}

void snug_read_rotation_of(struct snug_reading *r, double theta, const struct snug_decoder_defaults *of) {
    struct snug_decoder *d = r->config->settings;
    struct snug_rope_defaults defaults = {
        .head_dim = d->head_dim, .trained = of->trained, .older_longrope = of->older_longrope};
    snug_read_real(r, "rope_theta", theta, 1, 1e12, &defaults.theta);
    snug_read_real(r, "partial_rotary_factor", 1, 0, 1, &defaults.partial);
    const json_t *trained = json_object_get(r->json, "original_max_position_embeddings");
    if (trained && !json_is_null(trained))
        snug_read_size(r, "original_max_position_embeddings", 1, SNUG_DIMENSION_MOST, &defaults.trained);
    const char *name;
    const json_t *rope = snug_rope_dictionary(r, &name);
    snug_read_rope(r, rope, name, &defaults, &d->rope);
    d->sliding_rope = d->rope;
}

void snug_read_rotation(struct snug_reading *r, double theta) {
    snug_read_rotation_of(r, theta, &(struct snug_decoder_defaults){0});
}

void snug_read_rotations(struct snug_reading *r, double theta, const char *sliding_key, double sliding_theta) {
    struct snug_decoder *d = r->config->settings;
    const json_t *scaling = json_object_get(r->json, "rope_scaling"),
                 *both = json_object_get(r->json, "rope_parameters");
    struct snug_rope_defaults defaults = {.head_dim = d->head_dim, .partial = 1};
    snug_read_real(r, "rope_theta", theta, 1, 1e12, &defaults.theta);
    const bool scales = json_object_size(scaling) > 0;
    snug_read_rope(r, scales ? scaling : json_object_get(both, "full_attention"),
                   scales ? "rope_scaling" : "full_attention", &defaults, &d->rope);
    defaults.theta = sliding_theta;
    if (sliding_key) snug_read_real(r, sliding_key, sliding_theta, 1, 1e12, &defaults.theta);
    snug_read_rope(r, json_object_get(both, "sliding_attention"), "sliding_attention", &defaults, &d->sliding_rope);
}

void snug_read_cap(struct snug_reading *r, const char *key, double otherwise, double *out) {
    const json_t *given = json_object_get(r->json, key);
    *out = 0;
    if (given ? json_is_null(given) : otherwise == 0) return;
    snug_read_real(r, key, otherwise, 1e-6, 1e6, out);
}

bool snug_read_window(struct snug_reading *r, int64_t otherwise) {
    struct snug_decoder *d = r->config->settings;
    const json_t *given = json_object_get(r->json, "sliding_window");
    if (given ? json_is_null(given) : !otherwise) return false;
    snug_read_size(r, "sliding_window", otherwise, SNUG_DIMENSION_MOST, &d->window);
    return r->status == SNUG_OK;
}

bool snug_read_sliding(struct snug_reading *r, int64_t otherwise, int64_t full) {
    struct snug_decoder *d = r->config->settings;
    if (!snug_read_window(r, otherwise)) return false;
    for (int64_t i = 0; i < r->config->num_hidden_layers; i++)
        if (!full || (i + 1) % full) snug_set_layer(d->sliding, i);
    return true;
}

void snug_read_layer_types(struct snug_reading *r) {
    struct snug_config *c = r->config;
    struct snug_decoder *d = c->settings;
    const json_t *types = json_object_get(r->json, "layer_types");
    if (r->status != SNUG_OK || !types || json_is_null(types)) return;
    memset(d->sliding, 0, sizeof d->sliding);
    if ((int64_t)json_array_size(types) != c->num_hidden_layers) {
        r->status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: layer_types must name the type of each of %lld layers",
                              r->path, (long long)c->num_hidden_layers);
        return;
    }
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type && strcmp(type, "sliding_attention") == 0)
            snug_set_layer(d->sliding, i);
        else if (!type || strcmp(type, "full_attention") != 0)
            r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED,
                                  "%s: layer_types may only hold full_attention and sliding_attention", r->path);
        if (type && snug_has_layer(d->sliding, i) && !d->window)
            refuse(r, "layer_types", "names sliding_attention, and sliding_window is null");
        if (r->status != SNUG_OK) return;
    }
}

/* settings is zero before it is read, so its bytes are the same for the same values. */
void snug_identify_decoder(json_t **to, const struct snug_config *config) {
    const struct snug_decoder *d = snug_decoder_of(config);
    snug_json_add(to, "decoder", snug_json_hex(XXH3_64bits(d, sizeof *d)));
    snug_json_add(to, "residual_dropout", snug_json_number(config->mlp_dropout));
}

/* ---- the layers ----------------------------------------------------------------------------------------------- */

struct snug_attention_form snug_decoder_form(const struct snug_builder *b) {
    const struct snug_decoder *d = snug_decoder_of(b->config);
    const double scale = d->inverse_layers ? d->scale / (b->layer + 1) : d->scale;
    return (struct snug_attention_form){.heads = (int32_t)b->config->num_attention_heads,
                                        .kv_heads = (int32_t)d->kv_heads,
                                        .head_dim = (int32_t)d->head_dim,
                                        .before = snug_has_layer(d->sliding, b->layer) ? (int32_t)d->window - 1 : -1,
                                        .after = 0,
                                        .scale = (float)scale,
                                        .softcap = (float)d->softcap};
}

static struct snug_rotation rotation_of(const struct snug_builder *b) {
    const struct snug_decoder *d = snug_decoder_of(b->config);
    const struct snug_rope *rope = snug_has_layer(d->sliding, b->layer) ? &d->sliding_rope : &d->rope;
    if (snug_has_layer(d->unrotated, b->layer)) return (struct snug_rotation){0};
    return snug_rope_rotation(rope, b->program->longest);
}

struct snug_layer snug_llama_layer(const struct snug_config *config) {
    const struct snug_decoder *d = snug_decoder_of(config);
    return (struct snug_layer){.pre_norm = true,
                               .gated = true,
                               .rms = true,
                               .no_attention_bias = !d->attention_bias,
                               .no_ffn_bias = !d->mlp_bias,
                               .no_norm_bias = true,
                               .pooling = SNUG_POOL_LAST,
                               .attention_dropout = config->mlp_dropout,
                               .ffn_dropout = config->mlp_dropout,
                               .form = snug_decoder_form,
                               .rotation = rotation_of,
                               .layer = "layers",
                               .query = "self_attn.q_proj",
                               .key = "self_attn.k_proj",
                               .value = "self_attn.v_proj",
                               .separate = true,
                               .out = "self_attn.o_proj",
                               .attention_norm = "input_layernorm",
                               .gate = "mlp.gate_proj",
                               .up = "mlp.up_proj",
                               .down = "mlp.down_proj",
                               .ffn_norm = "post_attention_layernorm",
                               .final_norm = "norm"};
}

int32_t snug_build_words(struct snug_builder *b) {
    return snug_build_word_table(b, b->config->hidden_size, snug_model_name(b, b->config->family->word).text);
}

int32_t snug_build_decoder(struct snug_builder *b, const struct snug_layer *layer, int32_t *word) {
    *word = snug_build_words(b);
    return snug_build_layers(b, snug_embed_sum(b, *word, 0, 0, snug_decoder_of(b->config)->embedding_scale), layer);
}

int32_t snug_build_llama(struct snug_builder *b, int32_t *word) {
    const struct snug_layer layer = snug_llama_layer(b->config);
    return snug_build_decoder(b, &layer, word);
}

/* ---- heads ---------------------------------------------------------------------------------------------------- */

static const struct snug_language_model_names names = {.decoder = "lm_head"};

static void language_model(struct snug_builder *b, int32_t hidden, int32_t word) {
    const struct snug_config *c = b->config;
    const struct snug_decoder *d = snug_decoder_of(c);
    const size_t first = b->program->parameter_count;
    struct snug_affine decoder = {.weight = word};
    if (c->own_decoder) {
        decoder.weight = snug_build_table(b, c->vocab_size, c->hidden_size, -1, names.decoder);
        snug_build_mark_vocabulary(b);
    }
    snug_build_output_adapters(b, c->vocab_size, c->hidden_size, names.decoder, &decoder);
    snug_build_mark_head(b, first);
    const int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "predicting_tokens");
    const int32_t scaled =
        d->logits_divisor == 1 ? x : snug_scaled_sum(b, x, 0, 1 / d->logits_divisor, "scaled_tokens");
    const int32_t logits = snug_linear(b, scaled, decoder, "logits");
    if (d->final_softcap > 0) snug_softcap(b, logits, d->final_softcap);
    snug_build_loss(b, logits);
}

/* Over hidden [B,h], the last token of each sequence. */
static void classification_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    const size_t first = b->program->parameter_count;
    (void)word;
    struct snug_affine score = snug_build_linear(b, b->config->labels.count, b->config->hidden_size, "score", false);
    snug_build_mark_head(b, first);
    snug_build_loss(b, snug_linear(b, snug_gather(b, hidden, SNUG_EXTENT_ROWS, "score.input"), score, "logits"));
}

static const char *const prefixes[] = {"lm_head.", "score.", NULL};

const struct snug_heads snug_decoder_heads = {
    .build = {[SNUG_HEAD_SEQUENCE] = classification_head, [SNUG_HEAD_VOCABULARY] = language_model},
    .prefixes = prefixes,
    .language_model = &names};
const struct snug_heads snug_decoder_lm_head = {
    .build = {[SNUG_HEAD_VOCABULARY] = language_model}, .prefixes = prefixes, .language_model = &names};
