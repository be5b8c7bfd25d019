/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients' norm and clipping, as torch.nn.utils.clip_grad_norm_ does. */
#include "backend/reference/reference.h"

/* The sum of squares, chunk by chunk, so that shards of a gradient give the same bits. */
struct sum {
    double chunks, chunk; /* the sum of complete chunks; of the current one */
    int64_t number;
};

static void add_square(struct sum *sum, int64_t element, double value) {
    if (element / SNUG_NORM_CHUNK != sum->number) {
        sum->chunks += sum->chunk;
        sum->chunk = 0;
        sum->number = element / SNUG_NORM_CHUNK;
    }
    sum->chunk += value * value;
}

/* The sum of each chunk. */
static void sum_chunks(struct snug_matrix g, double *sums) {
    for (int64_t i = 0; i < g.rows * g.cols; i++) {
        const double value = load(g, i / g.cols, i % g.cols);
        sums[i / SNUG_NORM_CHUNK] = (i % SNUG_NORM_CHUNK ? sums[i / SNUG_NORM_CHUNK] : 0) + value * value;
    }
}

snug_status snug_reference_squared_norm(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix g = snug_matrix_of(run, op->squared_norm.g);
    double *sums = snug_run_data(run, op->squared_norm.sums);
    struct sum squares = {0};
    if (op->squared_norm.chunks) {
        sum_chunks(g, sums + op->squared_norm.slot);
        return SNUG_OK;
    }
    if (op->squared_norm.index) { /* in the table's order, as of the whole gradient */
        const struct snug_rows rows = snug_rows_of(run, op->squared_norm.index, op->squared_norm.g);
        for (int64_t row = 0; row < rows.table_rows; row++)
            for (int64_t c = 0; rows.slots[row] >= 0 && c < g.cols; c++)
                add_square(&squares, row * g.cols + c, load(g, rows.slots[row], c));
    } else {
        for (int64_t row = 0; row < g.rows; row++)
            for (int64_t c = 0; c < g.cols; c++) add_square(&squares, row * g.cols + c, load(g, row, c));
    }
    const double sum = squares.chunks + squares.chunk;
    sums[op->squared_norm.slot] = op->accumulate ? sums[op->squared_norm.slot] + sum : sum;
    return SNUG_OK;
}

snug_status snug_reference_clip(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix sums = snug_matrix_of(run, op->clip.sums), clip = snug_matrix_of(run, op->clip.clip);
    double squares = 0;
    for (int64_t slot = 0; slot < sums.rows * sums.cols; slot++) squares += ((double *)sums.data)[slot];
    float *scaler = snug_run_data(run, op->clip.scaler);
    double factor = scaler ? scaler[SNUG_SCALE] : 1, norm = sqrt(squares) / factor;
    double scale = run->max_grad_norm / (norm + 1e-6);
    store(clip, 0, 0, norm);
    store(clip, 0, 1, (run->max_grad_norm > 0 && !(scale >= 1) ? scale : 1) / factor); /* a NaN norm is passed on */
    if (scaler) scaler[SNUG_SCALE_SKIPS] = isfinite(squares) ? 0 : 1;
    return SNUG_OK;
}

snug_status snug_reference_rescale(struct snug_run *run, const struct snug_op *op) {
    snug_loss_scale_next(snug_run_data(run, op->rescale.scaler));
    return SNUG_OK;
}
