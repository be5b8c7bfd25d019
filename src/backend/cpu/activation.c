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
};

/* Elements first … end - 1. Inlined once for each f, so that the loop has no branch on it. */
static inline __attribute__((always_inline)) void apply(const struct operands *o, int64_t first, int64_t end,
                                                        enum snug_activation f) {
    for (int64_t i = first; i < end; i += VEC_LANES) {
        vec u = vec_load(o->u.data, o->u.dtype, i, end), a;
        if (o->da.data) {
            vec slope = derivative(f, u, &a);
            vec_store(o->du.data, o->du.dtype, i, end, vec_load(o->da.data, o->da.dtype, i, end) * slope);
        } else {
            a = activation(f, u);
        }
        if (o->a.data) vec_store(o->a.data, o->a.dtype, i, end, a);
    }
}

static snug_status apply_all(const struct snug_run *run, const struct operands *o, enum snug_activation f) {
    const int64_t n = o->u.rows * o->u.cols, block = 4096;

#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t first = 0; first < n; first += block) {
        int64_t end = n - first < block ? n : first + block;
        switch (f) {
        case SNUG_GELU: apply(o, first, end, SNUG_GELU); break;
        case SNUG_GELU_TANH: apply(o, first, end, SNUG_GELU_TANH); break;
        case SNUG_RELU: apply(o, first, end, SNUG_RELU); break;
        case SNUG_SILU: apply(o, first, end, SNUG_SILU); break;
        case SNUG_TANH: apply(o, first, end, SNUG_TANH); break;
        }
    }
    return SNUG_OK;
}

snug_status SNUG_KERNEL(activation)(struct snug_run *run, const struct snug_op *op) {
    const struct operands o = {.a = snug_matrix_of(run, op->out[0]), .u = snug_matrix_of(run, op->in[0])};
    return apply_all(run, &o, op->activation);
}

snug_status SNUG_KERNEL(activation_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct operands o = {.a = snug_matrix_of(run, op->out[1]),
                               .du = snug_matrix_of(run, op->out[0]),
                               .da = snug_matrix_of(run, op->in[0]),
                               .u = snug_matrix_of(run, op->in[1])};
    return apply_all(run, &o, op->activation);
}
