/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the tokens that the head uses: the first or the last of each sequence, or the masked ones; or sums
   over those of each sequence. */
#include "backend/cpu/rows.h"

/* r[i] = weighted sum of sequence i's rows of x, in the order of the rows */
static void gather_sums(const struct snug_run *run, enum snug_pooling pooling, struct snug_matrix x,
                        struct snug_matrix r) {
    const int32_t *offsets = run->batch->offsets, *begins = run->batch->loss_positions;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < r.rows; row++) {
        const int32_t first = offsets[row], begin = begins[row], end = offsets[row + 1];
        const float divisor = snug_pool_divisor(pooling, begin - first, end - first);
        for (int64_t c = 0; c < r.cols; c += VEC_LANES) {
            vec sum = vec_all(0);
            for (int32_t token = begin; token < end; token++)
                sum += vec_load(matrix_at(x, token, 0), x.dtype, c, x.cols) * snug_pool_weight(pooling, token - first);
            vec_store(matrix_at(r, row, 0), r.dtype, c, r.cols, sum / divisor);
        }
    }
}

snug_status SNUG_KERNEL(gather)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->gather.x), r = snug_matrix_of(run, op->gather.r);
    const enum snug_pooling pooling = snug_run_pooling(run, op->gather.r);
    if (snug_pool_sums(pooling)) {
        gather_sums(run, pooling, x, r);
        return SNUG_OK;
    }

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < r.rows; row++) {
        const void *from = matrix_at(x, snug_run_gathered_row(run, op->gather.x, op->gather.r, row), 0);
        for (int64_t c = 0; c < r.cols; c += VEC_LANES)
            vec_store(matrix_at(r, row, 0), r.dtype, c, r.cols, vec_load(from, x.dtype, c, r.cols));
    }
    return SNUG_OK;
}

/* dx[token] += its weight * dr[i] for all tokens of sequence i */
static void spread_sums(const struct snug_run *run, enum snug_pooling pooling, struct snug_matrix dr,
                        struct snug_matrix dx) {
    const int32_t *offsets = run->batch->offsets, *begins = run->batch->loss_positions;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < dr.rows; row++) {
        const int32_t first = offsets[row], begin = begins[row], end = offsets[row + 1];
        const float divisor = snug_pool_divisor(pooling, begin - first, end - first);
        for (int32_t token = begin; token < end; token++) {
            const float share = snug_pool_weight(pooling, token - first) / divisor;
            for (int64_t c = 0; c < dr.cols; c += VEC_LANES) {
                const vec part = vec_load(matrix_at(dr, row, 0), dr.dtype, c, dr.cols) * share;
                void *to = matrix_at(dx, token, 0);
                vec_store(to, dx.dtype, c, dx.cols, vec_load(to, dx.dtype, c, dx.cols) + part);
            }
        }
    }
}

/* Earlier operations clear or write dx; in HEAD each chunk of rows adds its part. */
snug_status SNUG_KERNEL(gather_backward)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dr = snug_matrix_of(run, op->gather_backward.dr),
                       dx = snug_matrix_of(run, op->gather_backward.dx);
    const enum snug_pooling pooling = snug_run_pooling(run, op->gather_backward.dr);
    if (snug_pool_sums(pooling)) {
        spread_sums(run, pooling, dr, dx);
        return SNUG_OK;
    }

    /* Threads divide the columns, because a token may be in loss_positions more than once. */
    const int64_t block = 64;
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t first = 0; first < dr.cols; first += block) {
        int64_t end = first + block < dr.cols ? first + block : dr.cols;
        for (int64_t row = 0; row < dr.rows; row++) {
            void *to =
                matrix_at(dx, snug_run_gathered_row(run, op->gather_backward.dx, op->gather_backward.dr, row), 0);
            const void *from = matrix_at(dr, row, 0);
            for (int64_t c = first; c < end; c += VEC_LANES)
                vec_store(to, dx.dtype, c, end, vec_load(to, dx.dtype, c, end) + vec_load(from, dr.dtype, c, end));
        }
    }
    return SNUG_OK;
}
