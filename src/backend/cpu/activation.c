/* SPDX-License-Identifier: Apache-2.0 */
/* a = f(u + b), element by element. */
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

/* f'(u), and f(u) in *a with the same bits that activation() gives: what both need is computed once. */
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

/* The operands of either operation; forward has no da and du. */
struct operands {
    struct snug_matrix a, du, da, u;
    const float *bias; /* or NULL */
};

static inline void *row_of(struct snug_matrix m, int64_t row) { return m.data ? matrix_at(m, row, 0) : NULL; }

/* A row. Inlined once for each f, so that the loop has no branch on it. */
static inline __attribute__((always_inline)) void apply(const struct operands *o, int64_t row, enum snug_activation f) {
    const enum snug_dtype dtype = o->u.dtype;
    const int64_t cols = o->u.cols;
    const float *bias = o->bias;
    const void *u = row_of(o->u, row), *da = row_of(o->da, row);
    void *a = row_of(o->a, row), *du = row_of(o->du, row);
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        vec x = vec_load(u, dtype, c, cols), y;
        if (bias) x += vec_load(bias, SNUG_F32, c, cols);
        if (da) {
            vec slope = derivative(f, x, &y);
            vec_store(du, dtype, c, cols, vec_load(da, dtype, c, cols) * slope);
        } else {
            y = activation(f, x);
        }
        if (a) vec_store(a, dtype, c, cols, y);
    }
}

static snug_status apply_all(const struct snug_run *run, const struct operands *o, enum snug_activation f) {
#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t row = 0; row < o->u.rows; row++) switch (f) {
        case SNUG_GELU: apply(o, row, SNUG_GELU); break;
        case SNUG_GELU_TANH: apply(o, row, SNUG_GELU_TANH); break;
        case SNUG_RELU: apply(o, row, SNUG_RELU); break;
        case SNUG_SILU: apply(o, row, SNUG_SILU); break;
        case SNUG_TANH: apply(o, row, SNUG_TANH); break;
        }
    return SNUG_OK;
}

snug_status SNUG_KERNEL(activation)(struct snug_run *run, const struct snug_op *op) {
    const struct operands o = {.a = snug_matrix_of(run, op->out[0]),
                               .u = snug_matrix_of(run, op->in[0]),
                               .bias = snug_run_data(run, op->in[1])};
    return apply_all(run, &o, op->activation);
}

snug_status SNUG_KERNEL(activation_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct operands o = {.a = snug_matrix_of(run, op->out[1]),
                               .du = snug_matrix_of(run, op->out[0]),
                               .da = snug_matrix_of(run, op->in[0]),
                               .u = snug_matrix_of(run, op->in[1]),
                               .bias = snug_run_data(run, op->in[2])};
    return apply_all(run, &o, op->activation);
}
