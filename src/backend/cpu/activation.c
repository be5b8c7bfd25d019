/* SPDX-License-Identifier: Apache-2.0 */
/* a = f(u + b), element by element. */
#include "backend/cpu/functions.h"

/* The operands of both operations; forward has no da and du. */
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
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < o->u.rows; row++) APPLY_FUNCTION(f, o, row);
    return SNUG_OK;
}

snug_status SNUG_KERNEL(activation)(struct snug_run *run, const struct snug_op *op) {
    const struct operands o = {.a = snug_matrix_of(run, op->activation.a),
                               .u = snug_matrix_of(run, op->activation.u),
                               .bias = snug_run_data(run, op->activation.b)};
    return apply_all(run, &o, op->activation.function);
}

snug_status SNUG_KERNEL(activation_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct operands o = {.a = snug_matrix_of(run, op->activation_backward.a),
                               .du = snug_matrix_of(run, op->activation_backward.du),
                               .da = snug_matrix_of(run, op->activation_backward.da),
                               .u = snug_matrix_of(run, op->activation_backward.u),
                               .bias = snug_run_data(run, op->activation_backward.b)};
    return apply_all(run, &o, op->activation_backward.function);
}
