/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the operations over ranks. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "backend/cuda/ranks.h"
}

enum { THREADS = 256, EACH = 4, BLOCKS = 256 };

/* A row of blocks for each gradient; the elements of a thread are far apart, so that a warp reads without gaps. */
static __global__ void __launch_bounds__(THREADS)
    add_shards(const struct snug_cuda_shard_sums sums, int rank, int contributors) {
    const struct snug_cuda_shard_sum s = sums.items[blockIdx.y];
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < s.count; i += stride) {
        const float first = rank == 0 ? s.own[i] : s.received[i];
        float sum = s.accumulate ? s.to[i] + first : first;
        for (int r = 1; r < contributors; r++) sum += r == rank ? s.own[i] : s.received[r * s.count + i];
        s.to[i] = sum;
    }
}

extern "C" void snug_cuda_add_shards(const struct snug_cuda_shard_sums *sums, int count, int rank, int contributors,
                                     cudaStream_t stream) {
    int64_t most = 0;
    for (int i = 0; i < count; i++)
        if (sums->items[i].count > most) most = sums->items[i].count;
    const int64_t blocks = (most + THREADS * EACH - 1) / (THREADS * EACH);
    if (blocks > 0)
        add_shards<<<dim3((unsigned)(blocks < BLOCKS ? blocks : BLOCKS), (unsigned)count), THREADS, 0, stream>>>(
            *sums, rank, contributors);
}

template <typename T> static __global__ void __launch_bounds__(THREADS) fill(T *to, const float *from, int64_t count) {
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride) to[i] = from_float<T>(from[i]);
}

extern "C" void snug_cuda_fill_shard(void *to, enum snug_dtype dtype, const float *from, int64_t count,
                                     cudaStream_t stream) {
    const int64_t blocks = (count + THREADS * EACH - 1) / (THREADS * EACH);
    if (count == 0) return;
    with_type(dtype, [&](auto type) {
        fill<<<(unsigned)(blocks < BLOCKS ? blocks : BLOCKS), THREADS, 0, stream>>>((decltype(type) *)to, from, count);
    });
}
