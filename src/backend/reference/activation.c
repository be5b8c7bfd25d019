/* SPDX-License-Identifier: Apache-2.0 */
/* a = f(u + b), element by element. */
#include "backend/reference/reference.h"

/* sqrt(2 / pi) and the cubic's weight of the tanh approximation: Hendrycks and Gimpel, arXiv:1606.08415 */
static const double gelu_scale = 0.7978845608028654, gelu_cubic = 0.044715;

static double sigmoid(double u) { return 1 / (1 + exp(-u)); }

static double activation(enum snug_activation f, double u) {
    switch (f) {
    case SNUG_GELU: return u * 0.5 * erfc(-u * M_SQRT1_2); /* u times the normal distribution function */
    case SNUG_GELU_TANH: return 0.5 * u * (1 + tanh(gelu_scale * (u + gelu_cubic * u * u * u)));
    case SNUG_RELU: return u > 0 ? u : 0;
    case SNUG_SILU: return u * sigmoid(u);
    case SNUG_TANH: return tanh(u);
    }
    return NAN;
}

static double derivative(enum snug_activation f, double u) {
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

/* The argument of f: u with its column's bias. */
static double biased(struct snug_matrix u, struct snug_matrix b, int64_t row, int64_t c) {
    return load(u, row, c) + (b.data ? load(b, 0, c) : 0);
}

snug_status snug_reference_activation(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix u = snug_matrix_of(run, op->in[0]), b = snug_matrix_of(run, op->in[1]);
    struct snug_matrix a = snug_matrix_of(run, op->out[0]);
    for (int64_t row = 0; row < u.rows; row++)
        for (int64_t c = 0; c < u.cols; c++) store(a, row, c, activation(op->activation, biased(u, b, row, c)));
    return SNUG_OK;
}

snug_status snug_reference_activation_backward(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix da = snug_matrix_of(run, op->in[0]), u = snug_matrix_of(run, op->in[1]);
    struct snug_matrix b = snug_matrix_of(run, op->in[2]);
    struct snug_matrix du = snug_matrix_of(run, op->out[0]), a = snug_matrix_of(run, op->out[1]);
    for (int64_t row = 0; row < u.rows; row++)
        for (int64_t c = 0; c < u.cols; c++) {
            const double x = biased(u, b, row, c);
            store(du, row, c, load(da, row, c) * derivative(op->activation, x));
            if (a.data) store(a, row, c, activation(op->activation, x));
        }
    return SNUG_OK;
}
