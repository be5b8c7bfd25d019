/* SPDX-License-Identifier: Apache-2.0 */
/* y = x / |x| by row, or x in another type; and its derivative. */
#include <math.h>

#include "backend/cpu/rows.h"

/* The sum over a row of a * b. */
static float dot(struct snug_matrix a, struct snug_matrix b, int64_t row) {
    vec sum = vec_all(0);
    for (int64_t c = 0; c < a.cols; c += VEC_LANES)
        sum = vec_fma(vec_load(matrix_at(a, row, 0), a.dtype, c, a.cols),
                      vec_load(matrix_at(b, row, 0), b.dtype, c, b.cols), sum);
    return vec_sum(sum);
}

snug_status SNUG_KERNEL(normalize)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix x = snug_matrix_of(run, op->normalize.x), y = snug_matrix_of(run, op->normalize.y);
    const bool unit = op->normalize.unit;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < y.rows; row++) {
        const float divisor = unit ? fmaxf(sqrtf(dot(x, x, row)), SNUG_NORMALIZE_LEAST) : 1;
        for (int64_t c = 0; c < y.cols; c += VEC_LANES)
            vec_store(matrix_at(y, row, 0), y.dtype, c, y.cols,
                      vec_load(matrix_at(x, row, 0), x.dtype, c, x.cols) / divisor);
    }
    return SNUG_OK;
}

snug_status SNUG_KERNEL(normalize_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_normalize_backward *n = &op->normalize_backward;
    const struct snug_matrix dy = snug_matrix_of(run, n->dy), x = snug_matrix_of(run, n->x),
                             dx = snug_matrix_of(run, n->dx);
    const bool unit = n->unit;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < dx.rows; row++) {
        const float length = unit ? sqrtf(dot(x, x, row)) : 1;
        const bool turns = unit && length > SNUG_NORMALIZE_LEAST;
        const float divisor = fmaxf(length, SNUG_NORMALIZE_LEAST);
        const float along = turns ? dot(x, dy, row) / length / length : 0;
        for (int64_t c = 0; c < dx.cols; c += VEC_LANES) {
            const vec across = vec_load(matrix_at(dy, row, 0), dy.dtype, c, dy.cols) -
                               vec_load(matrix_at(x, row, 0), x.dtype, c, x.cols) * along;
            vec_store(matrix_at(dx, row, 0), dx.dtype, c, dx.cols, across / divisor);
        }
    }
    return SNUG_OK;
}
