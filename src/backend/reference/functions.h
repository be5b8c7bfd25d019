/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions and their derivatives. */
#ifndef SNUG_BACKEND_REFERENCE_FUNCTIONS_H
#define SNUG_BACKEND_REFERENCE_FUNCTIONS_H

#include "backend/reference/reference.h"

/* sqrt(2 / pi) and the cubic's weight of the tanh approximation: Hendrycks and Gimpel, arXiv:1606.08415 */
static const double gelu_scale = 0.7978845608028654, gelu_cubic = 0.044715;

static inline double sigmoid(double u) { return 1 / (1 + exp(-u)); }

static inline double activation(enum snug_activation f, double u) {
    switch (f) {
    case SNUG_GELU: return u * 0.5 * erfc(-u * M_SQRT1_2); /* u times the normal distribution function */
    case SNUG_GELU_TANH: return 0.5 * u * (1 + tanh(gelu_scale * (u + gelu_cubic * u * u * u)));
    case SNUG_RELU: return u > 0 ? u : 0;
    case SNUG_SILU: return u * sigmoid(u);
    case SNUG_TANH: return tanh(u);
    }
    return NAN;
}

static inline double derivative(enum snug_activation f, double u) {
    switch (f) {
    case SNUG_GELU: return 0.5 * erfc(-u * M_SQRT1_2) + u * exp(-0.5 * u * u) * 0.5 * M_2_SQRTPI * M_SQRT1_2;
    case SNUG_GELU_TANH: {
        double t = tanh(gelu_scale * (u + gelu_cubic * u * u * u));
        return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * gelu_scale * (1 + 3 * gelu_cubic * u * u);
    }
    case SNUG_RELU: return u > 0 ? 1 : 0;
    case SNUG_SILU: return sigmoid(u) * (1 + u * (1 - sigmoid(u)));
    case SNUG_TANH: return 1 - tanh(u) * tanh(u);
    }
    return NAN;
}

#endif
