/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINEAR of 9 to 64 rows in 16 bits, in generation: the time is that of reading w once. A block has 64 rows of w, 16 of
 * each warp, and all rows of x; it copies both in tiles of 64 channels, several tiles ahead. The first tiles of w are
 * copied before the operation that computes x is done. Where w has few rows, several blocks divide its channels: each
 * leaves its sums, and the last one that is done adds those of all in their order. How they are divided does not depend
 * on the rows of x, nor on the GPU.
 */
#include "backend/cuda/mma.cuh"

extern "C" {
#include "backend/cuda/matmul/matmul.h"
}

enum {
    LEAST = 9, /* rows of x; few_rows.cu has those of fewer */
    MOST = 64,
    WARPS = 4,
    THREADS = 32 * WARPS,
    ROWS = 16 * WARPS, /* of w, in a block */
    CHANNELS = 64,     /* of a tile */
    BYTES = 2 * CHANNELS,
    PIECES = BYTES / 16, /* in a tile's row */
    STAGES = 6,
    LEAST_TILES = 4, /* of a part of the channels */
    LINE = ROWS + 4  /* sums of a row of x in shared memory: four rows are in different banks */
};

struct streamed {
    const void *x, *w, *addend;
    const float *bias;
    void *y;
    float *partial; /* [blocks, parts, 8 TILES, ROWS] */
    uint32_t *arrivals;
    int64_t n, k, ldx; /* elements from a row of x to the next one */
    int64_t each;      /* channels of a part */
    int m;
    bool early; /* w may be read before earlier operations are done */
};

/* Starts copying a tile of w from channel k0 on; what is after its last row or channel becomes zero. */
template <typename T> static __device__ __forceinline__ void copy_w(uint4 *to, const struct streamed &a, int64_t k0) {
    const int64_t first = (int64_t)blockIdx.x * ROWS;
#pragma unroll
    for (int i = 0; i < ROWS * PIECES / THREADS; i++) {
        const int at = i * THREADS + threadIdx.x, row = at / PIECES, piece = at % PIECES;
        const bool there = first + row < a.n && k0 + 8 * piece < a.k;
        copy16(to + piece_of<BYTES>(row, piece),
               there ? (const T *)a.w + (first + row) * a.k + k0 + 8 * piece : (const T *)a.w, there);
    }
}

/* Where piece i of a tile of x is, or NULL. */
template <typename T>
static __device__ __forceinline__ const T *piece_of_x(const struct streamed &a, int i, int64_t k0) {
    const int row = i / PIECES, piece = i % PIECES;
    return row < a.m && k0 + 8 * piece < a.k ? (const T *)a.x + row * a.ldx + k0 + 8 * piece : nullptr;
}

template <typename T, int TILES>
static __device__ __forceinline__ void copy_x(uint4 *to, const struct streamed &a, int64_t k0) {
#pragma unroll
    for (int i = 0; i < 8 * TILES * PIECES / THREADS; i++) {
        const int at = i * THREADS + threadIdx.x;
        const T *from = piece_of_x<T>(a, at, k0);
        copy16(to + piece_of<BYTES>(at / PIECES, at % PIECES), from ? from : (const T *)a.x, from);
    }
}

/* The first tiles of x, which are needed at once: an asynchronous copy would have to wait for those of w. */
template <typename T, int TILES>
static __device__ __forceinline__ void load_x(uint4 *to, int stage, const struct streamed &a, int64_t begin,
                                              int tiles) {
    constexpr int EACH = 8 * TILES * PIECES / THREADS;
    uint4 v[STAGES - 1][EACH];
#pragma unroll
    for (int t = 0; t < STAGES - 1; t++)
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const T *from = piece_of_x<T>(a, i * THREADS + threadIdx.x, begin + t * CHANNELS);
            v[t][i] = from && t < tiles ? *(const uint4 *)from : uint4{0, 0, 0, 0};
        }
#pragma unroll
    for (int t = 0; t < STAGES - 1; t++)
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = i * THREADS + threadIdx.x;
            to[t * stage + piece_of<BYTES>(at / PIECES, at % PIECES)] = v[t][i];
        }
}

/* sums += w x^T of a tile, of the warp's 16 rows of w. */
template <typename T, int TILES>
static __device__ __forceinline__ void multiply(float (&sums)[TILES][4], uint32_t w, uint32_t x) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < CHANNELS / 16; k++) {
        uint32_t left[4];
        load_matrices(left, w + 16 * piece_of<BYTES>(16 * warp + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int i = 0; i < TILES; i += 2) {
            uint32_t right[4];
            load_matrices(right, x + 16 * piece_of<BYTES>(8 * i + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
            mma<T>(sums[i], left, right[0], right[1]);
            mma<T>(sums[i + 1], left, right[2], right[3]);
        }
    }
}

/* Four outputs of a row of x from their sums. */
template <typename Y>
static __device__ __forceinline__ void store_outputs(const struct streamed &a, int row, int column, const float4 &sum) {
    const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
    if (row >= a.m) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64_t n = (int64_t)blockIdx.x * ROWS + column + i, at = row * a.n + n;
        if (n >= a.n) return;
        float value = sums[i] + (a.bias ? a.bias[n] : 0);
        if (a.addend) value += to_float(((const Y *)a.addend)[at]);
        ((Y *)a.y)[at] = from_float<Y>(value);
    }
}

template <typename T, typename Y, int TILES>
static __global__ void __launch_bounds__(THREADS, 2) streamed_kernel(const struct streamed a) {
    constexpr int X = ROWS * PIECES, STAGE = X + 8 * TILES * PIECES, QUADS = 8 * TILES * ROWS / 4;
    extern __shared__ __align__(128) uint4 shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t begin = blockIdx.y * a.each, end = begin + a.each < a.k ? begin + a.each : a.k;
    const int tiles = (int)((end - begin + CHANNELS - 1) / CHANNELS);
    float sums[TILES][4] = {};
    if (!is_compiled<T>()) return;
    start_next();
    if (!a.early) wait_before();
    for (int t = 0; t < STAGES - 1; t++) {
        if (t < tiles) copy_w<T>(shared + t * STAGE, a, begin + t * CHANNELS);
        commit_copies();
    }
    wait_before();
    load_x<T, TILES>(shared + X, STAGE, a, begin, tiles);
    for (int t = 0; t < tiles; t++) {
        const int next = t + STAGES - 1;
        uint4 *const stage = shared + t % STAGES * STAGE, *const to = shared + next % STAGES * STAGE;
        wait_copies<STAGES - 2>();
        __syncthreads();
        if (next < tiles) {
            copy_w<T>(to, a, begin + next * CHANNELS);
            copy_x<T, TILES>(to + X, a, begin + next * CHANNELS);
        }
        commit_copies();
        multiply<T, TILES>(sums, shared_address(stage), shared_address(stage + X));
    }
    wait_copies<0>();
    __syncthreads();
    float *const own = (float *)shared;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            own[(8 * i + lane % 4 * 2 + c % 2) * LINE + 16 * warp + lane / 4 + c / 2 * 8] = sums[i][c];
    __syncthreads();
    const int64_t part = 4 * QUADS;
    float *const parts = a.partial + blockIdx.x * gridDim.y * part;
    for (int i = threadIdx.x; i < QUADS; i += THREADS) {
        const int row = i / (ROWS / 4), column = i % (ROWS / 4) * 4;
        const float4 sum = *(const float4 *)(own + row * LINE + column);
        if (gridDim.y == 1)
            store_outputs<Y>(a, row, column, sum);
        else
            *(float4 *)(parts + blockIdx.y * part + 4 * i) = sum;
    }
    if (gridDim.y == 1 || !is_last_to_arrive(a.arrivals + blockIdx.x, gridDim.y)) return;
    for (int i = threadIdx.x; i < QUADS; i += THREADS) {
        float4 sum = {0, 0, 0, 0};
#pragma unroll 8
        for (int p = 0; p < (int)gridDim.y; p++) {
            const float4 v = *(const float4 *)(parts + p * part + 4 * i);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        store_outputs<Y>(a, i / (ROWS / 4), i % (ROWS / 4) * 4, sum);
    }
}

/* ---- which matmuls ---- */

/* Programs that generate alone, as in few_rows.cu. */
extern "C" bool snug_cuda_takes_streamed(const struct snug_run *run, const struct snug_op *op,
                                         const struct snug_cuda_matmul *p) {
    const bool low = p->type != SNUG_F32 && snug_cuda_of(run)->capability >= 80;
    const bool aligned = p->k % 8 == 0 && p->a_stride % 8 == 0 && ((uintptr_t)p->a | (uintptr_t)p->b) % 16 == 0;
    return op->kind == SNUG_OP_LINEAR && run->program->cache_pages && p->m >= LEAST && p->m <= MOST && p->k > 0 &&
           low && p->b_type == p->type && p->transpose_b && aligned;
}

template <typename T, typename Y, int TILES> static void launch(const struct snug_cuda *cuda, struct streamed &a) {
    constexpr size_t STAGE = 16 * PIECES * (ROWS + 8 * TILES), SHARED = STAGES * STAGE;
    static_assert(SHARED >= 8 * TILES * LINE * sizeof(float), "the sums are where the tiles were");
    const int64_t blocks = blocks_for(a.n, ROWS), tiles = blocks_for(a.k, CHANNELS);
    int64_t parts = SNUG_CUDA_STREAMED_BLOCKS / blocks;
    if (parts > tiles / LEAST_TILES) parts = tiles / LEAST_TILES;
    if (parts < 1) parts = 1;
    a.each = (tiles + parts - 1) / parts * CHANNELS;
    cudaFuncSetAttribute(streamed_kernel<T, Y, TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED);
    launch_chained_with(cuda, dim3((unsigned)blocks, blocks_for(a.k, a.each)), THREADS, SHARED,
                        streamed_kernel<T, Y, TILES>, a);
}

template <typename T, typename Y> static void choose_tiles(const struct snug_cuda *cuda, struct streamed &a) {
    if (a.m <= 16) return launch<T, Y, 2>(cuda, a);
    if (a.m <= 32) return launch<T, Y, 4>(cuda, a);
    launch<T, Y, 8>(cuda, a);
}

extern "C" void snug_cuda_run_streamed(const struct snug_run *run, const struct snug_op *op,
                                       const struct snug_cuda_matmul *p) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    struct streamed a = {.x = p->a,
                         .w = p->b,
                         .addend = snug_run_data(run, op->linear.addend),
                         .bias = (const float *)snug_run_data(run, op->linear.b),
                         .y = p->c,
                         .partial = (float *)run->workspace,
                         .arrivals = cuda->batch.arrivals,
                         .n = p->n,
                         .k = p->k,
                         .ldx = p->a_stride ? p->a_stride : p->k,
                         .m = (int)p->m,
                         .early = run->program->tensors[op->linear.w].persistent};
    if (p->n == 0) return;
    if (p->type == SNUG_F16)
        p->c_type == SNUG_F32 ? choose_tiles<f16, float>(cuda, a) : choose_tiles<f16, f16>(cuda, a);
    else
        p->c_type == SNUG_F32 ? choose_tiles<bf16, float>(cuda, a) : choose_tiles<bf16, bf16>(cuda, a);
}
