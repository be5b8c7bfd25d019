/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear units (Shazeer, arXiv:2002.05202): a = f(u1) u2, where u1 and u2 are the halves of u's columns, or u and
   v. */
#include "backend/reference/functions.h"

/* u2 is `gates`, from column `at` on. */
static struct snug_matrix gates_of(struct snug_run *run, int32_t u, int32_t v, int64_t cols, int64_t *at) {
    *at = v ? 0 : cols;
    return snug_matrix_of(run, v ? v : u);
}

snug_status snug_reference_glu(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix u = snug_matrix_of(run, op->glu.u), a = snug_matrix_of(run, op->glu.a);
    int64_t at;
    const struct snug_matrix gates = gates_of(run, op->glu.u, op->glu.v, a.cols, &at);
    for (int64_t row = 0; row < a.rows; row++)
        for (int64_t c = 0; c < a.cols; c++)
            store(a, row, c, activation(op->glu.function, load(u, row, c)) * load(gates, row, at + c));
    return SNUG_OK;
}

snug_status snug_reference_glu_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_glu_backward *g = &op->glu_backward;
    struct snug_matrix da = snug_matrix_of(run, g->da), u = snug_matrix_of(run, g->u), du = snug_matrix_of(run, g->du);
    int64_t at;
    const struct snug_matrix gates = gates_of(run, g->u, g->v, da.cols, &at),
                             dgates = gates_of(run, g->du, g->dv, da.cols, &at);
    for (int64_t row = 0; row < da.rows; row++)
        for (int64_t c = 0; c < da.cols; c++) {
            const double x = load(u, row, c), gate = load(gates, row, at + c), d = load(da, row, c);
            store(du, row, c, d * gate * derivative(g->function, x));
            store(dgates, row, at + c, d * activation(g->function, x));
        }
    return SNUG_OK;
}
