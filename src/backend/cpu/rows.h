/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by kernels that work row by row: addresses, positions, and layer normalisation of one row. */
#ifndef SNUG_BACKEND_CPU_ROWS_H
#define SNUG_BACKEND_CPU_ROWS_H

#include <math.h>
#include <omp.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/vec.h"
#include "backend/cpu/workspace.h"

static inline void *matrix_at(struct snug_matrix m, int64_t row, int64_t col) {
    return m.data + (row * m.cols + col) * snug_dtype_size(m.dtype);
}

/* The mask of a token's hidden state, in mask[0 … cols-1]; mask itself, or NULL without dropout. */
static inline const float *token_mask(float *mask, int64_t cols, const struct snug_run *run, const struct snug_op *op,
                                      int64_t token) {
    if (op->p == 0) return NULL;
    struct vec_dropout dropout = vec_dropout(run, op, 0);
    vec_mask(mask, cols, &dropout, run->batch->positions[token], run->batch->sample[token]);
    return mask;
}

/* This thread's part of the scratch rows. */
static inline float *scratch_rows(const struct snug_run *run, int64_t rows, int64_t cols) {
    return (float *)run->workspace + omp_get_thread_num() * rows * snug_cpu_padded(cols);
}

struct statistics {
    float mean, rstd; /* rstd = 1 / sqrt(biased variance + eps) */
};

/* Statistics of a row in scratch; overwrites the row's padding. */
static inline struct statistics row_statistics(float *s, int64_t n, float eps) {
    vec sum[2] = {{0}}, squares[2] = {{0}};
    for (int64_t c = n; c < snug_cpu_padded(n); c++) s[c] = 0;
    for (int64_t c = 0; c < n; c += 2 * VEC_LANES) {
        sum[0] += vec_read(s + c);
        sum[1] += vec_read(s + c + VEC_LANES);
    }
    float mean = vec_sum(sum[0] + sum[1]) / (float)n;
    for (int64_t c = n; c < snug_cpu_padded(n); c++) s[c] = mean;
    for (int64_t c = 0; c < n; c += 2 * VEC_LANES) {
        vec a = vec_read(s + c) - mean, b = vec_read(s + c + VEC_LANES) - mean;
        squares[0] = vec_fma(a, a, squares[0]);
        squares[1] = vec_fma(b, b, squares[1]);
    }
    return (struct statistics){mean, 1 / sqrtf(vec_sum(squares[0] + squares[1]) / (float)n + eps)};
}

/* Row of y = mask * norm(s), s in scratch, rounded as it is stored; beta is optional, mask may be NULL. */
static inline void norm_row(struct snug_matrix y, int64_t row, float *s, struct snug_matrix gamma,
                            struct snug_matrix beta, float eps, const float *mask) {
    struct statistics stat = row_statistics(s, y.cols, eps);
    void *out = matrix_at(y, row, 0);
    for (int64_t c = 0; c < y.cols; c += VEC_LANES) {
        vec x = (vec_read(s + c) - stat.mean) * stat.rstd;
        vec shift = beta.data ? vec_load(beta.data, SNUG_F32, c, y.cols) : vec_all(0);
        vec norm = vec_fma(x, vec_load(gamma.data, SNUG_F32, c, y.cols), shift);
        vec_store(out, y.dtype, c, y.cols, mask ? norm * vec_read(mask + c) : norm);
    }
}

/* The backward of layer normalisation over all rows, for NORM_BACKWARD and EMBED_BACKWARD. */
struct norm_backward {
    struct snug_matrix dy, s, gamma, addend; /* inputs; addend is optional */
    struct snug_matrix ds, dz;               /* outputs; ds may be dy or addend, dz is optional */
    struct snug_matrix dgamma, dbeta;        /* each is optional */
    float eps;
    int32_t rows_like;   /* the tensor that defines the rows */
    bool dropout_before; /* op's forward applies dropout after the norm, so dy is masked; otherwise dz is masked */
};
void SNUG_KERNEL(norm_backward_rows)(struct snug_run *run, const struct snug_op *op, const struct norm_backward *norm);

#endif
