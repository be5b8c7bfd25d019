/* SPDX-License-Identifier: Apache-2.0 */
/* DeBERTa-v2 and DeBERTa-v3 (He et al., arXiv:2006.03654, arXiv:2111.09543): BERT's encoder with disentangled
   attention, whose scores also compare queries and keys with embeddings of their relative position, which all layers
   share. */
#include <string.h>

#include "io/json.h"
#include "model/encoders/encoder.h"

enum { KERNEL_MOST = 63 };

struct settings {
    bool absolute;                   /* position_biased_input: a table of absolute positions, too */
    bool relative;                   /* relative_attention */
    bool keys, queries;              /* pos_att_type: c2p, p2c */
    bool shared;                     /* share_att_key: by the linears of keys and queries */
    bool normed;                     /* norm_rel_ebd */
    bool newer_head;                 /* not legacy */
    int32_t span, farthest;          /* of snug_position_row() */
    enum snug_activation activation; /* pooler_hidden_act */
    double pooler_dropout;
    int64_t kernel;                   /* conv_kernel_size; 0: no convolution */
    enum snug_activation convolution; /* conv_act */
};

static const struct settings *settings_of(const struct snug_config *config) { return config->settings; }

/* ---- config.json ---------------------------------------------------------------------------------------------- */

static void refuse(struct snug_reading *r, const char *key, const char *why) {
    if (r->status == SNUG_OK) r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: %s %s", r->path, key, why);
}

static bool is_named(const char *item, size_t length, const char *name) {
    while (length && *item == ' ') item++, length--;
    while (length && item[length - 1] == ' ') length--;
    return length == strlen(name) && strncasecmp(item, name, length) == 0;
}

/* Whether the member key names `name`: a list, or a text with bars between its items. Others than known and other are
   refused. */
static bool read_choice(struct snug_reading *r, const char *key, const char *name, const char *other) {
    const json_t *given = json_object_get(r->json, key), *item;
    bool found = false;
    size_t i;
    if (json_is_string(given)) {
        const char *text = json_string_value(given);
        for (;; text++) {
            const size_t length = strcspn(text, "|");
            found |= is_named(text, length, name);
            if (length && !is_named(text, length, name) && !is_named(text, length, other))
                refuse(r, key, "has an unknown item");
            text += length;
            if (!*text) return found;
        }
    }
    if (given && !json_is_null(given) && !json_is_array(given)) refuse(r, key, "must be a text or a list");
    json_array_foreach(given, i, item) {
        const char *text = json_is_string(item) ? json_string_value(item) : "?";
        found |= is_named(text, strlen(text), name);
        if (!is_named(text, strlen(text), name) && !is_named(text, strlen(text), other))
            refuse(r, key, "has an unknown item");
    }
    return found;
}

/* A whole number, where values below 1 mean none: 0. */
static int64_t read_number(struct snug_reading *r, const char *key) {
    int64_t value = 0;
    if (r->status == SNUG_OK) r->status = snug_json_int(r->ctx, r->path, r->json, key, 0, &value);
    if (value > SNUG_DIMENSION_MOST) refuse(r, key, "is too large");
    return value < 1 ? 0 : value;
}

static void read_positions(struct snug_reading *r) {
    struct snug_config *c = r->config;
    struct settings *s = c->settings;
    const int64_t buckets = read_number(r, "position_buckets");
    int64_t farthest = read_number(r, "max_relative_positions");
    s->absolute = snug_read_bool(r, "position_biased_input", true);
    s->relative = snug_read_bool(r, "relative_attention", false);
    s->keys = read_choice(r, "pos_att_type", "c2p", "p2c");
    s->queries = read_choice(r, "pos_att_type", "p2c", "c2p");
    s->shared = snug_read_bool(r, "share_att_key", false);
    s->normed = read_choice(r, "norm_rel_ebd", "layer_norm", "none");
    if (farthest == 0) farthest = c->max_position_embeddings;
    s->span = (int32_t)(buckets ? buckets : farthest);
    s->farthest = (int32_t)(buckets ? farthest : 0);
    if (!s->absolute) c->positions = SNUG_DIMENSION_MOST;
    if (s->relative && !s->keys && !s->queries)
        refuse(r, "pos_att_type", "is empty: relative_attention without c2p and p2c is not supported");
    if (!s->relative && s->normed) refuse(r, "norm_rel_ebd", "without relative_attention is not supported");
    if (s->relative && buckets == 1) refuse(r, "position_buckets", "must be at least 2");
    if (s->relative && buckets > 1 && farthest <= buckets / 2 + 1)
        refuse(r, "max_relative_positions", "must be larger than position_buckets / 2 + 1");
}

/* That of deberta-v2-xlarge. */
static void read_convolution(struct snug_reading *r) {
    struct settings *s = r->config->settings;
    s->kernel = read_number(r, "conv_kernel_size");
    if (!s->kernel) return;
    if (s->kernel > KERNEL_MOST) refuse(r, "conv_kernel_size", "is too large");
    if (s->kernel % 2 == 0) refuse(r, "conv_kernel_size", "is even: the convolution must keep a text's length");
    if (read_number(r, "conv_groups") > 1) refuse(r, "conv_groups", "other than 1 is not supported");
    snug_read_function(r, "conv_act", "tanh", &s->convolution, NULL);
}

static const struct snug_language_model_names legacy = {.dense = "cls.predictions.transform.dense",
                                                        .norm = "cls.predictions.transform.LayerNorm",
                                                        .decoder = "cls.predictions.decoder",
                                                        .bias = "cls.predictions.bias",
                                                        .decoder_bias = "cls.predictions.decoder.bias"};
/* That of DeBERTa's own checkpoints, which is always tied. */
static const struct snug_language_model_names newer = {.dense = "lm_predictions.lm_head.dense",
                                                       .norm = "lm_predictions.lm_head.LayerNorm",
                                                       .decoder = "lm_predictions.lm_head.decoder",
                                                       .bias = "lm_predictions.lm_head.bias",
                                                       .reads_words = true};

static void read(struct snug_reading *r) {
    struct snug_config *c = r->config;
    struct settings *s = c->settings;
    int64_t head, pooled;
    c->hidden_size = 1536;
    c->num_hidden_layers = c->num_attention_heads = 24;
    c->intermediate_size = 6144;
    c->vocab_size = 128100;
    c->max_position_embeddings = 512;
    c->layer_norm_eps = 1e-7;
    c->pad_token_id = 0;
    snug_read_encoder(r);
    c->one_type = c->type_vocab_size == 0;
    if (r->status != SNUG_OK) return;
    snug_read_size(r, "embedding_size", c->hidden_size, SNUG_DIMENSION_MOST, &c->embedding_size);
    snug_read_dropout(r, "cls_dropout", c->hidden_dropout_prob, &c->classifier_dropout);
    snug_read_dropout(r, "pooler_dropout", 0, &s->pooler_dropout);
    snug_read_function(r, "pooler_hidden_act", "gelu", &s->activation, NULL);
    snug_read_size(r, "pooler_hidden_size", c->hidden_size, SNUG_DIMENSION_MOST, &pooled);
    if (pooled != c->hidden_size) refuse(r, "pooler_hidden_size", "other than hidden_size is not supported");
    snug_read_size(r, "attention_head_size", c->hidden_size / c->num_attention_heads, SNUG_DIMENSION_MOST, &head);
    if (head != c->hidden_size / c->num_attention_heads)
        refuse(r, "attention_head_size", "other than hidden_size / num_attention_heads is not supported");
    read_convolution(r);
    s->newer_head = !snug_read_bool(r, "legacy", true);
    c->language_model = s->newer_head ? &newer : &legacy;
    read_positions(r);
}

static void identify(json_t **to, const struct snug_config *config) {
    const struct settings *s = settings_of(config);
    const int flags = s->absolute | s->relative << 1 | s->keys << 2 | s->queries << 3 | s->shared << 4 | s->normed << 5;
    snug_json_add(to, "positions", json_integer(flags));
    snug_json_add(to, "position_span", json_integer(s->span));
    snug_json_add(to, "position_farthest", json_integer(s->farthest));
    snug_json_add(to, "pooler_dropout", snug_json_number(s->pooler_dropout));
    snug_json_add(to, "pooler_activation", json_integer(s->activation));
    if (!s->kernel) return;
    snug_json_add(to, "conv_kernel_size", json_integer(s->kernel));
    snug_json_add(to, "conv_act", json_integer(s->convolution));
}

/* ---- the encoder ---------------------------------------------------------------------------------------------- */

/* Scores are over the root of a head's size times the number of their terms, even where there are no positions. */
static struct snug_attention_form form_of(const struct snug_builder *b) {
    const struct settings *s = settings_of(b->config);
    struct snug_attention_form form = snug_attention_form(b);
    form.scale = 1 / sqrtf((float)(form.head_dim * (1 + s->keys + s->queries)));
    form.farthest = s->farthest;
    return form;
}

/* The embeddings of relative positions. */
static int32_t build_positions(struct snug_builder *b) {
    const struct snug_config *c = b->config;
    const struct settings *s = settings_of(c);
    const struct snug_name table = snug_model_name(b, "encoder.rel_embeddings"),
                           norm = snug_model_name(b, "encoder.LayerNorm");
    const int32_t rows =
        snug_table(b, snug_build_table(b, 2 * (int64_t)s->span, c->hidden_size, -1, table.text), "relative_positions");
    if (!s->normed) return rows;
    return snug_norm(b, rows, snug_build_norm(b, c->hidden_size, norm.text, true), "relative_positions.norm");
}

static int32_t build_input(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    const struct snug_name words = snug_model_name(b, "embeddings.word_embeddings"),
                           positions = snug_model_name(b, "embeddings.position_embeddings"),
                           types = snug_model_name(b, "embeddings.token_type_embeddings"),
                           projection = snug_model_name(b, "embeddings.embed_proj"),
                           norm = snug_model_name(b, "embeddings.LayerNorm");
    const int64_t size = c->embedding_size;
    *word = snug_build_word_table(b, size, words.text);
    const int32_t position =
        settings_of(c)->absolute ? snug_build_table(b, c->max_position_embeddings, size, -1, positions.text) : 0;
    const int32_t type = c->type_vocab_size ? snug_build_table(b, c->type_vocab_size, size, -1, types.text) : 0;
    int32_t x = snug_embed_sum(b, *word, position, type, 1);
    if (size != c->hidden_size)
        x = snug_linear(b, x, snug_build_linear(b, c->hidden_size, size, projection.text, false),
                        "embeddings.projection");
    return snug_dropped_norm(b, x, snug_build_norm(b, c->hidden_size, norm.text, true), c->hidden_dropout_prob,
                             "embeddings.output");
}

/* norm(output + activation(dropout(convolution of the embeddings))) */
static int32_t add_convolution(struct snug_builder *b, int32_t embeddings, int32_t output) {
    const struct snug_config *c = b->config;
    const struct settings *s = settings_of(c);
    const struct snug_name name = snug_model_name(b, "encoder.conv.conv"),
                           norm_name = snug_model_name(b, "encoder.conv.LayerNorm");
    const struct snug_affine weights = snug_build_convolution(b, c->hidden_size, c->hidden_size, s->kernel, name.text);
    const struct snug_affine norm = snug_build_norm(b, c->hidden_size, norm_name.text, true);
    int32_t x = snug_convolution(b, embeddings, weights, "convolution");
    x = snug_dropout(b, x, c->hidden_dropout_prob, "convolution.dropout");
    x = snug_activated(b, x, s->convolution, "convolution.activation");
    return snug_residual_norm(b, x, output, 0, norm, "convolution.norm");
}

static int32_t encode(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    const struct settings *s = settings_of(c);
    struct snug_layer layer = snug_bert_layer(c);
    layer.query = "attention.self.query_proj";
    layer.key = "attention.self.key_proj";
    layer.value = "attention.self.value_proj";
    layer.form = form_of;
    if (s->kernel) layer.after_first = add_convolution;
    if (s->relative) {
        layer.positions = build_positions(b); /* first, since recomputation stores what a part computes last */
        layer.position_keys = s->keys;
        layer.position_queries = s->queries;
        layer.position_dropout = c->hidden_dropout_prob;
        layer.position_key = s->shared ? NULL : "attention.self.pos_key_proj";
        layer.position_query = s->shared ? NULL : "attention.self.pos_query_proj";
    }
    return snug_build_layers(b, build_input(b, word), &layer);
}

/* ---- heads ---------------------------------------------------------------------------------------------------- */

/* ContextPooler, dropout and the classifier, over hidden [B,h], the first token of each sequence. */
static void classification_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    const struct snug_config *c = b->config;
    const struct settings *s = settings_of(c);
    const size_t first = b->program->parameter_count;
    struct snug_affine pooler = snug_build_linear(b, c->hidden_size, c->hidden_size, "pooler.dense", true);
    struct snug_affine classifier = snug_build_linear(b, snug_sequence_scores(b), c->hidden_size, "classifier", true);
    snug_build_mark_head(b, first);
    (void)word;

    int32_t x = snug_gather(b, hidden, SNUG_EXTENT_ROWS, "pooler.input");
    x = snug_dropout(b, x, s->pooler_dropout, "pooler.input.dropout");
    x = snug_activated_linear(b, x, pooler, "pooler.dense", s->activation, "pooler.output");
    x = snug_dropout(b, x, c->classifier_dropout, "pooler.dropout");
    snug_build_loss(b, snug_linear(b, x, classifier, "logits"));
}

static void token_head(struct snug_builder *b, int32_t hidden, int32_t word) {
    (void)word;
    snug_build_token_classifier(b, hidden, b->config->hidden_dropout_prob);
}

static void masked_lm(struct snug_builder *b, int32_t hidden, int32_t word) {
    const struct snug_config *c = b->config;
    if (b->status == SNUG_OK && settings_of(c)->newer_head && (c->own_decoder || c->embedding_size != c->hidden_size))
        b->status = snug_fail(b->program->ctx, SNUG_E_UNSUPPORTED,
                              "config.json: masked LM with legacy false has the word table as its decoder: "
                              "tie_word_embeddings must be true, and embedding_size hidden_size");
    snug_build_masked_lm(b, hidden, word, c->hidden_act);
}

static const char *const prefixes[] = {
    "cls.", "lm_predictions.", "mask_predictions.", "pooler.", "classifier.", "qa_outputs.", NULL};

static const struct snug_heads heads = {.build = {[SNUG_HEAD_SEQUENCE] = classification_head,
                                                  [SNUG_HEAD_TOKEN] = token_head,
                                                  [SNUG_HEAD_VOCABULARY] = masked_lm,
                                                  [SNUG_HEAD_SPAN] = snug_build_span_head,
                                                  [SNUG_HEAD_CHOICE] = classification_head},
                                        .prefixes = prefixes,
                                        .language_model = &legacy};

#define SHAPE(hidden, layers, heads, intermediate)                                                                     \
    "{\"architectures\": [\"DebertaV2ForMaskedLM\"], \"model_type\": \"deberta-v2\", \"hidden_size\": " #hidden        \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads ", \"intermediate_size\": " #intermediate \
    ", \"vocab_size\": 128100, \"max_position_embeddings\": 512, \"type_vocab_size\": 0, \"layer_norm_eps\": 1e-7,"    \
    " \"hidden_dropout_prob\": 0.1, \"attention_probs_dropout_prob\": 0.1, \"initializer_range\": 0.02,"               \
    " \"hidden_act\": \"gelu\", \"pad_token_id\": 0, \"relative_attention\": true, \"position_buckets\": 256,"         \
    " \"norm_rel_ebd\": \"layer_norm\", \"share_att_key\": true, \"pos_att_type\": [\"p2c\", \"c2p\"],"                \
    " \"max_relative_positions\": -1, \"position_biased_input\": false, \"pooler_dropout\": 0,"                        \
    " \"pooler_hidden_act\": \"gelu\", \"legacy\": true, \"tie_word_embeddings\": true}"

static const struct snug_shape shapes[] = {
    {"deberta-v3-xsmall", SHAPE(384, 12, 6, 1536)},
    {"deberta-v3-small", SHAPE(768, 6, 12, 3072)},
    {"deberta-v3-base", SHAPE(768, 12, 12, 3072)},
    {"deberta-v3-large", SHAPE(1024, 24, 16, 4096)},
    {0},
};

const struct snug_family snug_family_deberta_v2 = {.model_type = "deberta-v2",
                                                   .name = "DeBERTa-v2",
                                                   .prefix = "deberta.",
                                                   .class_name = "DebertaV2",
                                                   .shapes = shapes,
                                                   .tokenizer_class = "DebertaV2Tokenizer",
                                                   .lora_targets = "query_proj value_proj",
                                                   .settings_size = sizeof(struct settings),
                                                   .read = read,
                                                   .identify = identify,
                                                   .encode = encode,
                                                   .heads = &heads};
