/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by kernels that work row by row: addresses, dropout's masks, scratch. */
#ifndef SNUG_BACKEND_CPU_ROWS_H
#define SNUG_BACKEND_CPU_ROWS_H

#include <omp.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/vec.h"
#include "backend/cpu/workspace.h"

static inline void *matrix_at(struct snug_matrix m, int64_t row, int64_t col) {
    return m.data + (row * m.cols + col) * snug_dtype_size(m.dtype);
}

/* The mask of a row, in mask[0 … cols-1]; mask itself, or NULL without dropout. */
static inline const float *keyed_mask(float *mask, int64_t cols, const struct snug_run *run, const struct snug_op *op,
                                      struct snug_row_key key) {
    if (op->p == 0) return NULL;
    struct vec_dropout dropout = vec_dropout(run, op, 0);
    vec_mask(mask, cols, &dropout, key.position, key.sample);
    return mask;
}
/* The mask of a token's hidden state. */
static inline const float *token_mask(float *mask, int64_t cols, const struct snug_run *run, const struct snug_op *op,
                                      int64_t token) {
    const struct snug_row_key key = {run->batch->positions[token], run->batch->sample[token]};
    return keyed_mask(mask, cols, run, op, key);
}

/* This thread's part of the scratch rows. */
static inline float *scratch_rows(const struct snug_run *run, int64_t rows, int64_t cols) {
    return (float *)run->workspace + omp_get_thread_num() * rows * snug_cpu_padded(cols);
}

#endif
