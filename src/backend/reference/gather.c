/* SPDX-License-Identifier: Apache-2.0 */
/* The head sees some tokens only: the first of each sequence, or the masked ones. */
#include "backend/reference/reference.h"

snug_status snug_reference_gather(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->in[0]), r = snug_matrix_of(run, op->out[0]);
    for (int64_t row = 0; row < r.rows; row++)
        for (int64_t c = 0; c < r.cols; c++) store(r, row, c, load(x, token_of_row(run, op->out[0], row), c));
    return SNUG_OK;
}

/* dx was filled with zeros once a micro-batch; each chunk of head rows adds its part. */
snug_status snug_reference_gather_backward(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dr = snug_matrix_of(run, op->in[0]), dx = snug_matrix_of(run, op->out[0]);
    for (int64_t row = 0; row < dr.rows; row++) {
        int64_t token = token_of_row(run, op->in[0], row);
        for (int64_t c = 0; c < dr.cols; c++) store(dx, token, c, load(dx, token, c) + load(dr, row, c));
    }
    return SNUG_OK;
}
