/* SPDX-License-Identifier: Apache-2.0 */
/* The rotations of rotary position embeddings: transformers' rope types (modeling_rope_utils.py), with its names. */
#ifndef SNUG_MODEL_ROTATION_H
#define SNUG_MODEL_ROTATION_H

#include "program/program.h"

/* Rotates the first `channels` channels of a head, an even number of at most 2 SNUG_ROTATION_PAIRS_MOST, with the base
   theta; the channels c and c + channels / 2 are a pair. */
struct snug_rotation snug_rotation_default(int64_t channels, double theta);
struct snug_rotation snug_rotation_linear(int64_t channels, double theta, double factor);
/* Dynamic NTK: length is the longest text's, trained the number of positions that the model was trained with. */
struct snug_rotation snug_rotation_dynamic(int64_t channels, double theta, double factor, double length,
                                           double trained);
struct snug_rotation snug_rotation_llama3(int64_t channels, double theta, double factor, double low_freq_factor,
                                          double high_freq_factor, double trained);

/* YaRN (Peng et al., arXiv:2309.00071). */
struct snug_yarn {
    double factor, trained;        /* trained: original_max_position_embeddings */
    double beta_fast, beta_slow;   /* 32, 1 */
    double attention_factor;       /* 0: computed */
    double mscale, mscale_all_dim; /* 0: none; used if both are given */
    bool truncate;
};
struct snug_rotation snug_rotation_yarn(int64_t channels, double theta, const struct snug_yarn *yarn);
/* LongRoPE (Ding et al., arXiv:2402.13753): factors [channels / 2] are the short ones for texts of at most `trained`
   tokens, else the long ones. attention_factor 0: computed from factor. */
struct snug_rotation snug_rotation_longrope(int64_t channels, double theta, const double factors[], double factor,
                                            double trained, double attention_factor);

#endif
