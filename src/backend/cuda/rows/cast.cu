/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/device.cuh"

template <typename T> static __global__ void cast_kernel(T *to, const float *from, int64_t count) {
    const int64_t first = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 8;
    if (first + 8 <= count) {
        float v[8];
        load<8>(v, from + first);
        store<8>(to + first, v);
    } else {
        for (int64_t i = first; i < count; i++) to[i] = from_float<T>(from[i]);
    }
}

extern "C" snug_status snug_cuda_cast(struct snug_run *run, const struct snug_op *op) {
    const int64_t count = snug_run_rows(run, op->cast.p) * snug_run_cols(run, op->cast.p);
    const float *from = (const float *)snug_run_data(run, op->cast.p);
    void *to = snug_run_data(run, op->cast.q);
    if (count > 0)
        with_type(snug_run_dtype(run, op->cast.q), [&](auto type) {
            cast_kernel<<<blocks_for(count, 8 * 256), 256, 0, snug_cuda_of(run)->stream>>>((decltype(type) *)to, from,
                                                                                           count);
        });
    return snug_cuda_done(run, op);
}
