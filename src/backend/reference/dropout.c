/* SPDX-License-Identifier: Apache-2.0 */
/* y = dropout(x). The gradient goes through the same mask, so the operation is its own backward. */
#include "backend/reference/reference.h"

snug_status snug_reference_dropout(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->dropout.x), y = snug_matrix_of(run, op->dropout.y);
    for (int64_t row = 0; row < x.rows; row++) {
        const struct snug_row_key key = snug_run_row_key(run, op->dropout.y, row);
        for (int64_t c = 0; c < x.cols; c++) store(y, row, c, dropout_factor_at(run, op, key, c) * load(x, row, c));
    }
    return SNUG_OK;
}
