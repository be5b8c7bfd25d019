/* SPDX-License-Identifier: Apache-2.0 */
/* y = dropout(x). The gradient goes through the same mask, so the operation is its own backward. */
#include "backend/cpu/rows.h"

snug_status SNUG_KERNEL(dropout)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->dropout.x), y = snug_matrix_of(run, op->dropout.y);

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < x.rows; row++) {
        const float *mask =
            keyed_mask(scratch_rows(run, 1, x.cols), x.cols, run, op, snug_run_row_key(run, op->dropout.y, row));
        for (int64_t c = 0; c < x.cols; c += VEC_LANES) {
            vec a = vec_load(matrix_at(x, row, 0), x.dtype, c, x.cols);
            vec_store(matrix_at(y, row, 0), y.dtype, c, x.cols, mask ? a * vec_read(mask + c) : a);
        }
    }
    return SNUG_OK;
}
