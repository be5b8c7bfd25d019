/* SPDX-License-Identifier: Apache-2.0 */
/* y [n,N] = x [n,K] w [N,K]^T + b [N] + addend [n,N] */
#include "backend/reference/reference.h"

/* An element of w or dw [N,K]. */
static double load_weight(struct snug_matrix w, bool transposed, int64_t j, int64_t k) {
    return transposed ? load(w, k, j) : load(w, j, k);
}

snug_status snug_reference_linear(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->linear.x), w = snug_matrix_of(run, op->linear.w),
                       b = snug_matrix_of(run, op->linear.b);
    struct snug_matrix y = snug_matrix_of(run, op->linear.y), addend = snug_matrix_of(run, op->linear.addend);

    for (int64_t i = 0; i < y.rows; i++)
        for (int64_t j = 0; j < y.cols; j++) {
            double sum = (b.data ? load(b, 0, j) : 0) + (addend.data ? load(addend, i, j) : 0);
            for (int64_t k = 0; k < x.cols; k++) sum += load(x, i, k) * load_weight(w, op->linear.transposed, j, k);
            store(y, i, j, sum);
        }
    return SNUG_OK;
}

/* dx [n,K] = dy [n,N] w [N,K] */
snug_status snug_reference_linear_dx(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dy = snug_matrix_of(run, op->linear_dx.dy), w = snug_matrix_of(run, op->linear_dx.w);
    struct snug_matrix dx = snug_matrix_of(run, op->linear_dx.dx);

    for (int64_t i = 0; i < dx.rows; i++)
        for (int64_t k = 0; k < dx.cols; k++) {
            double sum = op->accumulate ? load(dx, i, k) : 0;
            for (int64_t j = 0; j < dy.cols; j++)
                sum += load(dy, i, j) * load_weight(w, op->linear_dx.transposed, j, k);
            store(dx, i, k, sum);
        }
    return SNUG_OK;
}

/* dw [N,K] += dy [n,N]^T x [n,K]; db [N] += column sums of dy; each is optional */
snug_status snug_reference_linear_dw(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dy = snug_matrix_of(run, op->linear_dw.dy), x = snug_matrix_of(run, op->linear_dw.x);
    struct snug_matrix dw = snug_matrix_of(run, op->linear_dw.dw), db = snug_matrix_of(run, op->linear_dw.db);
    bool overwrites = snug_run_overwrites(run, op);

    for (int64_t j = 0; dw.data && j < dy.cols; j++)
        for (int64_t k = 0; k < x.cols; k++) {
            double sum = 0;
            for (int64_t i = 0; i < dy.rows; i++) sum += load(dy, i, j) * load(x, i, k);
            add_sum(dw, op->linear_dw.transposed ? k : j, op->linear_dw.transposed ? j : k, sum, overwrites);
        }
    for (int64_t j = 0; db.data && j < dy.cols; j++) {
        double sum = 0;
        for (int64_t i = 0; i < dy.rows; i++) sum += load(dy, i, j);
        add_sum(db, 0, j, sum, overwrites);
    }
    return SNUG_OK;
}
