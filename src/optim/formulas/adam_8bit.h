/* SPDX-License-Identifier: Apache-2.0 */
/* One step of Adam with 8-bit states, between the old codes and the new ones: see optimizers/adam_8bit.c, formula.h. */
#ifndef SNUG_OPTIM_FORMULAS_ADAM_8BIT_H
#define SNUG_OPTIM_FORMULAS_ADAM_8BIT_H

#include "optim/formulas/formula.h"

/* The states of a block have these scales: absmax * beta. */
struct snug_adam_8bit_scales {
    float m, v;
};
static inline struct snug_adam_8bit_scales snug_adam_8bit_scales(const struct snug_adam_8bit_numbers *s, float absmax_m,
                                                                 float absmax_v) {
    struct snug_adam_8bit_scales scales;
    scales.m = absmax_m * s->beta1;
    scales.v = absmax_v * s->beta2;
    return scales;
}

/* g with L2 decay. Not if that is 0: adding 0 p would lose the sign of -0. */
static inline SNUG_REAL snug_adam_8bit_gradient(const struct snug_adam_8bit_numbers *s, SNUG_REAL p, SNUG_REAL g) {
    return s->l2 != 0 ? g + s->l2 * p : g;
}
/* The new states, from the values of the old codes in the map. */
static inline SNUG_REAL snug_adam_8bit_mean(const struct snug_adam_8bit_numbers *s, SNUG_REAL old, float scale,
                                            SNUG_REAL g) {
    return old * scale + g * s->rest1;
}
static inline SNUG_REAL snug_adam_8bit_square(const struct snug_adam_8bit_numbers *s, SNUG_REAL old, float scale,
                                              SNUG_REAL g) {
    return old * scale + g * s->rest2 * g;
}
/* The new p. A GPU computes a reciprocal faster than a quotient, and this kernel is bound by its instructions. */
static inline SNUG_REAL snug_adam_8bit_step(const struct snug_adam_8bit_numbers *s, SNUG_REAL p, SNUG_REAL m,
                                            SNUG_REAL v) {
    return (p + s->rate * m * (1.0f / (SNUG_REAL_ROOT(v) + s->epsilon))) * s->keep;
}

#endif
