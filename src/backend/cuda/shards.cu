/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the operations over ranks. */
#include "backend/cuda/squares.cuh"

extern "C" {
#include "backend/cuda/ranks.h"
}

/* Sums take all multiprocessors for a short time: matmuls take all of them, too, so with fewer sums last longer, and
   the last blocks of every matmul beside them run alone. */
enum { THREADS = 512, AT_ONCE = 4, EACH = 4, FILL_BLOCKS = 256, SUM_BLOCKS = 512 };

static __device__ float plus(float a, float b) { return a + b; }
static __device__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

/* The sums of AT_ONCE elements, stride apart, from element i on; those from count on are left out. */
template <typename T>
static __device__ void add_some(T *to, const T *own, const T *received, int64_t i, int64_t count, int64_t stride,
                                bool accumulate, int rank, int contributors) {
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
                sums[k] = accumulate ? plus(to[i + k * stride], values[k]) : values[k];
        }
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        if (i + k * stride < count) to[i + k * stride] = sums[k];
}

template <typename T>
static __device__ void add_item(T *to, const T *own, const T *received, int64_t count, bool accumulate, int rank,
                                int contributors) {
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += AT_ONCE * stride)
        add_some(to, own, received, i, count, stride, accumulate, rank, contributors);
}

static __device__ bool is_aligned(const void *a, const void *b, const void *c) {
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & (sizeof(float4) - 1)) == 0;
}

static __global__ void __launch_bounds__(THREADS)
    add_shards(const struct snug_cuda_shard_sums sums, int items, int rank, int contributors) {
    for (int n = 0; n < items; n++) {
        const struct snug_cuda_shard_sum s = sums.items[n];
        if (s.count % 4 == 0 && is_aligned(s.to, s.own, s.received))
            add_item((float4 *)s.to, (const float4 *)s.own, (const float4 *)s.received, s.count / 4, s.accumulate, rank,
                     contributors);
        else
            add_item(s.to, s.own, s.received, s.count, s.accumulate, rank, contributors);
    }
}

extern "C" void snug_cuda_add_shards(const struct snug_cuda_shard_sums *sums, int count, int rank, int contributors,
                                     cudaStream_t stream) {
    const int64_t each = (int64_t)THREADS * AT_ONCE * sizeof(float4) / sizeof(float);
    int64_t largest = 0;
    for (int i = 0; i < count; i++)
        if (sums->items[i].count > largest) largest = sums->items[i].count;
    const int64_t blocks = (largest + each - 1) / each;
    if (count)
        add_shards<<<(unsigned)(blocks < SUM_BLOCKS ? blocks : SUM_BLOCKS), THREADS, 0, stream>>>(*sums, count, rank,
                                                                                                  contributors);
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
    squares = block_sum(squares);
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

template <typename T> static __global__ void __launch_bounds__(THREADS) fill(T *to, const float *from, int64_t count) {
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride)
        to[i] = from_float<T>(from[i]);
}

extern "C" void snug_cuda_fill_shard(void *to, enum snug_dtype dtype, const float *from, int64_t count,
                                     cudaStream_t stream) {
    const int64_t blocks = (count + THREADS * EACH - 1) / (THREADS * EACH);
    if (count == 0) return;
    with_type(dtype, [&](auto type) {
        fill<<<(unsigned)(blocks < FILL_BLOCKS ? blocks : FILL_BLOCKS), THREADS, 0, stream>>>((decltype(type) *)to, from, count);
    });
}
