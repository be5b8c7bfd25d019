/* SPDX-License-Identifier: Apache-2.0 */
/* A micro-batch's vectors go to the rows of the step's vectors, and their gradients come from there. */
#include <string.h>

#include "backend/cpu/rows.h"

static int64_t row_in_step(const struct snug_run *run, int64_t row) {
    return run->batch->sample[run->batch->loss_positions[run->first_row + row]];
}

snug_status SNUG_KERNEL(collect)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix x = snug_matrix_of(run, op->collect.x), to = snug_matrix_of(run, op->collect.vectors);
    float *scores = snug_run_data(run, op->collect.scores);

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < x.rows; row++) {
        const int64_t there = row_in_step(run, row);
        memcpy(matrix_at(to, there, 0), matrix_at(x, row, 0), (size_t)x.cols * sizeof(float));
        if (scores) scores[there] = run->batch->targets[(run->first_row + row) / op->collect.texts];
    }
    return SNUG_OK;
}

snug_status SNUG_KERNEL(collect_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix d = snug_matrix_of(run, op->collect_backward.d),
                             dx = snug_matrix_of(run, op->collect_backward.dx);

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < dx.rows; row++)
        memcpy(matrix_at(dx, row, 0), matrix_at(d, row_in_step(run, row), 0), (size_t)dx.cols * sizeof(float));
    return SNUG_OK;
}
