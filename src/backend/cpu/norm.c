/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation: with mean and variance (biased) of a row of s, and x = (s - mean) / sqrt(variance + eps),
 *   y = gamma x + beta.
 * Backward, with g = gamma dy and means over the row:
 *   ds = (g - mean(g) - x mean(g x)) / sqrt(variance + eps),   dgamma = sum of dy x over rows,   dbeta = sum of dy.
 * RMSNorm: the mean of s is taken as 0, and there is no mean(g). With a unit offset, gamma is 1 + the weight.
 * Mean and variance are recomputed from s: cheaper than storing and reading them.
 */
#include <math.h>

#include "backend/cpu/rows.h"

struct statistics {
    float mean, rstd; /* rstd = 1 / sqrt(biased variance + eps) */
};

/* Statistics of a row in scratch; overwrites the row's padding. */
static struct statistics row_statistics(float *s, int64_t n, const struct snug_norm_form *form) {
    vec sum[2] = {{0}}, squares[2] = {{0}};
    for (int64_t c = n; c < snug_cpu_padded(n); c++) s[c] = 0;
    for (int64_t c = 0; c < n && !form->rms; c += 2 * VEC_LANES) {
        sum[0] += vec_read(s + c);
        sum[1] += vec_read(s + c + VEC_LANES);
    }
    const float mean = form->rms ? 0 : vec_sum(sum[0] + sum[1]) / (float)n;
    for (int64_t c = n; c < snug_cpu_padded(n); c++) s[c] = mean;
    for (int64_t c = 0; c < n; c += 2 * VEC_LANES) {
        vec a = vec_read(s + c) - mean, b = vec_read(s + c + VEC_LANES) - mean;
        squares[0] = vec_fma(a, a, squares[0]);
        squares[1] = vec_fma(b, b, squares[1]);
    }
    return (struct statistics){mean, 1 / sqrtf(vec_sum(squares[0] + squares[1]) / (float)n + form->eps)};
}

static vec norm_gamma(struct snug_matrix gamma, int64_t c, const struct snug_norm_form *form) {
    const vec weight = vec_load(gamma.data, SNUG_F32, c, gamma.cols);
    return form->unit_offset ? weight + 1 : weight;
}

/* Row of y = mask * norm(s), s in scratch, rounded as it is stored; beta is optional, mask may be NULL. */
static void norm_row(struct snug_matrix y, int64_t row, float *s, struct snug_matrix gamma, struct snug_matrix beta,
                     const struct snug_norm_form *form, const float *mask) {
    struct statistics stat = row_statistics(s, y.cols, form);
    void *out = matrix_at(y, row, 0);
    for (int64_t c = 0; c < y.cols; c += VEC_LANES) {
        vec x = (vec_read(s + c) - stat.mean) * stat.rstd;
        vec shift = beta.data ? vec_load(beta.data, SNUG_F32, c, y.cols) : vec_all(0);
        vec norm = vec_fma(x, norm_gamma(gamma, c, form), shift);
        vec_store(out, y.dtype, c, y.cols, mask ? norm * vec_read(mask + c) : norm);
    }
}

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
        norm_row(y, row, sum, gamma, beta, &op->residual_norm.form, NULL);
    }
    return SNUG_OK;
}

/* m with each part of a row as a row. */
static struct snug_matrix parts_of(struct snug_matrix m, const struct snug_norm_form *form) {
    const int64_t parts = form->parts > 0 ? form->parts : 1;
    m.rows *= parts;
    m.cols /= parts;
    return m;
}

/* The mask of a row's dropout; parts have none. */
static const float *row_mask(float *mask, int64_t h, const struct snug_run *run, const struct snug_op *op, int32_t like,
                             int64_t row) {
    return op->p == 0 ? NULL : token_mask(mask, h, run, op, snug_run_token(run, like, row));
}

snug_status SNUG_KERNEL(norm)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_norm_form *form = &op->norm.form;
    struct snug_matrix s = parts_of(snug_matrix_of(run, op->norm.s), form),
                       y = parts_of(snug_matrix_of(run, op->norm.y), form);
    struct snug_matrix gamma = snug_matrix_of(run, op->norm.gamma), beta = snug_matrix_of(run, op->norm.beta);
    int64_t h = s.cols;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < s.rows; row++) {
        float *copy = scratch_rows(run, 2, h);
        const float *mask = row_mask(copy + snug_cpu_padded(h), h, run, op, op->norm.y, row);
        for (int64_t c = 0; c < h; c += VEC_LANES) vec_write(copy + c, vec_load(matrix_at(s, row, 0), s.dtype, c, h));
        norm_row(y, row, copy, gamma, beta, form, mask);
    }
    return SNUG_OK;
}

struct norm_backward {
    struct snug_matrix dy, s, gamma, addend; /* inputs; addend is optional */
    struct snug_matrix ds, dz;               /* outputs; ds may be dy or addend, dz is optional */
    struct snug_matrix dgamma, dbeta;        /* each is optional */
    struct snug_norm_form form;
    bool drops_y;
};

/* ds and dz of one row; its part of dgamma and dbeta is added to sums[0 …] and sums[padded …]. */
static void backward_row(const struct snug_run *run, const struct snug_op *op, const struct norm_backward *norm,
                         int64_t row, float *sums) {
    const int64_t h = norm->s.cols, padded = snug_cpu_padded(h);
    float *x = scratch_rows(run, 3, h), *g = x + padded;
    const void *s = matrix_at(norm->s, row, 0), *dy = matrix_at(norm->dy, row, 0);
    const bool needed = norm->drops_y || norm->dz.data;
    const float *mask = needed ? row_mask(g + padded, h, run, op, op->norm_backward.ds, row) : NULL;
    const float *mask_y = norm->drops_y ? mask : NULL;

    for (int64_t c = 0; c < h; c += VEC_LANES) vec_write(x + c, vec_load(s, norm->s.dtype, c, h));
    struct statistics stat = row_statistics(x, h, &norm->form);
    vec sum_g = {0}, sum_gx = {0};
    for (int64_t c = 0; c < h; c += VEC_LANES) {
        vec d = vec_load(dy, norm->dy.dtype, c, h), x_c = (vec_read(x + c) - stat.mean) * stat.rstd;
        if (mask_y) d *= vec_read(mask_y + c);
        vec_write(sums + c, vec_fma(d, x_c, vec_read(sums + c)));
        vec_write(sums + padded + c, vec_read(sums + padded + c) + d);
        vec g_c = d * norm_gamma(norm->gamma, c, &norm->form);
        sum_g += g_c;
        sum_gx = vec_fma(g_c, x_c, sum_gx);
        vec_write(x + c, x_c);
        vec_write(g + c, g_c);
    }
    const float mean_g = norm->form.rms ? 0 : vec_sum(sum_g) / (float)h, mean_gx = vec_sum(sum_gx) / (float)h;
    for (int64_t c = 0; c < h; c += VEC_LANES) {
        vec ds = vec_fma(vec_read(x + c), vec_all(-mean_gx), vec_read(g + c) - mean_g) * stat.rstd;
        if (norm->addend.data) ds += vec_load(matrix_at(norm->addend, row, 0), norm->addend.dtype, c, h);
        vec_store(matrix_at(norm->ds, row, 0), norm->ds.dtype, c, h, ds);
        if (!norm->dz.data) continue;
        vec_store(matrix_at(norm->dz, row, 0), norm->dz.dtype, c, h, mask ? ds * vec_read(mask + c) : ds);
    }
}

static void backward(struct snug_run *run, const struct snug_op *op, const struct norm_backward *norm) {
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
    const struct snug_norm_backward *n = &op->norm_backward;
    const struct norm_backward norm = {.dy = parts_of(snug_matrix_of(run, n->dy), &n->form),
                                       .s = parts_of(snug_matrix_of(run, n->s), &n->form),
                                       .gamma = snug_matrix_of(run, n->gamma),
                                       .addend = parts_of(snug_matrix_of(run, n->addend), &n->form),
                                       .ds = parts_of(snug_matrix_of(run, n->ds), &n->form),
                                       .dz = parts_of(snug_matrix_of(run, n->dz), &n->form),
                                       .dgamma = snug_matrix_of(run, n->dgamma),
                                       .dbeta = snug_matrix_of(run, n->dbeta),
                                       .form = n->form,
                                       .drops_y = n->drops_y};
    backward(run, op, &norm);
    return SNUG_OK;
}
