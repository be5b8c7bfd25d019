/* SPDX-License-Identifier: Apache-2.0 */
/* y = table;  dtable += dy */
#include "backend/cuda/device.cuh"

enum { THREADS = 256 };

template <typename Y, typename X> static __global__ void copy_kernel(Y *y, const X *x, int64_t count, bool adds) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) y[i] = from_float<Y>((adds ? to_float(y[i]) : 0) + to_float(x[i]));
}

/* y = x, or += */
static snug_status copy(struct snug_run *run, const struct snug_op *op, int32_t x, int32_t y, bool adds) {
    const int64_t count = snug_run_rows(run, y) * snug_run_cols(run, y);
    void *to = snug_run_data(run, y);
    const void *from = snug_run_data(run, x);
    with_type(snug_run_dtype(run, y), [&](auto type) {
        typedef decltype(type) Y;
        with_type(snug_run_dtype(run, x), [&](auto stored) {
            typedef decltype(stored) X;
            copy_kernel<Y, X><<<blocks_for(count, THREADS), THREADS, 0, snug_cuda_of(run)->stream>>>(
                (Y *)to, (const X *)from, count, adds);
        });
    });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_table(struct snug_run *run, const struct snug_op *op) {
    return copy(run, op, op->table.table, op->table.y, false);
}

extern "C" snug_status snug_cuda_table_backward(struct snug_run *run, const struct snug_op *op) {
    return copy(run, op, op->table_backward.dy, op->table_backward.dtable, !snug_run_overwrites(run, op));
}
