/* SPDX-License-Identifier: Apache-2.0 */
/* y = cap(scale x) + addend */
#include "backend/cpu/rows.h"

snug_status SNUG_KERNEL(scale)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix x = snug_matrix_of(run, op->scale.x), addend = snug_matrix_of(run, op->scale.addend),
                             y = snug_matrix_of(run, op->scale.y);
    const float scale = op->scale.scale, cap = op->scale.softcap;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c += VEC_LANES) {
            vec v = vec_load(matrix_at(x, row, 0), x.dtype, c, y.cols) * scale;
            if (cap > 0) v = vec_tanh(v / cap) * cap;
            if (addend.data) v += vec_load(matrix_at(addend, row, 0), addend.dtype, c, y.cols);
            vec_store(matrix_at(y, row, 0), y.dtype, c, y.cols, v);
        }
    return SNUG_OK;
}

/* dx = dy scale (1 - (y / softcap)^2) */
snug_status SNUG_KERNEL(scale_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix dy = snug_matrix_of(run, op->scale_backward.dy),
                             y = snug_matrix_of(run, op->scale_backward.y),
                             dx = snug_matrix_of(run, op->scale_backward.dx);
    const float scale = op->scale_backward.scale, cap = op->scale_backward.softcap;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c += VEC_LANES) {
            const vec t = vec_load(matrix_at(y, row, 0), y.dtype, c, y.cols) / cap;
            const vec slope = vec_fma(-t, t, vec_all(1)) * scale;
            vec_store(matrix_at(dx, row, 0), dx.dtype, c, y.cols,
                      vec_load(matrix_at(dy, row, 0), dy.dtype, c, y.cols) * slope);
        }
    return SNUG_OK;
}
