/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"

snug_status snug_reference_fill(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->fill.x);
    for (int64_t row = 0; row < x.rows; row++)
        for (int64_t c = 0; c < x.cols; c++) store(x, row, c, 0);
    return SNUG_OK;
}

snug_status snug_reference_add(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->add.x), y = snug_matrix_of(run, op->add.y);
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c++) store(y, row, c, load(y, row, c) + load(x, row, c));
    return SNUG_OK;
}

/* To a lower precision: store() rounds to nearest, ties to even. */
snug_status snug_reference_cast(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix p = snug_matrix_of(run, op->cast.p), q = snug_matrix_of(run, op->cast.q);
    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t c = 0; c < p.cols; c++) store(q, row, c, load(p, row, c));
    return SNUG_OK;
}
