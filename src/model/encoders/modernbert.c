/* SPDX-License-Identifier: Apache-2.0 */
/* ModernBERT (Warner et al., arXiv:2412.13663): pre-norm layers with rotated queries and keys and a gated feed-forward
   network; two of three layers use local attention. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "io/json.h"
#include "model/encoders/encoder.h"
#include "model/rotation.h"

struct settings {
    bool norm_bias, attention_bias, mlp_bias, decoder_bias, classifier_bias;
    enum snug_pooling pooling; /* what its classifier reads */
    enum snug_activation classifier_activation;
    int32_t window;                        /* positions to each side that a local layer attends to */
    float global_theta, local_theta;       /* bases of the rotary position embeddings */
    uint64_t local[SNUG_LAYERS_MOST / 64]; /* bit i % 64 of i / 64: layer i is local */
};
static bool is_local(const struct settings *settings, int64_t layer) {
    return settings->local[layer / 64] >> layer % 64 & 1;
}

static const struct settings *settings_of(const struct snug_config *config) { return config->settings; }

/* ---- config.json ---------------------------------------------------------------------------------------------- */

static void refuse(struct snug_reading *r, const char *key, const char *why) {
    if (r->status == SNUG_OK) r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: %s %s", r->path, key, why);
}

static const char *const attentions[] = {"full_attention", "sliding_attention"};

/* *theta, if rope (of name) has one. "type" is "rope_type" of older versions. */
static void read_rope(struct snug_reading *r, const json_t *rope, const char *name, double *theta) {
    struct snug_reading own = *r;
    const char *kind = "default";
    own.json = rope;
    if (r->status != SNUG_OK || !rope || json_is_null(rope)) return;
    if (!json_is_object(rope)) {
        refuse(r, name, "must be an object");
        return;
    }
    own.status =
        snug_json_string(r->ctx, r->path, rope, json_object_get(rope, "rope_type") ? "rope_type" : "type", kind, &kind);
    snug_read_real(&own, "rope_theta", *theta, 1, 1e12, theta);
    r->status = own.status;
    if (r->status == SNUG_OK && strcmp(kind, "default") != 0)
        r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: rope_type %s of %s is not supported (default is)",
                              r->path, kind, name);
}

/* The rotary base of the layers of a type, as in transformers 5: from "rope_scaling", "rope_parameters" or the older
   key, in this order. */
static void read_theta(struct snug_reading *r, const char *type, const char *key, double otherwise, float *out) {
    double theta = 0;
    snug_read_real(r, key, otherwise, 1, 1e12, &theta);
    read_rope(r, json_object_get(json_object_get(r->json, "rope_parameters"), type), type, &theta);
    read_rope(r, json_object_get(r->json, "rope_scaling"), "rope_scaling", &theta);
    *out = (float)theta;
}

/* Flat parameters, the same for all layers, are other families'. */
static void check_rope_parameters(struct snug_reading *r) {
    const json_t *parameters = json_object_get(r->json, "rope_parameters");
    const char *key;
    json_t *value;
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        refuse(r, "rope_parameters", "must be an object");
    json_object_foreach((json_t *)(uintptr_t)parameters, key, value) {
        if (strcmp(key, attentions[0]) != 0 && strcmp(key, attentions[1]) != 0)
            refuse(r, "rope_parameters", "may only hold full_attention and sliding_attention");
    }
}

static void set_local(struct settings *m, int64_t layer) { m->local[layer / 64] |= (uint64_t)1 << layer % 64; }

/* "layer_types" as transformers 5 writes it, or one global layer in every global_attn_every_n_layers. */
static void read_layer_types(struct snug_reading *r) {
    struct snug_config *c = r->config;
    const json_t *types = json_object_get(r->json, "layer_types");
    int64_t every = 3;
    snug_read_size(r, "global_attn_every_n_layers", every, SNUG_LAYERS_MOST, &every);
    if (r->status != SNUG_OK) return;
    const bool listed = types && !json_is_null(types);
    if (listed && (int64_t)json_array_size(types) != c->num_hidden_layers) {
        r->status = snug_fail(r->ctx, SNUG_E_INPUT, "%s: layer_types must name the type of each of %lld layers",
                              r->path, (long long)c->num_hidden_layers);
        return;
    }
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const char *type = listed ? json_string_value(json_array_get(types, (size_t)i)) : attentions[i % every != 0];
        if (type && strcmp(type, attentions[1]) == 0)
            set_local(c->settings, i);
        else if (!type || (strcmp(type, attentions[0]) != 0 && strcmp(type, "attention") != 0)) /* an older name */
            refuse(r, "layer_types", "may only hold full_attention and sliding_attention");
    }
}

static const char *const poolings[] = {[SNUG_POOL_FIRST] = "cls", [SNUG_POOL_MEAN] = "mean"};

static void read_pooling(struct snug_reading *r) {
    const char *pooling = poolings[SNUG_POOL_FIRST];
    if (r->status == SNUG_OK)
        r->status = snug_json_string(r->ctx, r->path, r->json, "classifier_pooling", pooling, &pooling);
    struct settings *m = r->config->settings;
    m->pooling = strcmp(pooling, poolings[SNUG_POOL_MEAN]) == 0 ? SNUG_POOL_MEAN : SNUG_POOL_FIRST;
    if (strcmp(pooling, poolings[m->pooling]) != 0) refuse(r, "classifier_pooling", "is neither cls nor mean");
}

static void read_attention(struct snug_reading *r) {
    struct snug_config *c = r->config;
    struct settings *m = c->settings;
    int64_t local = 128, side = 0;
    snug_read_size(r, "local_attention", local, SNUG_DIMENSION_MOST, &local);
    if (local < 2) refuse(r, "local_attention", "must be at least 2");
    snug_read_size(r, "sliding_window", local / 2, SNUG_DIMENSION_MOST, &side); /* to each side */
    if (r->status == SNUG_OK && side != local / 2 && json_object_get(r->json, "local_attention"))
        snug_log(r->ctx, SNUG_LOG_WARNING,
                 "%s: local_attention is %lld, but sliding_window %lld: as transformers, using sliding_window", r->path,
                 (long long)local, (long long)side);
    m->window = (int32_t)side;
    check_rope_parameters(r);
    read_theta(r, "full_attention", "global_rope_theta", 160000, &m->global_theta);
    read_theta(r, "sliding_attention", "local_rope_theta", 10000, &m->local_theta);
    read_layer_types(r);
    if (r->status != SNUG_OK) return;
    int64_t size = c->hidden_size / c->num_attention_heads, rotated;
    snug_read_size(r, "head_dim", size, SNUG_DIMENSION_MOST, &rotated);
    if (rotated != size) refuse(r, "head_dim", "must be hidden_size / num_attention_heads");
    if (r->status == SNUG_OK && size % 2)
        refuse(r, "num_attention_heads", "gives heads of an odd size, which rotary embeddings do not support");
    if (r->status == SNUG_OK && size > 2 * SNUG_ROTATION_PAIRS_MOST)
        refuse(r, "num_attention_heads", "gives heads of more than 512 channels");
}

static void read(struct snug_reading *r) {
    struct snug_config *c = r->config;
    struct settings *m = c->settings;
    const int64_t most = SNUG_DIMENSION_MOST;
    snug_read_size(r, "hidden_size", 768, most, &c->hidden_size);
    snug_read_size(r, "num_hidden_layers", 22, SNUG_LAYERS_MOST, &c->num_hidden_layers);
    snug_read_size(r, "num_attention_heads", 12, SNUG_HEADS_MOST, &c->num_attention_heads);
    snug_read_size(r, "intermediate_size", 1152, most, &c->intermediate_size);
    snug_read_size(r, "vocab_size", 50368, SNUG_VOCABULARY_MOST, &c->vocab_size);
    snug_read_size(r, "max_position_embeddings", 8192, most, &c->max_position_embeddings);
    snug_read_check_heads(r, "hidden_size", "num_attention_heads");
    snug_read_real(r, "norm_eps", 1e-5, 0, 1, &c->layer_norm_eps);
    snug_read_real(r, "initializer_range", 0.02, 0, 1e6, &c->initializer_range);
    if (c->vocab_size > 50283 || json_object_get(r->json, "pad_token_id"))
        snug_read_padding(r, 50283);
    else
        c->pad_token_id = -1; /* the default is an id of the full vocabulary */
    snug_read_dropout(r, "embedding_dropout", 0, &c->hidden_dropout_prob);
    snug_read_dropout(r, "attention_dropout", 0, &c->attention_probs_dropout_prob);
    snug_read_dropout(r, "mlp_dropout", 0, &c->mlp_dropout);
    snug_read_dropout(r, "classifier_dropout", 0, &c->classifier_dropout);
    snug_read_activation(r, "hidden_activation");
    snug_read_function(r, "classifier_activation", "gelu", &m->classifier_activation, NULL);
    m->norm_bias = snug_read_bool(r, "norm_bias", false);
    m->attention_bias = snug_read_bool(r, "attention_bias", false);
    m->mlp_bias = snug_read_bool(r, "mlp_bias", false);
    m->decoder_bias = snug_read_bool(r, "decoder_bias", true);
    m->classifier_bias = snug_read_bool(r, "classifier_bias", false);
    read_pooling(r);
    read_attention(r);
}

static void identify(json_t **to, const struct snug_config *config) {
    const struct settings *m = settings_of(config);
    snug_json_add(to, "local_attention", json_integer(2 * (json_int_t)m->window));
    snug_json_add(to, "local_layers", snug_json_hex(XXH3_64bits(m->local, sizeof m->local)));
    snug_json_add(to, "global_rope_theta", snug_json_number((double)m->global_theta));
    snug_json_add(to, "local_rope_theta", snug_json_number((double)m->local_theta));
    snug_json_add(to, "mlp_dropout", snug_json_number(config->mlp_dropout));
    snug_json_add(to, "classifier_activation", json_integer(m->classifier_activation));
    snug_json_add(to, "classifier_pooling", json_string(poolings[m->pooling]));
}

/* ---- the encoder ---------------------------------------------------------------------------------------------- */

static struct snug_attention_form form_of(const struct snug_builder *b) {
    const struct settings *m = settings_of(b->config);
    struct snug_attention_form form = snug_attention_form(b);
    if (is_local(m, b->layer)) form.before = form.after = m->window;
    return form;
}

static struct snug_rotation rotation_of(const struct snug_builder *b) {
    const struct snug_config *c = b->config;
    const struct settings *m = settings_of(c);
    return snug_rotation_default(c->hidden_size / c->num_attention_heads,
                                 (double)(is_local(m, b->layer) ? m->local_theta : m->global_theta));
}

static int32_t encode(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    const struct settings *m = settings_of(c);
    const struct snug_layer layer = {.pre_norm = true,
                                     .first_normed = true,
                                     .gated = true,
                                     .no_attention_bias = !m->attention_bias,
                                     .no_ffn_bias = !m->mlp_bias,
                                     .no_norm_bias = !m->norm_bias,
                                     .pooling = m->pooling,
                                     .attention_dropout = c->attention_probs_dropout_prob,
                                     .activation_dropout = c->mlp_dropout,
                                     .form = form_of,
                                     .rotation = rotation_of,
                                     .layer = "layers",
                                     .query = "attn.Wqkv",
                                     .out = "attn.Wo",
                                     .attention_norm = "attn_norm",
                                     .up = "mlp.Wi",
                                     .down = "mlp.Wo",
                                     .ffn_norm = "mlp_norm",
                                     .final_norm = "final_norm"};
    *word = snug_build_word_table(b, c->hidden_size, snug_model_name(b, "embeddings.tok_embeddings").text);
    const struct snug_affine norm =
        snug_build_norm(b, c->hidden_size, snug_model_name(b, "embeddings.norm").text, m->norm_bias);
    return snug_build_layers(b, snug_embed_normed(b, *word, 0, 0, norm), &layer);
}

/* ---- heads ---------------------------------------------------------------------------------------------------- */

/* norm(activation(dense(row))) of the rows that have a loss */
static int32_t prediction_head(struct snug_builder *b, int32_t hidden) {
    const struct snug_config *c = b->config;
    const struct settings *m = settings_of(c);
    struct snug_affine dense = snug_build_linear(b, c->hidden_size, c->hidden_size, "head.dense", m->classifier_bias);
    struct snug_affine norm = snug_build_norm(b, c->hidden_size, "head.norm", m->norm_bias);
    const int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "head.input");
    const int32_t a = snug_activated_linear(b, x, dense, "head.dense", m->classifier_activation, "head.activation");
    return snug_norm(b, a, norm, "head.output");
}

static const struct snug_language_model_names names = {
    .dense = "head.dense", .norm = "head.norm", .decoder = "decoder", .bias = "decoder.bias"};

static void masked_lm(struct snug_builder *b, int32_t hidden, int32_t word) {
    const struct snug_config *c = b->config;
    const size_t first = b->program->parameter_count;
    const int32_t x = prediction_head(b, hidden);
    struct snug_affine decoder = {.weight = word};
    if (c->own_decoder) {
        decoder.weight = snug_build_table(b, c->vocab_size, c->hidden_size, -1, names.decoder);
        snug_build_mark_vocabulary(b);
    }
    if (settings_of(c)->decoder_bias) {
        decoder.bias = snug_build_bias(b, c->vocab_size, names.bias);
        snug_build_mark_vocabulary(b);
    }
    snug_build_output_adapters(b, c->vocab_size, c->hidden_size, names.decoder, &decoder);
    snug_build_mark_head(b, first);
    snug_build_loss(b, snug_linear(b, x, decoder, "logits"));
}

/* Classifies a sequence, or each token. */
static void classify(struct snug_builder *b, int32_t hidden, int64_t classes) {
    const struct snug_config *c = b->config;
    const size_t first = b->program->parameter_count;
    const int32_t x = prediction_head(b, hidden);
    struct snug_affine classifier = snug_build_linear(b, classes, c->hidden_size, "classifier", true);
    snug_build_mark_head(b, first);
    const int32_t dropped = snug_dropout(b, x, c->classifier_dropout, "head.dropout");
    snug_build_loss(b, snug_linear(b, dropped, classifier, "logits"));
}

static void classification_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    classify(b, hidden, snug_sequence_scores(b));
}

static void span_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    classify(b, hidden, SNUG_SPAN_SCORES);
}

static const char *const prefixes[] = {"head.", "decoder.", "classifier.", NULL};

static const struct snug_heads heads = {.build = {[SNUG_HEAD_SEQUENCE] = classification_head,
                                                  [SNUG_HEAD_TOKEN] = classification_head,
                                                  [SNUG_HEAD_VOCABULARY] = masked_lm,
                                                  [SNUG_HEAD_SPAN] = span_head,
                                                  [SNUG_HEAD_CHOICE] = classification_head},
                                        .prefixes = prefixes,
                                        .language_model = &names};

#define SHAPE(hidden, layers, heads, intermediate)                                                                     \
    "{\"architectures\": [\"ModernBertForMaskedLM\"], \"model_type\": \"modernbert\", \"hidden_size\": " #hidden       \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads ", \"intermediate_size\": " #intermediate \
    ", \"vocab_size\": 50368, \"max_position_embeddings\": 8192, \"norm_eps\": 1e-5, \"local_attention\": 128,"        \
    " \"global_attn_every_n_layers\": 3, \"global_rope_theta\": 160000, \"local_rope_theta\": 10000,"                  \
    " \"initializer_range\": 0.02, \"hidden_activation\": \"gelu\", \"classifier_pooling\": \"mean\","                 \
    " \"pad_token_id\": 50283, \"tie_word_embeddings\": true}"

static const struct snug_shape shapes[] = {
    {"ModernBERT-base", SHAPE(768, 22, 12, 1152)},
    {"ModernBERT-large", SHAPE(1024, 28, 16, 2624)},
    {0},
};

const struct snug_family snug_family_modernbert = {.model_type = "modernbert",
                                                   .name = "ModernBERT",
                                                   .prefix = "model.",
                                                   .word = "embeddings.tok_embeddings",
                                                   .class_name = "ModernBert",
                                                   .shapes = shapes,
                                                   .one_type = true,
                                                   .settings_size = sizeof(struct settings),
                                                   .tokenizer_class = "TokenizersBackend",
                                                   .keeps_tokenizer_class = true,
                                                   .read = read,
                                                   .identify = identify,
                                                   .encode = encode,
                                                   .heads = &heads};
