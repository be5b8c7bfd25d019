/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear units: a = f(u1) u2, where u1 and u2 are the halves of u's columns. */
#include "backend/cpu/functions.h"

/* The operands of both operations: forward has a, backward da and du. */
struct operands {
    struct snug_matrix u, a, da, du;
};

/* A row. Inlined once for each f, so that the loop has no branch on it. */
static inline __attribute__((always_inline)) void apply(const struct operands *o, int64_t row, enum snug_activation f) {
    const enum snug_dtype dtype = o->u.dtype;
    const int64_t cols = o->u.cols / 2;
    const void *u = matrix_at(o->u, row, 0), *gates = matrix_at(o->u, row, cols);
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        const vec x = vec_load(u, dtype, c, cols), gate = vec_load(gates, dtype, c, cols);
        if (o->da.data) {
            const vec da = vec_load(matrix_at(o->da, row, 0), dtype, c, cols);
            vec a;
            const vec slope = derivative(f, x, &a);
            vec_store(matrix_at(o->du, row, 0), dtype, c, cols, da * gate * slope);
            vec_store(matrix_at(o->du, row, cols), dtype, c, cols, da * a);
        } else {
            vec_store(matrix_at(o->a, row, 0), dtype, c, cols, activation(f, x) * gate);
        }
    }
}

static snug_status apply_all(const struct snug_run *run, const struct operands *o, enum snug_activation f) {
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < o->u.rows; row++) APPLY_FUNCTION(f, o, row);
    return SNUG_OK;
}

snug_status SNUG_KERNEL(glu)(struct snug_run *run, const struct snug_op *op) {
    const struct operands o = {.u = snug_matrix_of(run, op->glu.u), .a = snug_matrix_of(run, op->glu.a)};
    return apply_all(run, &o, op->glu.function);
}

snug_status SNUG_KERNEL(glu_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct operands o = {.u = snug_matrix_of(run, op->glu_backward.u),
                               .da = snug_matrix_of(run, op->glu_backward.da),
                               .du = snug_matrix_of(run, op->glu_backward.du)};
    return apply_all(run, &o, op->glu_backward.function);
}
