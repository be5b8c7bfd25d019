/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear units: a = f(u1) u2, where u1 and u2 are the halves of u's columns, or u and v. */
#include "backend/cpu/functions.h"

/* The operands of both operations: forward has a, backward da, du and dgates. u2 and its gradient are gates and dgates,
   from column `at` on. */
struct operands {
    struct snug_matrix u, gates, a, da, du, dgates;
    int64_t cols, at;
};

/* A row. Inlined once for each f, so that the loop has no branch on it. */
static inline __attribute__((always_inline)) void apply(const struct operands *o, int64_t row, enum snug_activation f) {
    const enum snug_dtype dtype = o->u.dtype;
    const int64_t cols = o->cols;
    const void *u = matrix_at(o->u, row, 0), *gates = matrix_at(o->gates, row, o->at);
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        const vec x = vec_load(u, dtype, c, cols), gate = vec_load(gates, dtype, c, cols);
        if (o->da.data) {
            const vec da = vec_load(matrix_at(o->da, row, 0), dtype, c, cols);
            vec a;
            const vec slope = derivative(f, x, &a);
            vec_store(matrix_at(o->du, row, 0), dtype, c, cols, da * gate * slope);
            vec_store(matrix_at(o->dgates, row, o->at), dtype, c, cols, da * a);
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

/* v, dv: or none, where u, du have both halves. */
static struct operands operands_of(struct snug_run *run, int32_t u, int32_t v, int32_t du, int32_t dv) {
    struct operands o = {.u = snug_matrix_of(run, u), .gates = snug_matrix_of(run, v ? v : u)};
    if (du) o.du = snug_matrix_of(run, du);
    if (du) o.dgates = snug_matrix_of(run, dv ? dv : du);
    o.cols = v ? o.u.cols : o.u.cols / 2;
    o.at = v ? 0 : o.cols;
    return o;
}

snug_status SNUG_KERNEL(glu)(struct snug_run *run, const struct snug_op *op) {
    struct operands o = operands_of(run, op->glu.u, op->glu.v, 0, 0);
    o.a = snug_matrix_of(run, op->glu.a);
    return apply_all(run, &o, op->glu.function);
}

snug_status SNUG_KERNEL(glu_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_glu_backward *g = &op->glu_backward;
    struct operands o = operands_of(run, g->u, g->v, g->du, g->dv);
    o.da = snug_matrix_of(run, g->da);
    return apply_all(run, &o, g->function);
}
