/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DoRA: inverse = 1 / |rows of w + scale b a|,  y = x m inverse + b + addend
 *       dx = dy m inverse,  dm = sum over rows of dy x inverse,  db = sum of dy
 */
#include <math.h>

#include "backend/cpu/rows.h"

/* Of the rows of w. */
static void lengths_of_rows(const struct snug_run *run, struct snug_matrix w, struct snug_matrix a,
                            struct snug_matrix b, float scale, float *inverse) {
#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t n = 0; n < b.rows; n++) {
        const float *of = (const float *)b.data + n * b.cols;
        vec squares = vec_all(0);
        for (int64_t c = 0; c < a.cols; c += VEC_LANES) {
            vec v = vec_load(matrix_at(w, n, 0), w.dtype, c, a.cols);
            for (int64_t k = 0; k < a.rows; k++)
                v = vec_fma(vec_all(scale * of[k]), vec_load(matrix_at(a, k, 0), SNUG_F32, c, a.cols), v);
            squares = vec_fma(v, v, squares);
        }
        inverse[n] = 1 / sqrtf(vec_sum(squares));
    }
}

/* Of the columns of w, a vector of them at a time, for which b's values are laid out in scratch. */
static void lengths_of_columns(const struct snug_run *run, struct snug_matrix w, struct snug_matrix a,
                               struct snug_matrix b, float scale, float *inverse) {
#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t n = 0; n < b.rows; n += VEC_LANES) {
        float *of = scratch_rows(run, 1, b.cols * VEC_LANES);
        for (int64_t k = 0; k < b.cols * VEC_LANES; k++) {
            const int64_t row = n + k % VEC_LANES;
            of[k] = row < b.rows ? scale * ((const float *)b.data)[row * b.cols + k / VEC_LANES] : 0;
        }
        vec squares = vec_all(0);
        for (int64_t i = 0; i < a.cols; i++) {
            vec v = vec_load(matrix_at(w, i, 0), w.dtype, n, b.rows);
            for (int64_t k = 0; k < a.rows; k++)
                v = vec_fma(vec_all(((const float *)a.data)[k * a.cols + i]), vec_read(of + k * VEC_LANES), v);
            squares = vec_fma(v, v, squares);
        }
        vec_store(inverse, SNUG_F32, n, b.rows, 1 / vec_sqrt(squares));
    }
}

snug_status SNUG_KERNEL(row_lengths)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_row_lengths *l = &op->row_lengths;
    (l->transposed ? lengths_of_columns : lengths_of_rows)(run, snug_matrix_of(run, l->w), snug_matrix_of(run, l->a),
                                                           snug_matrix_of(run, l->b), l->scale,
                                                           snug_run_data(run, l->inverse));
    return SNUG_OK;
}

static vec factor_of(struct snug_matrix m, struct snug_matrix inverse, int64_t c) {
    return vec_load(m.data, SNUG_F32, c, m.cols) * vec_load(inverse.data, SNUG_F32, c, m.cols);
}

snug_status SNUG_KERNEL(scale_columns)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale_columns *s = &op->scale_columns;
    const struct snug_matrix x = snug_matrix_of(run, s->x), m = snug_matrix_of(run, s->m),
                             inverse = snug_matrix_of(run, s->inverse), b = snug_matrix_of(run, s->b),
                             addend = snug_matrix_of(run, s->addend), y = snug_matrix_of(run, s->y);
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c += VEC_LANES) {
            vec v = vec_load(matrix_at(x, row, 0), x.dtype, c, y.cols) * factor_of(m, inverse, c);
            if (b.data) v += vec_load(b.data, SNUG_F32, c, y.cols);
            if (addend.data) v += vec_load(matrix_at(addend, row, 0), addend.dtype, c, y.cols);
            vec_store(matrix_at(y, row, 0), y.dtype, c, y.cols, v);
        }
    return SNUG_OK;
}

static void add_gradient(struct snug_matrix gradient, int64_t c, vec sum, bool overwrites) {
    if (!gradient.data) return;
    if (!overwrites) sum += vec_load(gradient.data, SNUG_F32, c, gradient.cols);
    vec_store(gradient.data, SNUG_F32, c, gradient.cols, sum);
}

/* A thread has whole columns, so that the order of their sums does not depend on the threads. */
snug_status SNUG_KERNEL(scale_columns_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale_columns_backward *s = &op->scale_columns_backward;
    const struct snug_matrix dy = snug_matrix_of(run, s->dy), x = snug_matrix_of(run, s->x),
                             m = snug_matrix_of(run, s->m), inverse = snug_matrix_of(run, s->inverse),
                             dx = snug_matrix_of(run, s->dx), dm = snug_matrix_of(run, s->dm),
                             db = snug_matrix_of(run, s->db);
    const bool overwrites = snug_run_overwrites(run, op);
#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t c = 0; c < dy.cols; c += VEC_LANES) {
        const vec factor = factor_of(m, inverse, c);
        vec products = vec_all(0), sum = vec_all(0);
        for (int64_t row = 0; row < dy.rows; row++) {
            const vec d = vec_load(matrix_at(dy, row, 0), dy.dtype, c, dy.cols);
            products = vec_fma(d, vec_load(matrix_at(x, row, 0), x.dtype, c, dy.cols), products);
            sum += d;
            vec_store(matrix_at(dx, row, 0), dx.dtype, c, dy.cols, d * factor);
        }
        add_gradient(dm, c, products * vec_load(inverse.data, SNUG_F32, c, dy.cols), overwrites);
        add_gradient(db, c, sum, overwrites);
    }
    return SNUG_OK;
}
