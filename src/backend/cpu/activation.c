/* SPDX-License-Identifier: Apache-2.0 */
/* a = f(u), element by element. */
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

static inline vec derivative(enum snug_activation f, vec u) {
    const float density = 0.3989422804014327f; /* 1 / sqrt(2 pi) */
    vec bell, s;
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

/* Elements first … end - 1 of tensors of n: a = f(u), or with da given, a = da f'(u). Inlined once for each f, so that
   the loop has no branch on it. */
static inline __attribute__((always_inline)) void apply(struct matrix a, struct matrix da, struct matrix u,
                                                        int64_t first, int64_t end, enum snug_activation f) {
    for (int64_t i = first; i < end; i += VEC_LANES) {
        vec x = vec_load(u.data, u.dtype, i, end);
        vec y = da.data ? vec_load(da.data, da.dtype, i, end) * derivative(f, x) : activation(f, x);
        vec_store(a.data, a.dtype, i, end, y);
    }
}

static void apply_all(const struct snug_run *run, struct matrix a, struct matrix da, struct matrix u,
                      enum snug_activation f) {
    const int64_t n = u.rows * u.cols, block = 4096;

#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t first = 0; first < n; first += block) {
        int64_t end = n - first < block ? n : first + block;
        switch (f) {
        case SNUG_GELU: apply(a, da, u, first, end, SNUG_GELU); break;
        case SNUG_GELU_TANH: apply(a, da, u, first, end, SNUG_GELU_TANH); break;
        case SNUG_RELU: apply(a, da, u, first, end, SNUG_RELU); break;
        case SNUG_SILU: apply(a, da, u, first, end, SNUG_SILU); break;
        case SNUG_TANH: apply(a, da, u, first, end, SNUG_TANH); break;
        }
    }
}

snug_status SNUG_KERNEL(activation)(struct snug_run *run, const struct snug_op *op) {
    apply_all(run, matrix_of(run, op->out[0]), (struct matrix){0}, matrix_of(run, op->in[0]), op->activation);
    return SNUG_OK;
}

snug_status SNUG_KERNEL(activation_backward)(struct snug_run *run, const struct snug_op *op) {
    apply_all(run, matrix_of(run, op->out[0]), matrix_of(run, op->in[0]), matrix_of(run, op->in[1]), op->activation);
    return SNUG_OK;
}
