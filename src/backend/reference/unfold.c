/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"

/* Whether the token `by` places after a token is in its sequence. */
static bool has_neighbour(const struct snug_batch *batch, int64_t token, int64_t by) {
    const int64_t sequence = snug_batch_sequence(batch, (int32_t)token), other = token + by;
    return other >= batch->offsets[sequence] && other < batch->offsets[sequence + 1];
}

snug_status snug_reference_unfold(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix x = snug_matrix_of(run, op->unfold.x), y = snug_matrix_of(run, op->unfold.y);
    const int64_t width = y.cols / x.cols;
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c++) {
            const int64_t by = c % width - width / 2;
            store(y, row, c, has_neighbour(run->batch, row, by) ? load(x, row + by, c / width) : 0);
        }
    return SNUG_OK;
}

snug_status snug_reference_unfold_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix dy = snug_matrix_of(run, op->unfold_backward.dy),
                             dx = snug_matrix_of(run, op->unfold_backward.dx);
    const int64_t width = dy.cols / dx.cols;
    for (int64_t row = 0; row < dx.rows; row++)
        for (int64_t c = 0; c < dx.cols; c++) {
            double sum = 0;
            for (int64_t j = 0; j < width; j++) {
                const int64_t by = width / 2 - j;
                if (has_neighbour(run->batch, row, by)) sum += load(dy, row + by, c * width + j);
            }
            store(dx, row, c, sum);
        }
    return SNUG_OK;
}
