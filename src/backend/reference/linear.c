/* SPDX-License-Identifier: Apache-2.0 */
/* y [n,N] = x [n,K] w [N,K]^T + b [N] */
#include "backend/reference/reference.h"

snug_status snug_reference_linear(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->linear.x), w = snug_matrix_of(run, op->linear.w),
                       b = snug_matrix_of(run, op->linear.b);
    struct snug_matrix y = snug_matrix_of(run, op->linear.y);

    for (int64_t i = 0; i < y.rows; i++)
        for (int64_t j = 0; j < y.cols; j++) {
            double sum = b.data ? load(b, 0, j) : 0;
            for (int64_t k = 0; k < x.cols; k++) sum += load(x, i, k) * load(w, j, k);
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
            for (int64_t j = 0; j < dy.cols; j++) sum += load(dy, i, j) * load(w, j, k);
            store(dx, i, k, sum);
        }
    return SNUG_OK;
}

/* dw [N,K] += dy [n,N]^T x [n,K]; db [N] += column sums of dy; each is optional */
snug_status snug_reference_linear_dw(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dy = snug_matrix_of(run, op->linear_dw.dy), x = snug_matrix_of(run, op->linear_dw.x);
    struct snug_matrix dw = snug_matrix_of(run, op->linear_dw.dw), db = snug_matrix_of(run, op->linear_dw.db);
    bool overwrites = snug_run_overwrites(run, op);

    for (int64_t j = 0; dw.data && j < dw.rows; j++)
        for (int64_t k = 0; k < dw.cols; k++) {
            double sum = 0;
            for (int64_t i = 0; i < dy.rows; i++) sum += load(dy, i, j) * load(x, i, k);
            add_sum(dw, j, k, sum, overwrites);
        }
    for (int64_t j = 0; db.data && j < dy.cols; j++) {
        double sum = 0;
        for (int64_t i = 0; i < dy.rows; i++) sum += load(dy, i, j);
        add_sum(db, 0, j, sum, overwrites);
    }
    return SNUG_OK;
}
