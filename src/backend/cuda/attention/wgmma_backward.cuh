/* SPDX-License-Identifier: Apache-2.0 */
/* What the backward kernels of Hopper's matmuls share: queries' values, tiles of P^T and dS^T, and what is written. */
#ifndef SNUG_BACKEND_CUDA_ATTENTION_WGMMA_BACKWARD_CUH
#define SNUG_BACKEND_CUDA_ATTENTION_WGMMA_BACKWARD_CUH

#include "backend/cuda/attention/wgmma.cuh"

/* A group of four warps copies, WORKERS multiply. */
enum { QUERIES = 64, GROUP = 128, WORKERS = 2, THREADS = (WORKERS + 1) * GROUP };
enum { ROW_BYTES = 128 };

/* ---- a value per query and head: lse in base 2, and delta = do . o ---- */

struct row_values {
    float *lse, *delta; /* [heads, stride]: see for_rows */
    int64_t stride;
};

template <typename E, int D>
static __global__ void __launch_bounds__(ROW_THREADS) row_kernel(const struct attention a, const struct row_values b) {
    if (blockIdx.z == gridDim.z - 1) return clear_gradients<E>(a);
    for_rows<E, D>(a, head_of(a, blockIdx.z, 0), [&](int, int64_t token, int index, float lse, float delta) {
        b.lse[index * b.stride + token] = lse;
        b.delta[index * b.stride + token] = delta;
    });
}

/* Computes them into the workspace, and clears gradients after the last token. */
template <typename E, int D>
static struct row_values prepare_rows(const struct attention &a, const struct snug_run *run) {
    struct row_values b = {.lse = (float *)a.workspace};
    b.stride = run->program->capacity[SNUG_EXTENT_TOKENS] + SNUG_ROW_TILE;
    b.delta = b.lse + b.stride * a.heads;
    const int64_t longest = run->program->longest > 0 ? run->program->longest : 1;
    const dim3 rows(blocks_for(longest, ROW_BLOCK), 1, (unsigned)run->batch->sequences + 1);
    row_kernel<E, D><<<rows, ROW_THREADS, 0, snug_cuda_of(run)->stream>>>(a, b);
    return b;
}

static __device__ __forceinline__ void copy4(void *to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 4 : 0));
}

/* 128 threads copy those of a tile of queries: 64 lse, 64 delta. */
static __device__ __forceinline__ void copy_row_values(uint8_t *to, const struct row_values &b, const struct head &head,
                                                       int q0) {
    const int r = q0 + threadIdx.x % QUERIES;
    const bool there = r < head.length; /* else P is 1, and dP and delta are 0 */
    const float *from = (threadIdx.x / QUERIES ? b.delta : b.lse) + head.index * b.stride + head.first;
    copy4(to + 4 * threadIdx.x, from + (there ? r : 0), there);
}

/* Makes copied data visible to matmuls, but that of the last LEFT commits. */
template <int LEFT> static __device__ __forceinline__ void publish(uint32_t barrier) {
    wait_copies<LEFT>();
    async_proxy_fence();
    arrive_at(barrier);
}

/* ---- P^T and dS^T ---- */

/* Negative numbers become zero. */
template <typename E> static __device__ __forceinline__ uint32_t pack_positive(float low, float high) {
    uint32_t r;
    if constexpr (std::is_same_v<E, bf16>)
        asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    else
        asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Masks elements of S^T of a lane's keys key and key + 1 and the tile of queries from q0 on. */
static __device__ __forceinline__ void hide_elements(float (&s)[8][4], const struct attention &a, int q0, int key) {
    const int first = key & ~15; /* of the warp's 16 */
    if (sees_all(a, q0, QUERIES, first, 16)) return;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (is_hidden(a, q0 + 8 * n + 2 * (int)(threadIdx.x % 4) + i % 2, key + i / 2)) s[n][i] = HIDDEN;
}

/* From S^T computes P^T in place, with dropped elements negative, and (F * P)^T. */
template <typename E, bool DROP>
static __device__ __forceinline__ void probabilities(uint32_t (&p)[4][4], float (&s)[8][4], const float2 *lse,
                                                     uint32_t dropped, float scale) {
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float2 row = lse[4 * n];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[n][i] = quick_exp2(fmaf(s[n][i], scale, i % 2 ? -row.y : -row.x));
            if (DROP)
                s[n][i] = __uint_as_float(__float_as_uint(s[n][i]) |
                                          (dropped << (31 - (i % 2 * 16 + 2 * n + i / 2)) & 0x80000000u));
        }
#pragma unroll
        for (int half = 0; half < 2; half++)
            p[n / 2][n % 2 * 2 + half] = pack_positive<E>(s[n][2 * half], s[n][2 * half + 1]);
    }
}

/* From P^T and dP^T computes dS^T without dropout's factor. */
template <typename E, bool DROP>
static __device__ __forceinline__ void gradients(uint32_t (&ds)[4][4], const float (&p)[8][4], const float (&dp)[8][4],
                                                 const float2 *delta) {
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float2 row = delta[4 * n];
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float d = i % 2 ? row.y : row.x;
            if (DROP)
                x[i] = fmaf(fmaxf(p[n][i], 0), dp[n][i], -fabsf(p[n][i]) * d);
            else
                x[i] = p[n][i] * (dp[n][i] - d);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) ds[n / 2][n % 2 * 2 + half] = pack<E>(x[2 * half], x[2 * half + 1]);
    }
}

/* ---- what is written ---- */

static __device__ __forceinline__ void store_matrices(uint32_t at, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(at), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}

/*
 * Stores a warp's 16 rows of results (or as many as exist), times a factor. They pass through 2 KiB of shared memory,
 * so that memory is written in whole rows.
 */
template <typename E, order ORDER>
static __device__ __forceinline__ void store_rows(E *to, int64_t stride, const float (&sum)[8][4], float factor,
                                                  int rows, uint8_t *shared) {
    const int lane = threadIdx.x % 32;
    const uint32_t at = shared_address(shared) + by_rows<ROW_BYTES>();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float(&v)[4] = sum[2 * k + i / 2];
            r[i] = pack<E>(v[i % 2 * 2] * factor, v[i % 2 * 2 + 1] * factor);
        }
        store_matrices(at ^ 32 * k, r);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        const int r = i + lane / 8;
        if (r < rows)
            *(uint4 *)(to + r * stride + lane % 8 * 8) =
                ((const uint4 *)shared)[piece_of<ROW_BYTES>(slot_of<ORDER>(r), lane % 8)];
    }
    __syncwarp();
}

#endif
