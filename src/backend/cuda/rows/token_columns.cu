/* SPDX-License-Identifier: Apache-2.0 */
/* y = x with columns of z, and backward: dz = those columns of dy, dx = dy without them. A thread has a value of z. */
#include "backend/cuda/device.cuh"

enum { THREADS = 256 };

template <typename T>
static __global__ void token_columns_kernel(T *y, const T *z, const float *b, const int32_t *ids, int64_t columns,
                                            int64_t vocabulary, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t id = ids[i % columns];
    y[i / columns * vocabulary + id] = from_float<T>(to_float(z[i]) + (b ? b[id] : 0));
}

template <typename T>
static __global__ void token_columns_backward_kernel(T *dz, T *dx, const T *dy, const int32_t *ids, int64_t columns,
                                                     int64_t vocabulary, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t at = i / columns * vocabulary + ids[i % columns];
    dz[i] = dy[at];
    if (dx) dx[at] = from_float<T>(0);
}

/* The other columns, unless they are in place. */
static void copy_all(struct snug_run *run, int32_t to, int32_t from) {
    void *target = snug_run_data(run, to);
    const void *source = snug_run_data(run, from);
    const size_t bytes = (size_t)(snug_cuda_rows(run, from) * snug_run_cols(run, from)) *
                         (size_t)snug_dtype_size(snug_run_dtype(run, from));
    if (target && target != source)
        cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, snug_cuda_of(run)->stream);
}

extern "C" snug_status snug_cuda_token_columns(struct snug_run *run, const struct snug_op *op) {
    const struct snug_token_columns &c = op->token_columns;
    const int64_t columns = snug_run_cols(run, c.z), count = snug_cuda_rows(run, c.z) * columns;
    if (count == 0) return SNUG_OK;
    copy_all(run, c.y, c.x);
    with_type(snug_run_dtype(run, c.y), [&](auto type) {
        typedef decltype(type) T;
        token_columns_kernel<T><<<blocks_for(count, THREADS), THREADS, 0, snug_cuda_of(run)->stream>>>(
            (T *)snug_run_data(run, c.y), (const T *)snug_run_data(run, c.z), (const float *)snug_run_data(run, c.b),
            snug_tokens_of(run, c.tokens, columns).ids, columns, snug_run_cols(run, c.y), count);
    });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_token_columns_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_token_columns_backward &c = op->token_columns_backward;
    const int64_t columns = snug_run_cols(run, c.dz), count = snug_cuda_rows(run, c.dz) * columns;
    if (count == 0) return SNUG_OK;
    copy_all(run, c.dx, c.dy);
    with_type(snug_run_dtype(run, c.dy), [&](auto type) {
        typedef decltype(type) T;
        token_columns_backward_kernel<T><<<blocks_for(count, THREADS), THREADS, 0, snug_cuda_of(run)->stream>>>(
            (T *)snug_run_data(run, c.dz), (T *)snug_run_data(run, c.dx), (const T *)snug_run_data(run, c.dy),
            snug_tokens_of(run, c.tokens, columns).ids, columns, snug_run_cols(run, c.dy), count);
    });
    return snug_cuda_done(run, op);
}
