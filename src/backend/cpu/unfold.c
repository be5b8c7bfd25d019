/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbours of each token as columns, and backward the sums of their gradients. */
#include <string.h>

#include "backend/cpu/rows.h"

/* A token's neighbours that its sequence has: those of columns begin … end - 1 of `width`. */
struct span {
    int64_t begin, end;
};

/* back: the token is neighbour width - 1 - j of its neighbour j. */
static struct span span_of(const struct snug_batch *batch, int64_t token, int64_t width, bool back) {
    const int64_t sequence = snug_batch_sequence(batch, (int32_t)token), half = width / 2;
    const int64_t before = token - batch->offsets[sequence], after = batch->offsets[sequence + 1] - 1 - token;
    const int64_t left = before < half ? before : half, right = after < half ? after : half;
    return back ? (struct span){half - right, half + left + 1} : (struct span){half - left, half + right + 1};
}

/* Elements of `size` bytes, which is a constant where this is inlined. */
static inline void unfold_row(uint8_t *y, const uint8_t *x, size_t size, int64_t cols, int64_t width,
                              struct span span) {
    memset(y, 0, (size_t)(cols * width) * size);
    for (int64_t j = span.begin; j < span.end; j++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(y + (size_t)(c * width + j) * size, x + ((j - width / 2) * cols + c) * (int64_t)size, size);
}

snug_status SNUG_KERNEL(unfold)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix x = snug_matrix_of(run, op->unfold.x), y = snug_matrix_of(run, op->unfold.y);
    const int64_t width = y.cols / x.cols;
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < y.rows; row++) {
        const struct span span = span_of(run->batch, row, width, false);
        uint8_t *to = matrix_at(y, row, 0);
        const uint8_t *from = matrix_at(x, row, 0);
        if (y.dtype == SNUG_F32)
            unfold_row(to, from, sizeof(float), x.cols, width, span);
        else
            unfold_row(to, from, sizeof(uint16_t), x.cols, width, span);
    }
    return SNUG_OK;
}

snug_status SNUG_KERNEL(unfold_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix dy = snug_matrix_of(run, op->unfold_backward.dy),
                             dx = snug_matrix_of(run, op->unfold_backward.dx);
    const int64_t width = dy.cols / dx.cols;
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < dx.rows; row++) {
        const struct span span = span_of(run->batch, row, width, true);
        for (int64_t c = 0; c < dx.cols; c++) {
            float sum = 0;
            for (int64_t j = span.begin; j < span.end; j++) {
                const void *at = matrix_at(dy, row + width / 2 - j, c * width + j);
                sum += dy.dtype == SNUG_F32 ? *(const float *)at : snug_half_to_f32(dy.dtype, *(const uint16_t *)at);
            }
            void *to = matrix_at(dx, row, c);
            if (dx.dtype == SNUG_F32)
                *(float *)to = sum;
            else
                *(uint16_t *)to = snug_f32_to_half(dx.dtype, sum);
        }
    }
    return SNUG_OK;
}
