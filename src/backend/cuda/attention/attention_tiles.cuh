/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of attention without tensor cores, see attention.cu. 16 x 16 threads; thread (y, x) has rows y + 16 i and
   columns x + 16 j of a tile of 16 N x 16 N. */
#ifndef SNUG_BACKEND_CUDA_ATTENTION_ATTENTION_TILES_CUH
#define SNUG_BACKEND_CUDA_ATTENTION_ATTENTION_TILES_CUH

#include "backend/cuda/attention/attention_operands.cuh"

template <int D, int N> struct tiles {
    enum { SIDE = 16 * N, STRIDE = D + 4 };
    typedef float matrix[SIDE][STRIDE];
    typedef float scores[SIDE][SIDE + 1];
};

/* Rows row0 … of the d channels from column `from` on of one of q, k, v (or of o, do); zeros after the last and after
   d. */
template <typename T, int D, int N>
static __device__ void load_tile(float (*to)[D + 4], const T *from, int64_t stride, const struct head &head, int row0,
                                 int d) {
    for (int i = threadIdx.x; i < tiles<D, N>::SIDE * D; i += 256) {
        const int r = i / D, c = i % D;
        const bool there = row0 + r < head.length && c < d;
        to[r][c] = there ? to_float(from[(head.first + row0 + r) * stride + c]) : 0;
    }
}

/* load_tile() over a tile that all threads have used. */
template <typename T, int D, int N>
static __device__ void replace_tile(float (*to)[D + 4], const T *from, int64_t stride, const struct head &head,
                                    int row0, int d) {
    __syncthreads();
    load_tile<T, D, N>(to, from, stride, head, row0, d);
    __syncthreads();
}

/* out[i][j] = a[y + 16 i] . b[x + 16 j] */
template <int D, int N>
static __device__ __forceinline__ void dots(float (&out)[N][N], const float (*a)[D + 4], const float (*b)[D + 4],
                                            int d) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < N; j++) out[i][j] = 0;
    for (int c = 0; c < d; c += 4) {
        float4 left[N], right[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            left[i] = *reinterpret_cast<const float4 *>(&a[y + 16 * i][c]);
            right[i] = *reinterpret_cast<const float4 *>(&b[x + 16 * i][c]);
        }
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                out[i][j] +=
                    left[i].x * right[j].x + left[i].y * right[j].y + left[i].z * right[j].z + left[i].w * right[j].w;
    }
}

/* sum[i][c] += over k of weight(y + 16 i, k) * v[k][x + 16 c] */
template <int D, int N, typename F>
static __device__ __forceinline__ void add_weighted(float (&sum)[N][D / 16], F weight, const float (*v)[D + 4]) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    for (int k = 0; k < tiles<D, N>::SIDE; k++) {
        float w[N];
#pragma unroll
        for (int i = 0; i < N; i++) w[i] = weight(y + 16 * i, k);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            const float value = v[k][x + 16 * c];
#pragma unroll
            for (int i = 0; i < N; i++) sum[i][c] += w[i] * value;
        }
    }
}

/* Dropout masks of a tile: of query q0 + r and keys k0 + 4 c … at [r][c]. */
template <int SIDE>
static __device__ void load_mask(uint8_t (*mask)[SIDE / 4], const struct head &head, uint32_t threshold, int q0,
                                 int k0) {
    if (threshold == 0) return;
    for (int i = threadIdx.x; i < SIDE * SIDE / 4; i += 256)
        mask[i / (SIDE / 4)][i % (SIDE / 4)] =
            (uint8_t)kept_quad(head, threshold, (uint32_t)(k0 / 4 + i % (SIDE / 4)), (uint32_t)(q0 + i / (SIDE / 4)));
}

static __device__ __forceinline__ float row_max(float v) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, step));
    return v;
}

static __device__ __forceinline__ float row_sum(float v) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) v += __shfl_xor_sync(FULL_WARP, v, step);
    return v;
}

/* delta = do . o, a warp for each token and head. */
template <typename T> static __global__ void delta_kernel(const struct attention a, int64_t count) {
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= count || i / a.heads >= a.batch.step->tokens) return;
    const int64_t at = i / a.heads * a.h + i % a.heads * a.d;
    float sum = 0;
    for (int c = threadIdx.x % 32; c < a.d; c += 32)
        sum += to_float(((const T *)a.dout)[at + c]) * to_float(((const T *)a.o)[at + c]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) a.delta[i] = sum;
}

/* The score of a dot product q . k, divided by scale, and in *slope the cap's derivative. */
static __device__ __forceinline__ float score_of(const struct attention &a, const struct head &head, float dot,
                                                 int query, int key, float *slope) {
    *slope = 1;
    if (a.softcap > 0) {
        const float t = tanhf(dot * a.scale / a.softcap);
        dot = t * a.softcap / a.scale;
        *slope = 1 - t * t;
    }
    if (a.bias) dot += a.bias[head.index * DISTANCES + distance_of(query, key)];
    return is_hidden(a, query, key) ? HIDDEN : dot;
}

/* F * P and dS of a tile, from its scores and dP; SLOPES: dS times the cap's derivatives. */
template <int N, bool SLOPES>
static __device__ __forceinline__ void probabilities(const struct attention &a, const struct head &head,
                                                     float (&s)[N][N], float (&dp)[N][N], uint8_t (*mask)[4 * N],
                                                     int q0, int k0) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int r = y + 16 * i;
        const bool there = q0 + r < head.length;
        const int64_t at = (int64_t)(head.first + q0 + r) * a.heads + head.index;
        const float lse = there ? a.lse[at] : INFINITY, delta = there ? a.delta[at] : 0;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int c = x + 16 * j;
            float slope;
            const float score = score_of(a, head, s[i][j], q0 + r, k0 + c, &slope);
            const float p = k0 + c < head.length ? expf(score * a.scale - lse) : 0;
            const float f = a.dropout.threshold && !(mask[r][c / 4] >> c % 4 & 1) ? 0 : a.dropout.scale;
            s[i][j] = p * f;
            dp[i][j] = p * (dp[i][j] * f - delta) * (SLOPES ? slope : 1);
        }
    }
}

/* ---- launching ---- */

/* TURNS: the two matrices of the side over which a kernel of backward loops have the same shared memory, in turn. */
template <int DD, int NN, bool TT = false> struct tile_size {
    static constexpr int D = DD, N = NN;
    static constexpr bool TURNS = TT;
};

template <int D, int N> constexpr size_t shared_bytes(int matrices, int scores) {
    return sizeof(typename tiles<D, N>::matrix) * matrices + sizeof(typename tiles<D, N>::scores) * scores +
           16 * N * 4 * N;
}
/* Shared memory of the largest kernel of a pass. */
template <typename S> constexpr size_t pass_bytes(bool backward) {
    return backward ? shared_bytes<S::D, S::N>(S::TURNS ? 3 : 4, 2) : shared_bytes<S::D, S::N>(3, 1);
}

/* Calls launch with the sizes of tiles for heads of d channels: the larger ones, if a block has the memory for them;
   the smaller ones fit every GPU. False if there are none. */
template <typename LARGE, typename SMALL, typename F>
static bool with_one_of(int block_memory, bool backward, F launch) {
    static_assert(pass_bytes<SMALL>(true) <= 64 << 10 && pass_bytes<SMALL>(false) <= 64 << 10, "must fit a block");
    if (pass_bytes<LARGE>(backward) <= (size_t)block_memory)
        launch(LARGE());
    else
        launch(SMALL());
    return true;
}
template <typename F> static bool with_tile_size(int d, int block_memory, bool backward, F launch) {
    enum { MOST = SNUG_CUDA_HEAD_MOST };
    if (d <= 32) return with_one_of<tile_size<32, 4>, tile_size<32, 2>>(block_memory, backward, launch);
    if (d <= 64) return with_one_of<tile_size<64, 4>, tile_size<64, 2>>(block_memory, backward, launch);
    if (d <= 128) return with_one_of<tile_size<128, 2>, tile_size<128, 2, true>>(block_memory, backward, launch);
    if (d <= MOST) return with_one_of<tile_size<MOST, 2>, tile_size<MOST, 1, true>>(block_memory, backward, launch);
    return false;
}

template <typename T> static void launch_delta(const struct attention &a, cudaStream_t stream) {
    const int64_t count = a.bucket * a.heads;
    if (count > 0) delta_kernel<T><<<blocks_for(count, 8), 256, 0, stream>>>(a, count);
}

template <typename F>
static void launch(F kernel, size_t shared, dim3 grid, const struct attention &a, cudaStream_t stream) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    kernel<<<grid, 256, shared, stream>>>(a);
}

#endif
