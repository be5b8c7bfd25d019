/* SPDX-License-Identifier: Apache-2.0 */
/* y = x / |x| by row, or x in another type; and its derivative. A warp has a row; rows after the last one become zero.
 */
#include "backend/cuda/device.cuh"

enum { WARPS = 8 };

template <typename X, typename D> static __device__ __forceinline__ float dot(const X *x, const D *d, int64_t cols) {
    float sum = 0;
    for (int64_t c = threadIdx.x; c < cols; c += 32) sum += to_float(x[c]) * to_float(d[c]);
    return warp_sum(sum);
}

template <typename X, typename Y>
static __global__ void normalize_kernel(Y *y, const X *x, struct snug_cuda_batch batch, int extent, int64_t rows,
                                        int64_t cols, bool unit) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (row >= rows) return;
    const bool live = row < live_rows(batch.step, extent, rows);
    x += row * cols;
    const float divisor = live && unit ? fmaxf(sqrtf(dot(x, x, cols)), SNUG_NORMALIZE_LEAST) : 1;
    for (int64_t c = threadIdx.x; c < cols; c += 32)
        y[row * cols + c] = from_float<Y>(live ? to_float(x[c]) / divisor : 0);
}

extern "C" snug_status snug_cuda_normalize(struct snug_run *run, const struct snug_op *op) {
    const struct snug_normalize &n = op->normalize;
    const int64_t rows = snug_cuda_rows(run, n.y), cols = snug_run_cols(run, n.y);
    const int extent = run->program->tensors[n.y].extent;
    void *y = snug_run_data(run, n.y);
    const void *x = snug_run_data(run, n.x);
    if (rows == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, n.x), [&](auto of_x) {
        typedef decltype(of_x) X;
        with_type(snug_run_dtype(run, n.y), [&](auto of_y) {
            typedef decltype(of_y) Y;
            normalize_kernel<X, Y><<<blocks_for(rows, WARPS), dim3(32, WARPS), 0, snug_cuda_of(run)->stream>>>(
                (Y *)y, (const X *)x, snug_cuda_of(run)->batch, extent, rows, cols, n.unit);
        });
    });
    return snug_cuda_done(run, op);
}

template <typename X, typename D>
static __global__ void normalize_backward_kernel(X *dx, const D *dy, const X *x, struct snug_cuda_batch batch,
                                                 int extent, int64_t rows, int64_t cols, bool unit) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (row >= rows) return;
    const bool live = row < live_rows(batch.step, extent, rows);
    x += row * cols;
    dy += row * cols;
    const float length = live && unit ? sqrtf(dot(x, x, cols)) : 1, divisor = fmaxf(length, SNUG_NORMALIZE_LEAST);
    const float along = live && unit && length > SNUG_NORMALIZE_LEAST ? dot(x, dy, cols) / length / length : 0;
    for (int64_t c = threadIdx.x; c < cols; c += 32)
        dx[row * cols + c] = from_float<X>(live ? (to_float(dy[c]) - to_float(x[c]) * along) / divisor : 0);
}

extern "C" snug_status snug_cuda_normalize_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_normalize_backward &n = op->normalize_backward;
    const int64_t rows = snug_cuda_rows(run, n.dx), cols = snug_run_cols(run, n.dx);
    const int extent = run->program->tensors[n.dx].extent;
    void *dx = snug_run_data(run, n.dx);
    const void *dy = snug_run_data(run, n.dy), *x = snug_run_data(run, n.x);
    if (rows == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, n.x), [&](auto of_x) {
        typedef decltype(of_x) X;
        with_type(snug_run_dtype(run, n.dy), [&](auto of_dy) {
            typedef decltype(of_dy) D;
            normalize_backward_kernel<X, D><<<blocks_for(rows, WARPS), dim3(32, WARPS), 0, snug_cuda_of(run)->stream>>>(
                (X *)dx, (const D *)dy, (const X *)x, snug_cuda_of(run)->batch, extent, rows, cols, n.unit);
        });
    });
    return snug_cuda_done(run, op);
}
