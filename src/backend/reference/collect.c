/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"

snug_status snug_reference_collect(struct snug_run *run, const struct snug_op *op) {
    const struct snug_collect *c = &op->collect;
    const struct snug_matrix x = snug_matrix_of(run, c->x), vectors = snug_matrix_of(run, c->vectors),
                             scores = snug_matrix_of(run, c->scores);
    for (int64_t row = 0; row < x.rows; row++) {
        const int64_t item = run->first_row + row, to = run->batch->sample[run->batch->loss_positions[item]];
        for (int64_t col = 0; col < x.cols; col++) store(vectors, to, col, load(x, row, col));
        if (scores.data) store(scores, to, 0, run->batch->targets[item / c->texts]);
    }
    return SNUG_OK;
}

snug_status snug_reference_collect_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix d = snug_matrix_of(run, op->collect_backward.d),
                             dx = snug_matrix_of(run, op->collect_backward.dx);
    for (int64_t row = 0; row < dx.rows; row++) {
        const int64_t from = run->batch->sample[run->batch->loss_positions[run->first_row + row]];
        for (int64_t col = 0; col < dx.cols; col++) store(dx, row, col, load(d, from, col));
    }
    return SNUG_OK;
}
