/* SPDX-License-Identifier: Apache-2.0 */
/* y = cap(scale x) + addend, and its derivative, element by element. */
#include "backend/cuda/device.cuh"

enum { THREADS = 256 };

template <typename T>
static __global__ void scale_kernel(T *y, const T *x, const T *addend, float scale, float softcap, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const float scaled = to_float(x[i]) * scale;
    const float capped = softcap > 0 ? softcap * tanhf(scaled / softcap) : scaled;
    y[i] = from_float<T>(addend ? capped + to_float(addend[i]) : capped);
}

extern "C" snug_status snug_cuda_scale(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale &s = op->scale;
    const int64_t count = snug_cuda_rows(run, s.y) * snug_run_cols(run, s.y);
    void *y = snug_run_data(run, s.y);
    const void *x = snug_run_data(run, s.x), *addend = s.addend ? snug_run_data(run, s.addend) : NULL;
    if (count == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, s.y), [&](auto type) {
        typedef decltype(type) T;
        scale_kernel<T><<<blocks_for(count, THREADS), THREADS, 0, snug_cuda_of(run)->stream>>>(
            (T *)y, (const T *)x, (const T *)addend, s.scale, s.softcap, count);
    });
    return snug_cuda_done(run, op);
}

template <typename T, typename Y>
static __global__ void scale_backward_kernel(T *dx, const T *dy, const Y *y, float scale, float softcap,
                                             int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const float t = to_float(y[i]) / softcap;
    dx[i] = from_float<T>(to_float(dy[i]) * scale * (1 - t * t));
}

extern "C" snug_status snug_cuda_scale_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale_backward &s = op->scale_backward;
    const int64_t count = snug_cuda_rows(run, s.dx) * snug_run_cols(run, s.dx);
    void *dx = snug_run_data(run, s.dx);
    const void *dy = snug_run_data(run, s.dy), *y = snug_run_data(run, s.y);
    if (count == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, s.dx), [&](auto type) {
        typedef decltype(type) T;
        with_type(snug_run_dtype(run, s.y), [&](auto stored) {
            typedef decltype(stored) Y;
            scale_backward_kernel<T, Y><<<blocks_for(count, THREADS), THREADS, 0, snug_cuda_of(run)->stream>>>(
                (T *)dx, (const T *)dy, (const Y *)y, s.scale, s.softcap, count);
        });
    });
    return snug_cuda_done(run, op);
}
