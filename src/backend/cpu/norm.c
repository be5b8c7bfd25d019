/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation: with mean and variance (biased) of a row of s, and x = (s - mean) / sqrt(variance + eps),
 *   y = gamma x + beta.
 * Backward, with g = gamma dy and means over the row:
 *   ds = (g - mean(g) - x mean(g x)) / sqrt(variance + eps),   dgamma = sum of dy x over rows,   dbeta = sum of dy.
 * Mean and variance are recomputed from s: cheaper than storing and reading them.
 */
#include "backend/cpu/rows.h"

snug_status SNUG_KERNEL(residual_norm)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix z = snug_matrix_of(run, op->residual_norm.z), x = snug_matrix_of(run, op->residual_norm.x);
    struct snug_matrix gamma = snug_matrix_of(run, op->residual_norm.gamma),
                       beta = snug_matrix_of(run, op->residual_norm.beta);
    struct snug_matrix y = snug_matrix_of(run, op->residual_norm.y),
                       s = !op->residual_norm.s ? y : snug_matrix_of(run, op->residual_norm.s);
    int64_t h = s.cols;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < s.rows; row++) {
        float *sum = scratch_rows(run, 2, h);
        const float *mask =
            token_mask(sum + snug_cpu_padded(h), h, run, op, snug_run_token(run, op->residual_norm.y, row));
        for (int64_t c = 0; c < h; c += VEC_LANES) {
            vec a = vec_load(matrix_at(z, row, 0), z.dtype, c, h), b = vec_load(matrix_at(x, row, 0), x.dtype, c, h);
            a = mask ? vec_fma(a, vec_read(mask + c), b) : a + b;
            vec_store(matrix_at(s, row, 0), s.dtype, c, h, a);
            vec_write(sum + c, vec_rounded(a, s.dtype));
        }
        norm_row(y, row, sum, gamma, beta, op->residual_norm.eps, NULL);
    }
    return SNUG_OK;
}

snug_status SNUG_KERNEL(norm)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix s = snug_matrix_of(run, op->norm.s), gamma = snug_matrix_of(run, op->norm.gamma),
                       beta = snug_matrix_of(run, op->norm.beta);
    struct snug_matrix y = snug_matrix_of(run, op->norm.y);
    int64_t h = s.cols;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < s.rows; row++) {
        float *copy = scratch_rows(run, 2, h);
        const float *mask = token_mask(copy + snug_cpu_padded(h), h, run, op, snug_run_token(run, op->norm.y, row));
        for (int64_t c = 0; c < h; c += VEC_LANES) vec_write(copy + c, vec_load(matrix_at(s, row, 0), s.dtype, c, h));
        norm_row(y, row, copy, gamma, beta, op->norm.eps, mask);
    }
    return SNUG_OK;
}

/* ds and dz of one row; its part of dgamma and dbeta is added to sums[0 …] and sums[padded …]. */
static void backward_row(const struct snug_run *run, const struct snug_op *op, const struct norm_backward *norm,
                         int64_t row, float *sums) {
    const int64_t h = norm->s.cols, padded = snug_cpu_padded(h);
    float *x = scratch_rows(run, 3, h), *g = x + padded;
    const void *s = matrix_at(norm->s, row, 0), *dy = matrix_at(norm->dy, row, 0);
    const float *mask = NULL;
    if (norm->dropout_before || norm->dz.data)
        mask = token_mask(g + padded, h, run, op, snug_run_token(run, norm->rows_like, row));

    for (int64_t c = 0; c < h; c += VEC_LANES) vec_write(x + c, vec_load(s, norm->s.dtype, c, h));
    struct statistics stat = row_statistics(x, h, norm->eps);
    vec sum_g = {0}, sum_gx = {0};
    for (int64_t c = 0; c < h; c += VEC_LANES) {
        vec d = vec_load(dy, norm->dy.dtype, c, h), x_c = (vec_read(x + c) - stat.mean) * stat.rstd;
        if (norm->dropout_before && mask) d *= vec_read(mask + c);
        vec_write(sums + c, vec_fma(d, x_c, vec_read(sums + c)));
        vec_write(sums + padded + c, vec_read(sums + padded + c) + d);
        vec g_c = d * vec_load(norm->gamma.data, SNUG_F32, c, h);
        sum_g += g_c;
        sum_gx = vec_fma(g_c, x_c, sum_gx);
        vec_write(x + c, x_c);
        vec_write(g + c, g_c);
    }
    float mean_g = vec_sum(sum_g) / (float)h, mean_gx = vec_sum(sum_gx) / (float)h;
    for (int64_t c = 0; c < h; c += VEC_LANES) {
        vec ds = vec_fma(vec_read(x + c), vec_all(-mean_gx), vec_read(g + c) - mean_g) * stat.rstd;
        if (norm->addend.data) ds += vec_load(matrix_at(norm->addend, row, 0), norm->addend.dtype, c, h);
        vec_store(matrix_at(norm->ds, row, 0), norm->ds.dtype, c, h, ds);
        if (!norm->dz.data) continue;
        vec_store(matrix_at(norm->dz, row, 0), norm->dz.dtype, c, h, mask ? ds * vec_read(mask + c) : ds);
    }
}

void SNUG_KERNEL(norm_backward_rows)(struct snug_run *run, const struct snug_op *op, const struct norm_backward *norm) {
    const int64_t rows = norm->s.rows, h = norm->s.cols, padded = snug_cpu_padded(h);
    const int64_t step = (rows + SNUG_CPU_BLOCKS - 1) / SNUG_CPU_BLOCKS, blocks = rows ? (rows + step - 1) / step : 0;
    const bool overwrite = snug_run_overwrites(run, op);
    float *sums = (float *)run->workspace + (int64_t)run->threads * 3 * padded;

#pragma omp parallel num_threads(run->threads)
    {
#pragma omp for schedule(guided)
        for (int64_t block = 0; block < blocks; block++) {
            float *part = sums + block * 2 * padded;
            memset(part, 0, (size_t)(2 * padded) * sizeof *part);
            for (int64_t row = block * step; row < rows && row < (block + 1) * step; row++)
                backward_row(run, op, norm, row, part);
        }
#pragma omp for schedule(guided)
        for (int64_t c = 0; c < h; c += VEC_LANES) {
            float *dgamma = (float *)norm->dgamma.data, *dbeta = (float *)norm->dbeta.data;
            vec gamma = {0}, beta = {0};
            for (int64_t block = 0; block < blocks; block++) {
                gamma += vec_read(sums + block * 2 * padded + c);
                beta += vec_read(sums + block * 2 * padded + padded + c);
            }
            if (dgamma) vec_store(dgamma, SNUG_F32, c, h, overwrite ? gamma : gamma + vec_load(dgamma, SNUG_F32, c, h));
            if (dbeta) vec_store(dbeta, SNUG_F32, c, h, overwrite ? beta : beta + vec_load(dbeta, SNUG_F32, c, h));
        }
    }
}

snug_status SNUG_KERNEL(norm_backward)(struct snug_run *run, const struct snug_op *op) {
    struct norm_backward norm = {.dy = snug_matrix_of(run, op->norm_backward.dy),
                                 .s = snug_matrix_of(run, op->norm_backward.s),
                                 .gamma = snug_matrix_of(run, op->norm_backward.gamma),
                                 .addend = snug_matrix_of(run, op->norm_backward.addend),
                                 .eps = op->norm_backward.eps,
                                 .ds = snug_matrix_of(run, op->norm_backward.ds),
                                 .dz = snug_matrix_of(run, op->norm_backward.dz),
                                 .dgamma = snug_matrix_of(run, op->norm_backward.dgamma),
                                 .dbeta = snug_matrix_of(run, op->norm_backward.dbeta),
                                 .rows_like = op->norm_backward.ds};
    SNUG_KERNEL(norm_backward_rows)(run, op, &norm);
    return SNUG_OK;
}
