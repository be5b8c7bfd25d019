/* SPDX-License-Identifier: Apache-2.0 */
/* y = x with columns of z, and backward: dz = those columns of dy, dx = dy without them. */
#include "backend/cpu/rows.h"

static float value_at(struct snug_matrix m, int64_t row, int64_t c) {
    const void *at = matrix_at(m, row, c);
    return m.dtype == SNUG_F32 ? *(const float *)at : snug_half_to_f32(m.dtype, *(const uint16_t *)at);
}

static void set_value(struct snug_matrix m, int64_t row, int64_t c, float value) {
    void *at = matrix_at(m, row, c);
    if (m.dtype == SNUG_F32)
        *(float *)at = value;
    else
        *(uint16_t *)at = snug_f32_to_half(m.dtype, value);
}

static void copy_row(struct snug_matrix to, struct snug_matrix from, int64_t row) {
    if (to.data != from.data)
        memcpy(matrix_at(to, row, 0), matrix_at(from, row, 0), (size_t)(to.cols * snug_dtype_size(to.dtype)));
}

snug_status SNUG_KERNEL(token_columns)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_token_columns *s = &op->token_columns;
    const struct snug_matrix x = snug_matrix_of(run, s->x), z = snug_matrix_of(run, s->z),
                             y = snug_matrix_of(run, s->y);
    const struct snug_tokens tokens = snug_tokens_of(run, s->tokens, z.cols);
    const float *b = snug_run_data(run, s->b);
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < y.rows; row++) {
        copy_row(y, x, row);
        for (int64_t k = 0; k < z.cols; k++)
            set_value(y, row, tokens.ids[k], value_at(z, row, k) + (b ? b[tokens.ids[k]] : 0));
    }
    return SNUG_OK;
}

snug_status SNUG_KERNEL(token_columns_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_token_columns_backward *s = &op->token_columns_backward;
    const struct snug_matrix dy = snug_matrix_of(run, s->dy), dx = snug_matrix_of(run, s->dx),
                             dz = snug_matrix_of(run, s->dz);
    const struct snug_tokens tokens = snug_tokens_of(run, s->tokens, dz.cols);
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < dy.rows; row++) {
        for (int64_t k = 0; k < dz.cols; k++) set_value(dz, row, k, value_at(dy, row, tokens.ids[k]));
        if (!dx.data) continue;
        copy_row(dx, dy, row);
        for (int64_t k = 0; k < dz.cols; k++) set_value(dx, row, tokens.ids[k], 0);
    }
    return SNUG_OK;
}
