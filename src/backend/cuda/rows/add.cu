/* SPDX-License-Identifier: Apache-2.0 */
/* y += x, element by element. */
#include "backend/cuda/device.cuh"

enum { THREADS = 256 };

template <typename T, int W> static __global__ void add_kernel(T *y, const T *x, int64_t count) {
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (first + W <= count) {
        float a[W], b[W];
        load<W>(a, y + first);
        load<W>(b, x + first);
#pragma unroll
        for (int i = 0; i < W; i++) a[i] += b[i];
        store<W>(y + first, a);
    } else {
        for (int64_t i = first; i < count; i++) y[i] = from_float<T>(to_float(y[i]) + to_float(x[i]));
    }
}

extern "C" snug_status snug_cuda_add(struct snug_run *run, const struct snug_op *op) {
    const int64_t count = snug_cuda_rows(run, op->add.y) * snug_run_cols(run, op->add.y);
    void *y = snug_run_data(run, op->add.y);
    const void *x = snug_run_data(run, op->add.x);
    if (count == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, op->add.y), [&](auto type) {
        typedef decltype(type) T;
        constexpr int W = 16 / (int)sizeof(T);
        add_kernel<T, W>
            <<<blocks_for(count, THREADS * W), THREADS, 0, snug_cuda_of(run)->stream>>>((T *)y, (const T *)x, count);
    });
    return snug_cuda_done(run, op);
}
