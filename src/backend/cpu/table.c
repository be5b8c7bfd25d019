/* SPDX-License-Identifier: Apache-2.0 */
/* y = table;  dtable += dy */
#include "backend/cpu/rows.h"

/* y = x, or += */
static void copy(const struct snug_run *run, struct snug_matrix x, struct snug_matrix y, bool adds) {
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c += VEC_LANES) {
            vec value = vec_load(matrix_at(x, row, 0), x.dtype, c, y.cols);
            if (adds) value += vec_load(matrix_at(y, row, 0), y.dtype, c, y.cols);
            vec_store(matrix_at(y, row, 0), y.dtype, c, y.cols, value);
        }
}

snug_status SNUG_KERNEL(table)(struct snug_run *run, const struct snug_op *op) {
    copy(run, snug_matrix_of(run, op->table.table), snug_matrix_of(run, op->table.y), false);
    return SNUG_OK;
}

snug_status SNUG_KERNEL(table_backward)(struct snug_run *run, const struct snug_op *op) {
    copy(run, snug_matrix_of(run, op->table_backward.dy), snug_matrix_of(run, op->table_backward.dtable),
         !snug_run_overwrites(run, op));
    return SNUG_OK;
}
