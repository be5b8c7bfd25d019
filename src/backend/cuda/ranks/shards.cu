/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the operations over ranks. */
#include <algorithm>

#include "backend/cuda/update/squares.cuh"

extern "C" {
#include "backend/cuda/ranks/ranks.h"
}

/* Sums take all multiprocessors for a short time: matmuls take all of them, too, so with fewer sums last longer, and
   the last blocks of every matmul beside them run alone. */
enum { THREADS = 512, AT_ONCE = 4, MOST_BLOCKS = 512 };

/* Blocks for each of the items of a launch: of blockIdx.y. */
static dim3 blocks_of(int64_t largest, int64_t each, int items) {
    return dim3((unsigned)std::min<int64_t>((largest + each - 1) / each, MOST_BLOCKS), (unsigned)items);
}

static __device__ float plus(float a, float b) { return a + b; }
static __device__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

/* The sums of AT_ONCE elements, stride apart, from element i on; those from count on are left out. */
template <typename T>
static __device__ void add_some(const struct snug_cuda_shard_sums &table, const struct snug_cuda_shard_sum &s,
                                int64_t i, int64_t count, int64_t stride, int rank, int contributors) {
    T *const to = (T *)s.to;
    const T *const own = (const T *)s.own, *const received = (const T *)s.received;
    T sums[AT_ONCE], values[AT_ONCE];
    for (int r = 0; r < contributors; r++) {
        const T *part = r == rank ? own : received + (r - (r > rank)) * count;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (i + k * stride < count) values[k] = part[i + k * stride];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (i + k * stride >= count) continue;
            if (r > 0)
                sums[k] = plus(sums[k], values[k]);
            else
                sums[k] = s.accumulate ? plus(to[i + k * stride], values[k]) : values[k];
        }
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        if (i + k * stride >= count) continue;
        to[i + k * stride] = sums[k];
        for (int o = 0; o < table.other_count && s.to_all; o++)
            *(T *)((uint8_t *)&to[i + k * stride] + table.others[o]) = sums[k];
    }
}

template <typename T>
static __device__ void add_item(const struct snug_cuda_shard_sums &table, const struct snug_cuda_shard_sum &s, int rank,
                                int contributors) {
    const int64_t stride = (int64_t)gridDim.x * THREADS, count = s.count * (int64_t)sizeof(float) / (int64_t)sizeof(T);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += AT_ONCE * stride)
        add_some<T>(table, s, i, count, stride, rank, contributors);
}

static __device__ bool is_aligned(const void *a, const void *b, const void *c) {
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & (sizeof(float4) - 1)) == 0;
}

static __global__ void __launch_bounds__(THREADS)
    add_shards(const __grid_constant__ struct snug_cuda_shard_sums sums, int rank, int contributors) {
    const struct snug_cuda_shard_sum &s = sums.items[blockIdx.y];
    if (s.count % 4 == 0 && is_aligned(s.to, s.own, s.received))
        add_item<float4>(sums, s, rank, contributors);
    else
        add_item<float>(sums, s, rank, contributors);
}

extern "C" void snug_cuda_add_shards(const struct snug_cuda_shard_sums *sums, int count, int rank, int contributors,
                                     cudaStream_t stream) {
    int64_t largest = 0;
    for (int i = 0; i < count; i++) largest = std::max(largest, sums->items[i].count);
    const dim3 blocks = blocks_of(largest, (int64_t)THREADS * AT_ONCE * sizeof(float4) / sizeof(float), count);
    if (count) add_shards<<<blocks, THREADS, 0, stream>>>(*sums, rank, contributors);
}

/* ---- sums and their squares: a thread block has a chunk ---- */

static __device__ void store_four(float *p, int64_t left, bool aligned, float4 v) {
    if (left >= 4 && aligned) {
        *(float4 *)p = v;
        return;
    }
    if (left > 0) p[0] = v.x;
    if (left > 1) p[1] = v.y;
    if (left > 2) p[2] = v.z;
    if (left > 3) p[3] = v.w;
}

/* The items' chunks are numbered one after the other. */
static __global__ void __launch_bounds__(SQUARE_THREADS)
    add_chunks(const struct snug_cuda_shard_sums sums, int rank, int contributors) {
    int n = 0;
    int64_t chunk = blockIdx.x;
    for (int64_t chunks; chunk >= (chunks = (sums.items[n].count + BLOCK - 1) / BLOCK); n++) chunk -= chunks;
    const struct snug_cuda_shard_sum s = sums.items[n];
    const bool aligned = s.count % 4 == 0 && is_aligned(s.to, s.own, s.received);
    const int64_t first = chunk * BLOCK, end = first + BLOCK < s.count ? first + BLOCK : s.count;
    double squares = 0;
    for (int64_t i = first + threadIdx.x * 4; i < end; i += AT_ONCE * SQUARE_THREADS * 4) {
        float4 total[AT_ONCE], values[AT_ONCE];
        for (int r = s.accumulate ? -1 : 0; r < contributors; r++) {
            const float *part = r < 0 ? s.to : r == rank ? s.own : s.received + (r - (r > rank)) * s.count;
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                const int64_t at = i + k * SQUARE_THREADS * 4;
                values[k] = load_four(part + at, end - at, aligned);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                total[k] = r < 0 || (r == 0 && !s.accumulate) ? values[k] : plus(total[k], values[k]);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t at = i + k * SQUARE_THREADS * 4;
            store_four(s.to + at, end - at, aligned, total[k]);
            squares = add_squares(squares, total[k], end - at);
        }
    }
    squares = block_sum<SQUARE_WARPS>(squares);
    if (threadIdx.x == 0) s.chunks[chunk] = squares;
}

extern "C" void snug_cuda_add_chunks(const struct snug_cuda_shard_sums *sums, int count, int rank, int contributors,
                                     cudaStream_t stream) {
    unsigned blocks = 0;
    for (int i = 0; i < count; i++) blocks += blocks_for(sums->items[i].count, BLOCK);
    if (blocks) add_chunks<<<blocks, SQUARE_THREADS, 0, stream>>>(*sums, rank, contributors);
}

/* ---- sparse gradients: a warp has a block ---- */

enum { LANES = 32, OF_LANE = SNUG_CUDA_SPARSE / LANES };

static __device__ int64_t block_of_warp() { return ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES; }

static unsigned warps_for(int64_t count) { return blocks_for(blocks_for(count, SNUG_CUDA_SPARSE), THREADS / LANES); }

static __global__ void __launch_bounds__(THREADS) mark_blocks(uint8_t *marks, const float *g, int64_t count) {
    const int64_t block = block_of_warp(), first = block * SNUG_CUDA_SPARSE + threadIdx.x % LANES;
    uint32_t bits = 0;
#pragma unroll
    for (int k = 0; k < OF_LANE; k++)
        if (first + k * LANES < count) bits |= __float_as_uint(g[first + k * LANES]);
    const bool marked = __any_sync(FULL_WARP, bits != 0);
    if (threadIdx.x % LANES == 0 && first < count) marks[block] = marked;
}

extern "C" void snug_cuda_mark_blocks(uint8_t *marks, const float *g, int64_t count, cudaStream_t stream) {
    mark_blocks<<<warps_for(count), THREADS, 0, stream>>>(marks, g, count);
}

static __global__ void __launch_bounds__(THREADS) add_sparse(const struct snug_cuda_sparse_sum s) {
    const int64_t block = block_of_warp(), first = block * SNUG_CUDA_SPARSE + threadIdx.x % LANES;
    uint32_t marked = 0;
    float sums[OF_LANE], values[OF_LANE];
    if (first >= s.count) return;
    for (int r = 0; r < s.contributors; r++) marked |= (uint32_t)s.marks[r * s.each + block] << r;
    const uint32_t written = marked ? ~0u : s.stale;
    if (!written) return;
    const int start = s.accumulate ? -1 : 0;
    for (int r = start; r < s.contributors; r++) {
        const float *part = r < 0 ? s.to[s.rank] : s.from[r];
        const bool read = r < 0 || marked >> r & 1;
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) values[k] = read && first + k * LANES < s.count ? part[first + k * LANES] : 0;
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) sums[k] = r == start ? values[k] : sums[k] + values[k];
    }
    for (int r = 0; r < s.ranks; r++) {
        if (!s.to[r] || !(written >> r & 1)) continue;
#pragma unroll
        for (int k = 0; k < OF_LANE; k++)
            if (first + k * LANES < s.count) s.to[r][first + k * LANES] = sums[k];
    }
}

extern "C" void snug_cuda_add_sparse(const struct snug_cuda_sparse_sum *sum, cudaStream_t stream) {
    if (sum->count) add_sparse<<<warps_for(sum->count), THREADS, 0, stream>>>(*sum);
}

/* ---- copies, also to other ranks ---- */

template <typename T, typename F> static __device__ void fill_item(const struct snug_cuda_fill &f) {
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    const F *const from = (const F *)f.from;
    T *const to = (T *)f.to;
#pragma unroll AT_ONCE
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < f.count; i += stride)
        if constexpr (std::is_same_v<T, F>)
            to[i] = from[i];
        else
            to[i] = from_float<T>(from[i]);
}

static __global__ void __launch_bounds__(THREADS) fill(const __grid_constant__ struct snug_cuda_fills fills) {
    const struct snug_cuda_fill &f = fills.items[blockIdx.y];
    if (f.from_dtype != SNUG_F32)
        fill_item<uint16_t, uint16_t>(f);
    else if (f.dtype == SNUG_F32)
        fill_item<float, float>(f);
    else if (f.dtype == SNUG_BF16)
        fill_item<bf16, float>(f);
    else
        fill_item<f16, float>(f);
}

extern "C" void snug_cuda_launch_fills(struct snug_cuda_fills *fills, cudaStream_t stream) {
    int64_t largest = 0;
    for (int i = 0; i < fills->count; i++) largest = std::max(largest, fills->items[i].count);
    const dim3 blocks = blocks_of(largest, THREADS * AT_ONCE, fills->count);
    if (fills->count) fill<<<blocks, THREADS, 0, stream>>>(*fills);
    fills->count = 0;
}

extern "C" void snug_cuda_add_fill(struct snug_cuda_fills *fills, struct snug_cuda_fill fill, cudaStream_t stream) {
    if (fill.count) fills->items[fills->count++] = fill;
    if (fills->count == SNUG_CUDA_FILLS) snug_cuda_launch_fills(fills, stream);
}
