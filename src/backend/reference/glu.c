/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear units (Shazeer, arXiv:2002.05202): a = f(u1) u2, where u1 and u2 are the halves of u's columns. */
#include "backend/reference/functions.h"

snug_status snug_reference_glu(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix u = snug_matrix_of(run, op->glu.u), a = snug_matrix_of(run, op->glu.a);
    for (int64_t row = 0; row < a.rows; row++)
        for (int64_t c = 0; c < a.cols; c++)
            store(a, row, c, activation(op->glu.function, load(u, row, c)) * load(u, row, a.cols + c));
    return SNUG_OK;
}

snug_status snug_reference_glu_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_glu_backward *g = &op->glu_backward;
    struct snug_matrix da = snug_matrix_of(run, g->da), u = snug_matrix_of(run, g->u), du = snug_matrix_of(run, g->du);
    for (int64_t row = 0; row < da.rows; row++)
        for (int64_t c = 0; c < da.cols; c++) {
            const double x = load(u, row, c), gate = load(u, row, da.cols + c), d = load(da, row, c);
            store(du, row, c, d * gate * derivative(g->function, x));
            store(du, row, da.cols + c, d * activation(g->function, x));
        }
    return SNUG_OK;
}
