/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbours of each token as columns, and backward the sums of their gradients. A thread has an element of the
   result. */
#include "backend/cuda/device.cuh"

enum { THREADS = 256 };

/* Whether the token `by` places after a live token is in its sequence: then their places in it differ by as much. */
static __device__ __forceinline__ bool has_neighbour(const struct snug_cuda_batch &batch, int64_t token, int64_t by) {
    const int64_t other = token + by;
    return other >= 0 && other < batch.step->tokens && batch.positions[other] - batch.positions[token] == by;
}

template <typename T>
static __global__ void unfold_kernel(T *y, const T *x, struct snug_cuda_batch batch, int64_t cols, int width,
                                     int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t row = i / (cols * width), c = i % (cols * width);
    const int by = (int)(c % width) - width / 2;
    const bool has = row < batch.step->tokens && has_neighbour(batch, row, by);
    y[i] = has ? x[(row + by) * cols + c / width] : from_float<T>(0);
}

template <typename T>
static __global__ void unfold_backward_kernel(T *dx, const T *dy, struct snug_cuda_batch batch, int64_t cols, int width,
                                              int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t row = i / cols, c = i % cols;
    float sum = 0;
    for (int j = 0; j < width && row < batch.step->tokens; j++) {
        const int by = width / 2 - j;
        if (has_neighbour(batch, row, by)) sum += to_float(dy[((row + by) * cols + c) * width + j]);
    }
    dx[i] = from_float<T>(sum);
}

extern "C" snug_status snug_cuda_unfold(struct snug_run *run, const struct snug_op *op) {
    const int32_t x = op->unfold.x, y = op->unfold.y;
    const int64_t cols = snug_run_cols(run, x), width = snug_run_cols(run, y) / cols,
                  count = snug_cuda_rows(run, y) * cols * width;
    if (count == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, y), [&](auto type) {
        typedef decltype(type) T;
        unfold_kernel<<<blocks_for(count, THREADS), THREADS, 0, snug_cuda_of(run)->stream>>>(
            (T *)snug_run_data(run, y), (const T *)snug_run_data(run, x), snug_cuda_of(run)->batch, cols, (int)width,
            count);
    });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_unfold_backward(struct snug_run *run, const struct snug_op *op) {
    const int32_t dx = op->unfold_backward.dx, dy = op->unfold_backward.dy;
    const int64_t cols = snug_run_cols(run, dx), width = snug_run_cols(run, dy) / cols,
                  count = snug_cuda_rows(run, dx) * cols;
    if (count == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, dx), [&](auto type) {
        typedef decltype(type) T;
        unfold_backward_kernel<<<blocks_for(count, THREADS), THREADS, 0, snug_cuda_of(run)->stream>>>(
            (T *)snug_run_data(run, dx), (const T *)snug_run_data(run, dy), snug_cuda_of(run)->batch, cols, (int)width,
            count);
    });
    return snug_cuda_done(run, op);
}
