/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions and their derivatives. */
#ifndef SNUG_BACKEND_CPU_FUNCTIONS_H
#define SNUG_BACKEND_CPU_FUNCTIONS_H

#include "backend/cpu/rows.h"

/* sqrt(2 / pi) and the cubic's weight of the tanh approximation: Hendrycks and Gimpel, arXiv:1606.08415. Its
   (1 + tanh(t)) / 2 is sigmoid(2 t). */
static const float gelu_scale = 0.7978845608028654f, gelu_cubic = 0.044715f;

static inline vec activation(enum snug_activation f, vec u) {
    vec bell;
    switch (f) {
    case SNUG_GELU: return u * vec_normal(u, &bell);
    case SNUG_GELU_TANH: return u * vec_sigmoid(2 * gelu_scale * u * vec_fma(gelu_cubic * u, u, vec_all(1)));
    case SNUG_RELU: return vec_max(vec_all(0), u);
    case SNUG_SILU: return u * vec_sigmoid(u);
    case SNUG_TANH: return vec_tanh(u);
    }
    return u;
}

/* f'(u), and f(u) in *a with the bits of activation(): common subexpressions are computed once. */
static inline vec derivative(enum snug_activation f, vec u, vec *a) {
    const float density = 0.3989422804014327f; /* 1 / sqrt(2 pi) */
    vec bell, s;
    *a = activation(f, u);
    switch (f) {
    case SNUG_GELU: s = vec_normal(u, &bell); return vec_fma(u * density, bell, s);
    case SNUG_GELU_TANH:
        s = vec_sigmoid(2 * gelu_scale * u * vec_fma(gelu_cubic * u, u, vec_all(1)));
        return vec_fma(s * (1 - s), 2 * gelu_scale * u * vec_fma(3 * gelu_cubic * u, u, vec_all(1)), s);
    case SNUG_RELU: return vec_select((vec_int)(u > 0), vec_all(1), vec_all(0));
    case SNUG_SILU: s = vec_sigmoid(u); return s * vec_fma(u, 1 - s, vec_all(1));
    case SNUG_TANH: s = vec_tanh(u); return vec_fma(-s, s, vec_all(1));
    }
    return u;
}

/* apply(o, row, f), inlined once for each f. */
#define APPLY_FUNCTION(f, o, row)                                                                                      \
    switch (f) {                                                                                                       \
    case SNUG_GELU: apply(o, row, SNUG_GELU); break;                                                                   \
    case SNUG_GELU_TANH: apply(o, row, SNUG_GELU_TANH); break;                                                         \
    case SNUG_RELU: apply(o, row, SNUG_RELU); break;                                                                   \
    case SNUG_SILU: apply(o, row, SNUG_SILU); break;                                                                   \
    case SNUG_TANH: apply(o, row, SNUG_TANH); break;                                                                   \
    }

#endif
