/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers of a transformer, built from one table of switches and names for each family:
 *
 *   after each sum (pre_norm false)              before each block (pre_norm true)
 *     y = norm(x + attention(x))                   s = x + attention(norm(x))
 *     z = norm(y + ffn(y))                         z = s + ffn(norm(s));  after the last layer: norm(z)
 *
 * With pre_norm the norms before blocks may be absent (attention_norm, ffn_norm NULL), and a block's output may have
 * one of its own: x + norm(attention(norm(x))) in Gemma 2, x + norm(attention(x)) in OLMo 2.
 */
#ifndef SNUG_MODEL_LAYER_H
#define SNUG_MODEL_LAYER_H

#include "model/build.h"

struct snug_layer {
    bool pre_norm;
    bool first_normed;     /* pre_norm: the first layer's attention reads x itself, since x is a norm already */
    bool gated;            /* up has two halves: ffn(y) = down(activation(one half) * the other) */
    bool transposed;       /* linears' weights are stored as [inputs, outputs] */
    bool rms, unit_offset; /* of its norms, as in struct snug_norm_form */
    bool no_attention_bias, no_ffn_bias, no_norm_bias;
    bool no_out_bias;          /* attention's output has none, whatever no_attention_bias is */
    bool outputs_by_depth;     /* weights of out and down are initialised with a deviation over sqrt(2 layers) */
    bool whole_norms;          /* query_norm and key_norm are of all heads together, not of each */
    enum snug_pooling pooling; /* the row that a sequence's head reads */
    double attention_dropout, activation_dropout, ffn_dropout; /* of attention's output, the activation, ffn's output */
    double block_scale; /* pre_norm: of what a block adds to the sum, without a dropout; 0: 1 */
    int32_t bias;       /* of all layers' attention, by relative position; or none */
    int32_t positions;  /* of whose rows, after a dropout, all layers' position keys and queries are linears; or none */
    bool position_keys, position_queries; /* which of them there are */
    double position_dropout;
    /* What is in place of the first layer's output from there on, from the layer's input and output; NULL: the output.
     */
    int32_t (*after_first)(struct snug_builder *b, int32_t input, int32_t output);
    /* The form of layer b->layer's attention; NULL: snug_attention_form(). */
    struct snug_attention_form (*form)(const struct snug_builder *b);
    /* The rotation of its queries and keys; NULL, or without pairs: none. */
    struct snug_rotation (*rotation)(const struct snug_builder *b);

    /* Names of parameters, below the family's prefix; all but final_norm below layer.NUMBER. */
    const char *layer;
    const char *query, *key, *value; /* key NULL: query names one parameter that has all three, one after another */
    const char *position_key, *position_query; /* those linears; NULL: key and query themselves */
    bool separate;                             /* in a training, query, key and value are tensors of their own */
    const char *query_norm, *key_norm;         /* of separate ones, before they are rotated; NULL: none */
    const char *out, *attention_norm, *up, *down, *ffn_norm;
    const char *gate; /* gated: the half that has the activation, if it is a parameter of its own; NULL: up has both */
    const char *attention_output_norm, *ffn_output_norm; /* of what a block adds, if pre_norm; NULL: none */
    const char *final_norm;                              /* if pre_norm */
};

/* All layers, over x [T,h]. Operations appended afterwards belong to the head. If the task's head reads one row of each
 * sequence, the result has these rows, [B,h]; else [T,h]. */
int32_t snug_build_layers(struct snug_builder *b, int32_t x, const struct snug_layer *layer);

#endif
