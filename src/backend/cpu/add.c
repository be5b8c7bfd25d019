/* SPDX-License-Identifier: Apache-2.0 */
/* y += x */
#include "backend/cpu/rows.h"

snug_status SNUG_KERNEL(add)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->add.x), y = snug_matrix_of(run, op->add.y);

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c += VEC_LANES) {
            vec a = vec_load(matrix_at(x, row, 0), x.dtype, c, y.cols);
            vec b = vec_load(matrix_at(y, row, 0), y.dtype, c, y.cols);
            vec_store(matrix_at(y, row, 0), y.dtype, c, y.cols, a + b);
        }
    return SNUG_OK;
}
