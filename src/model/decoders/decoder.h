/* SPDX-License-Identifier: Apache-2.0 */
/* What decoders share: how config.json is read, the layers of Llama, from which the other families' differ, and the
   heads. */
#ifndef SNUG_MODEL_DECODERS_DECODER_H
#define SNUG_MODEL_DECODERS_DECODER_H

#include "model/decoders/rope.h"
#include "model/layer.h"

/* config->settings of all decoders. */
struct snug_decoder {
    int64_t kv_heads, head_dim;
    int64_t window;                          /* of a sliding layer: the tokens that a query sees, itself included */
    uint64_t sliding[SNUG_LAYERS_MOST / 64]; /* bit i % 64 of i / 64: layer i has the window */
    uint64_t unrotated[SNUG_LAYERS_MOST / 64];
    struct snug_rope rope, sliding_rope;
    bool attention_bias, mlp_bias;
    double scale, softcap; /* of attention's scores */
    bool inverse_layers;   /* scores of layer i are divided by i + 1 */
    double embedding_scale;
    double block_scale;    /* of what a block adds to the sum */
    double logits_divisor; /* of the logits of tokens, and their cap, 0: none */
    double final_softcap;
};

static inline void snug_set_layer(uint64_t *layers, int64_t layer) { layers[layer / 64] |= (uint64_t)1 << layer % 64; }
static inline bool snug_has_layer(const uint64_t *layers, int64_t layer) {
    return layers[layer / 64] >> layer % 64 & 1;
}

/* The values of a file that leaves them out. 0: kv_heads: as many as heads; head_dim: hidden / heads. */
struct snug_decoder_defaults {
    int64_t vocabulary, hidden, inner, layers, heads, kv_heads, head_dim, positions;
    int64_t padding;                         /* -1: none */
    double eps;                              /* 0: 1e-6 */
    const char *activation, *activation_key; /* NULL: silu, hidden_act */
    int64_t trained;                         /* original_max_position_embeddings; 0: none */
    bool older_longrope;                     /* "su" and "yarn" are older names of longrope */
};

/* All settings under Llama's names but windows and rotations; all scales are 1, and no layer has a window.
 */
void snug_read_decoder(struct snug_reading *r, const struct snug_decoder_defaults *defaults);
/* The rotation of all layers, of a dictionary or the older keys; with defaults for original_max_position_embeddings. */
void snug_read_rotation(struct snug_reading *r, double theta);
void snug_read_rotation_of(struct snug_reading *r, double theta, const struct snug_decoder_defaults *of);
/* One of full layers, and one of sliding layers, whose theta is the key's of older files (NULL: none). */
void snug_read_rotations(struct snug_reading *r, double theta, const char *sliding_key, double sliding_theta);
/* A cap of values, above 0, or null: none. */
void snug_read_cap(struct snug_reading *r, const char *key, double otherwise, double *out);
/* The window of sliding layers, if the file has one; which layers have it is the caller's to set. */
bool snug_read_window(struct snug_reading *r, int64_t otherwise);
/* Reads the window, and sets it for all layers but every full-th (0: for all layers). Whether the file has one. */
bool snug_read_sliding(struct snug_reading *r, int64_t otherwise, int64_t full);
/* The file's layer_types, in place of what is set; absent or null: nothing changes. */
void snug_read_layer_types(struct snug_reading *r);
void snug_identify_decoder(json_t **to, const struct snug_config *config);

const struct snug_decoder *snug_decoder_of(const struct snug_config *config);
/* Layer b->layer's attention. */
struct snug_attention_form snug_decoder_form(const struct snug_builder *b);
/* Llama's layers. */
struct snug_layer snug_llama_layer(const struct snug_config *config);
/* The word table. */
int32_t snug_build_words(struct snug_builder *b);
/* The word table and the layers over its rows; Llama's layers. */
int32_t snug_build_decoder(struct snug_builder *b, const struct snug_layer *layer, int32_t *word);
int32_t snug_build_llama(struct snug_builder *b, int32_t *word);

/* The heads of all families: lm_head, which may be the word table, and score, on a sequence's last token. */
extern const struct snug_heads snug_decoder_heads, snug_decoder_lm_head; /* the latter: lm_head alone */

extern const char *const snug_decoder_constants[]; /* as in struct snug_family */

/* What most families have. */
#define SNUG_DECODER(type, title, class) SNUG_DECODER_WITH(type, title, class, snug_decoder_heads)
#define SNUG_DECODER_WITH(type, title, class, own_heads)                                                               \
    .model_type = (type), .name = (title), .prefix = "model.", .word = "embed_tokens", .class_name = (class),          \
    .causal = true, .one_type = true, .settings_size = sizeof(struct snug_decoder), .identify = snug_identify_decoder, \
    .constants = snug_decoder_constants, .heads = &(own_heads)

#endif
