/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"

snug_status snug_reference_table(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix table = snug_matrix_of(run, op->table.table), y = snug_matrix_of(run, op->table.y);
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c++) store(y, row, c, load(table, row, c));
    return SNUG_OK;
}

snug_status snug_reference_table_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_table_backward *b = &op->table_backward;
    const struct snug_matrix dy = snug_matrix_of(run, b->dy), dtable = snug_matrix_of(run, b->dtable);
    for (int64_t row = 0; row < dy.rows; row++)
        for (int64_t c = 0; c < dy.cols; c++) add_sum(dtable, row, c, load(dy, row, c), snug_run_overwrites(run, op));
    return SNUG_OK;
}
