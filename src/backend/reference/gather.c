/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the tokens that the head uses: the first or the last of each sequence, or the masked ones; or sums
   over those of each sequence. */
#include "backend/reference/reference.h"

/* r[i] = weighted sum of sequence i's rows of x */
static void gather_sums(const struct snug_run *run, enum snug_pooling pooling, struct snug_matrix x,
                        struct snug_matrix r) {
    const int32_t *offsets = run->batch->offsets, *begins = run->batch->loss_positions;
    for (int64_t row = 0; row < r.rows; row++) {
        const int32_t first = offsets[row], begin = begins[row], end = offsets[row + 1];
        const double divisor = (double)snug_pool_divisor(pooling, begin - first, end - first);
        for (int64_t c = 0; c < r.cols; c++) {
            double sum = 0;
            for (int32_t token = begin; token < end; token++)
                sum += load(x, token, c) * (double)snug_pool_weight(pooling, token - first);
            store(r, row, c, sum / divisor);
        }
    }
}

snug_status snug_reference_gather(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->gather.x), r = snug_matrix_of(run, op->gather.r);
    const enum snug_pooling pooling = snug_run_pooling(run, op->gather.r);
    if (snug_pool_sums(pooling)) {
        gather_sums(run, pooling, x, r);
        return SNUG_OK;
    }
    for (int64_t row = 0; row < r.rows; row++)
        for (int64_t c = 0; c < r.cols; c++)
            store(r, row, c, load(x, snug_run_gathered_row(run, op->gather.x, op->gather.r, row), c));
    return SNUG_OK;
}

static void add_row(struct snug_matrix dx, int64_t to, struct snug_matrix dr, int64_t row, double share) {
    for (int64_t c = 0; c < dr.cols; c++) store(dx, to, c, load(dx, to, c) + load(dr, row, c) * share);
}

/* Earlier operations clear or write dx; in HEAD each chunk of rows adds its part. */
snug_status snug_reference_gather_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_gather_backward *g = &op->gather_backward;
    struct snug_matrix dr = snug_matrix_of(run, g->dr), dx = snug_matrix_of(run, g->dx);
    const int32_t *offsets = run->batch->offsets, *begins = run->batch->loss_positions;
    const enum snug_pooling pooling = snug_run_pooling(run, g->dr);
    for (int64_t row = 0; row < dr.rows; row++)
        if (snug_pool_sums(pooling))
            for (int32_t token = begins[row]; token < offsets[row + 1]; token++)
                add_row(dx, token, dr, row,
                        (double)snug_pool_weight(pooling, token - offsets[row]) /
                            (double)snug_pool_divisor(pooling, begins[row] - offsets[row],
                                                      offsets[row + 1] - offsets[row]));
        else
            add_row(dx, snug_run_gathered_row(run, g->dx, g->dr, row), dr, row, 1);
    return SNUG_OK;
}
