/* SPDX-License-Identifier: Apache-2.0 */
/* Some tokens are seen further on: the first of each sequence, or the masked ones. */
#include "backend/reference/reference.h"

snug_status snug_reference_gather(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->in[0]), r = snug_matrix_of(run, op->out[0]);
    for (int64_t row = 0; row < r.rows; row++)
        for (int64_t c = 0; c < r.cols; c++)
            store(r, row, c, load(x, snug_run_gathered_row(run, op->in[0], op->out[0], row), c));
    return SNUG_OK;
}

/* dx is cleared, or written by others, before; in HEAD each chunk of rows adds its part. */
snug_status snug_reference_gather_backward(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dr = snug_matrix_of(run, op->in[0]), dx = snug_matrix_of(run, op->out[0]);
    for (int64_t row = 0; row < dr.rows; row++) {
        const int64_t to = snug_run_gathered_row(run, op->out[0], op->in[0], row);
        for (int64_t c = 0; c < dr.cols; c++) store(dx, to, c, load(dx, to, c) + load(dr, row, c));
    }
    return SNUG_OK;
}
