/* SPDX-License-Identifier: Apache-2.0 */
/* Some tokens are seen further on: the first of each sequence, or the masked ones. */
#include "backend/cpu/rows.h"

snug_status SNUG_KERNEL(gather)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix x = snug_matrix_of(run, op->in[0]), r = snug_matrix_of(run, op->out[0]);

#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t row = 0; row < r.rows; row++) {
        const void *from = matrix_at(x, snug_run_gathered_row(run, op->in[0], op->out[0], row), 0);
        for (int64_t c = 0; c < r.cols; c += VEC_LANES)
            vec_store(matrix_at(r, row, 0), r.dtype, c, r.cols, vec_load(from, x.dtype, c, r.cols));
    }
    return SNUG_OK;
}

/* dx is cleared, or written by others, before; in HEAD each chunk of rows adds its part. */
snug_status SNUG_KERNEL(gather_backward)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dr = snug_matrix_of(run, op->in[0]), dx = snug_matrix_of(run, op->out[0]);

    /* Threads share columns, so that a token may stand in head_rows more than once. */
    const int64_t block = 64;
#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t first = 0; first < dr.cols; first += block) {
        int64_t end = first + block < dr.cols ? first + block : dr.cols;
        for (int64_t row = 0; row < dr.rows; row++) {
            void *to = matrix_at(dx, snug_run_gathered_row(run, op->out[0], op->in[0], row), 0);
            const void *from = matrix_at(dr, row, 0);
            for (int64_t c = first; c < end; c += VEC_LANES)
                vec_store(to, dx.dtype, c, end, vec_load(to, dx.dtype, c, end) + vec_load(from, dr.dtype, c, end));
        }
    }
    return SNUG_OK;
}
