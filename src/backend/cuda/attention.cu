/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = q k^T / sqrt(d) and probabilities P = softmax(S),
 *   o = (F * P) v,   F the dropout factors, element by element,
 *   lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be had again without the whole row.
 * Backward, with dP_ij = F_ij (do_i . v_j):
 *   dv = (F * P)^T do,   dS_ij = P_ij (dP_ij - do_i . o_i),   dq = dS k / sqrt(d),   dk = dS^T q / sqrt(d).
 *
 * Here for the types and head sizes that attention_mma.cu does not take, in fp32 on plain units: a block takes a tile of queries (forward, dq) or of keys
 * (dk, dv) and walks over the other side in tiles, so that each output has one owner and sums have one order.
 * 16 x 16 threads; thread (y, x) has rows y + 16 i and columns x + 16 j of a tile of N x N such steps.
 */
#include "backend/cuda/attention.cuh"

template <int D, int N> struct tiles {
    enum { SIDE = 16 * N, STRIDE = D + 4 };
    typedef float matrix[SIDE][STRIDE];
    typedef float scores[SIDE][SIDE + 1];
};

/* Rows row0 … of one of q, k, v (or of o, do); zeros behind the last and behind d. */
template <typename T, int D, int N>
static __device__ void load_tile(float (*to)[D + 4], const T *from, int64_t stride, const struct head &head,
                                 int row0, int d) {
    for (int i = threadIdx.x; i < tiles<D, N>::SIDE * D; i += 256) {
        const int r = i / D, c = i % D;
        const bool there = row0 + r < head.length && c < d;
        to[r][c] = there ? to_float(from[(head.first + row0 + r) * stride + head.column + c]) : 0;
    }
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
                out[i][j] += left[i].x * right[j].x + left[i].y * right[j].y + left[i].z * right[j].z +
                             left[i].w * right[j].w;
    }
}

/* sum[i][c] += over k of weight(y + 16 i, k) * v[k][x + 16 c] */
template <int D, int N, typename F>
static __device__ __forceinline__ void add_weighted(float (&sum)[N][D / 16], F weight,
                                                    const float (*v)[D + 4]) {
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

/* Kept bits of a tile: of query q0 + r and keys k0 + 4 c … at [r][c]. */
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

template <typename T, int D, int N> static __global__ void __launch_bounds__(256) forward_kernel(const struct attention a) {
    enum { SIDE = tiles<D, N>::SIDE };
    extern __shared__ __align__(16) uint8_t shared[];
    auto &q = *reinterpret_cast<typename tiles<D, N>::matrix *>(shared);
    auto &k = (&q)[1], &v = (&q)[2];
    auto &p = *reinterpret_cast<typename tiles<D, N>::scores *>(&(&q)[3]);
    uint8_t(*mask)[SIDE / 4] = reinterpret_cast<uint8_t(*)[SIDE / 4]>(&(&p)[1]);
    if (blockIdx.z == gridDim.z - 1) return clear_tail(a, (T *)a.o, a.h);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int q0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    const T *qkv = (const T *)a.qkv;
    if (q0 >= head.length) return;
    float o[N][D / 16] = {}, max[N], sum[N] = {};
    for (int i = 0; i < N; i++) max[i] = -INFINITY;
    load_tile<T, D, N>(q, qkv, 3 * a.h, head, q0, a.d);
    for (int k0 = 0; k0 < head.length; k0 += SIDE) {
        __syncthreads();
        load_tile<T, D, N>(k, qkv + a.h, 3 * a.h, head, k0, a.d);
        load_tile<T, D, N>(v, qkv + 2 * a.h, 3 * a.h, head, k0, a.d);
        load_mask<SIDE>(mask, head, a.dropout.threshold, q0, k0);
        __syncthreads();
        float s[N][N];
        dots<D, N>(s, q, k, a.d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float top = -INFINITY, part = 0;
#pragma unroll
            for (int j = 0; j < N; j++) {
                s[i][j] = k0 + x + 16 * j < head.length ? s[i][j] * a.scale : -INFINITY;
                top = fmaxf(top, s[i][j]);
            }
            top = fmaxf(max[i], row_max(top));
            const float shrink = expf(max[i] - top);
            max[i] = top;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const int r = y + 16 * i, c = x + 16 * j;
                const float e = expf(s[i][j] - top);
                part += e;
                p[r][c] = a.dropout.threshold && !(mask[r][c / 4] >> c % 4 & 1) ? 0 : e;
            }
            sum[i] = sum[i] * shrink + row_sum(part);
#pragma unroll
            for (int c = 0; c < D / 16; c++) o[i][c] *= shrink;
        }
        __syncthreads();
        add_weighted<D, N>(o, [&](int r, int c) { return p[r][c]; }, v);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int r = q0 + y + 16 * i;
        if (r >= head.length) continue;
        const int64_t token = head.first + r;
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            if (x + 16 * c < a.d)
                ((T *)a.o)[token * a.h + head.column + x + 16 * c] = from_float<T>(o[i][c] * a.dropout.scale / sum[i]);
        if (x == 0) a.lse[token * a.heads + head.index] = max[i] + logf(sum[i]);
    }
}

/* ---- backward ---- */

/* delta = do . o, a warp each token and head. */
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

/* F * P and dS of a tile, from its scores and dP. */
template <int N>
static __device__ __forceinline__ void probabilities(const struct attention &a, const struct head &head, float (&s)[N][N],
                                                     float (&dp)[N][N], uint8_t (*mask)[4 * N], int q0, int k0) {
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
            const float p = k0 + c < head.length ? expf(s[i][j] * a.scale - lse) : 0;
            const float f = a.dropout.threshold && !(mask[r][c / 4] >> c % 4 & 1) ? 0 : a.dropout.scale;
            s[i][j] = p * f;
            dp[i][j] = p * (dp[i][j] * f - delta);
        }
    }
}

template <typename T, int D, int N> static __global__ void __launch_bounds__(256) dq_kernel(const struct attention a) {
    enum { SIDE = tiles<D, N>::SIDE };
    extern __shared__ __align__(16) uint8_t shared[];
    auto &q = *reinterpret_cast<typename tiles<D, N>::matrix *>(shared);
    auto &dout = (&q)[1], &k = (&q)[2], &v = (&q)[3];
    auto &ds = *reinterpret_cast<typename tiles<D, N>::scores *>(&(&q)[4]);
    uint8_t(*mask)[SIDE / 4] = reinterpret_cast<uint8_t(*)[SIDE / 4]>(&(&ds)[1]);
    if (blockIdx.z == gridDim.z - 1) return clear_tail(a, (T *)a.dqkv, 3 * a.h);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int q0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    const T *qkv = (const T *)a.qkv;
    if (q0 >= head.length) return;
    float dq[N][D / 16] = {};
    load_tile<T, D, N>(q, qkv, 3 * a.h, head, q0, a.d);
    load_tile<T, D, N>(dout, (const T *)a.dout, a.h, head, q0, a.d);
    for (int k0 = 0; k0 < head.length; k0 += SIDE) {
        __syncthreads();
        load_tile<T, D, N>(k, qkv + a.h, 3 * a.h, head, k0, a.d);
        load_tile<T, D, N>(v, qkv + 2 * a.h, 3 * a.h, head, k0, a.d);
        load_mask<SIDE>(mask, head, a.dropout.threshold, q0, k0);
        __syncthreads();
        float s[N][N], dp[N][N];
        dots<D, N>(s, q, k, a.d);
        dots<D, N>(dp, dout, v, a.d);
        probabilities<N>(a, head, s, dp, mask, q0, k0);
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++) ds[y + 16 * i][x + 16 * j] = dp[i][j];
        __syncthreads();
        add_weighted<D, N>(dq, [&](int r, int c) { return ds[r][c]; }, k);
    }
    for (int i = 0; i < N; i++)
        for (int c = 0; c < D / 16; c++)
            if (q0 + y + 16 * i < head.length && x + 16 * c < a.d)
                ((T *)a.dqkv)[(head.first + q0 + y + 16 * i) * 3 * a.h + head.column + x + 16 * c] =
                    from_float<T>(dq[i][c] * a.scale);
}

template <typename T, int D, int N> static __global__ void __launch_bounds__(256) dkv_kernel(const struct attention a) {
    enum { SIDE = tiles<D, N>::SIDE };
    extern __shared__ __align__(16) uint8_t shared[];
    auto &q = *reinterpret_cast<typename tiles<D, N>::matrix *>(shared);
    auto &dout = (&q)[1], &k = (&q)[2], &v = (&q)[3];
    auto &ds = *reinterpret_cast<typename tiles<D, N>::scores *>(&(&q)[4]);
    auto &p = (&ds)[1];
    uint8_t(*mask)[SIDE / 4] = reinterpret_cast<uint8_t(*)[SIDE / 4]>(&(&ds)[2]);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int k0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    const T *qkv = (const T *)a.qkv;
    if (k0 >= head.length) return;
    float dk[N][D / 16] = {}, dv[N][D / 16] = {};
    load_tile<T, D, N>(k, qkv + a.h, 3 * a.h, head, k0, a.d);
    load_tile<T, D, N>(v, qkv + 2 * a.h, 3 * a.h, head, k0, a.d);
    for (int q0 = 0; q0 < head.length; q0 += SIDE) {
        __syncthreads();
        load_tile<T, D, N>(q, qkv, 3 * a.h, head, q0, a.d);
        load_tile<T, D, N>(dout, (const T *)a.dout, a.h, head, q0, a.d);
        load_mask<SIDE>(mask, head, a.dropout.threshold, q0, k0);
        __syncthreads();
        float s[N][N], dp[N][N];
        dots<D, N>(s, q, k, a.d);
        dots<D, N>(dp, dout, v, a.d);
        probabilities<N>(a, head, s, dp, mask, q0, k0);
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                p[y + 16 * i][x + 16 * j] = s[i][j];
                ds[y + 16 * i][x + 16 * j] = dp[i][j];
            }
        __syncthreads();
        add_weighted<D, N>(dk, [&](int r, int c) { return ds[c][r]; }, q);
        add_weighted<D, N>(dv, [&](int r, int c) { return p[c][r]; }, dout);
    }
    for (int i = 0; i < N; i++)
        for (int c = 0; c < D / 16; c++)
            if (k0 + y + 16 * i < head.length && x + 16 * c < a.d) {
                T *to = (T *)a.dqkv + (head.first + k0 + y + 16 * i) * 3 * a.h + head.column + x + 16 * c;
                to[a.h] = from_float<T>(dk[i][c] * a.scale);
                to[2 * a.h] = from_float<T>(dv[i][c]);
            }
}

/* ---- launching ---- */

template <int D, int N> static size_t shared_bytes(int matrices, int scores) {
    return sizeof(typename tiles<D, N>::matrix) * matrices + sizeof(typename tiles<D, N>::scores) * scores +
           16 * N * 4 * N;
}

template <typename F> static void launch(F kernel, size_t shared, dim3 grid, const struct attention &a, cudaStream_t stream) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    kernel<<<grid, 256, shared, stream>>>(a);
}

template <typename T, int D, int N>
static void launch_all(const struct attention &a, int64_t longest, int sequences, bool backward, cudaStream_t stream) {
    const dim3 grid(blocks_for(longest > 0 ? longest : 1, 16 * N), (unsigned)a.heads, (unsigned)sequences + 1);
    const dim3 keys(grid.x, grid.y, (unsigned)sequences);
    if (!backward) return launch(forward_kernel<T, D, N>, shared_bytes<D, N>(3, 1), grid, a, stream);
    const int64_t count = a.bucket * a.heads;
    if (count > 0) delta_kernel<T><<<blocks_for(count, 8), 256, 0, stream>>>(a, count);
    launch(dq_kernel<T, D, N>, shared_bytes<D, N>(4, 1), grid, a, stream);
    if (sequences > 0) launch(dkv_kernel<T, D, N>, shared_bytes<D, N>(4, 2), keys, a, stream);
}

template <typename T>
static bool launch_size(const struct attention &a, int64_t longest, int sequences, bool backward, cudaStream_t stream) {
    if (a.d <= 32) return launch_all<T, 32, 4>(a, longest, sequences, backward, stream), true;
    if (a.d <= 64) return launch_all<T, 64, 4>(a, longest, sequences, backward, stream), true;
    if (a.d <= 128) return launch_all<T, 128, 2>(a, longest, sequences, backward, stream), true;
    if (a.d <= 256) return launch_all<T, 256, 2>(a, longest, sequences, backward, stream), true;
    return false;
}

extern "C" int64_t snug_cuda_attention_workspace(const struct snug_program *program, const struct snug_op *op) {
    if (op->kind == SNUG_OP_ATTENTION) return 0;
    const struct snug_tensor *qkv = &program->tensors[op->in[1]];
    const int64_t delta = (program->capacity[SNUG_EXTENT_TOKENS] + SNUG_ROW_TILE) * op->heads * (int64_t)sizeof(float);
    const int64_t mma = snug_cuda_attention_mma_workspace(program, qkv->dtype, qkv->cols / 3, op->heads);
    return delta > mma ? delta : mma;
}

static snug_status run_attention(struct snug_run *run, const struct snug_op *op, struct attention *a, int32_t qkv,
                                 bool backward) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int sequences = (int)run->batch->sequences;
    a->qkv = snug_run_data(run, qkv);
    a->batch = cuda->batch;
    a->dropout = dropout_of(op);
    a->heads = op->heads;
    a->h = snug_run_cols(run, qkv) / 3;
    a->d = (int)(a->h / op->heads);
    a->bucket = snug_cuda_rows(run, qkv);
    a->scale = (float)(1 / sqrt((double)a->d));
    bool done = backward ? snug_cuda_attention_wgmma_backward(*a, run, qkv) ||
                               snug_cuda_attention_mma_backward(*a, run, qkv)
                         : snug_cuda_attention_wgmma(*a, run, qkv) || snug_cuda_attention_mma(*a, run, qkv);
    if (!done)
        with_type(snug_run_dtype(run, qkv), [&](auto type) {
            done = launch_size<decltype(type)>(*a, run->program->longest, sequences, backward, cuda->stream);
        });
    if (!done)
        return snug_fail(run->ctx, SNUG_E_UNSUPPORTED,
                         "attention heads of %d channels are wider than the CUDA backend takes (256): use --device cpu",
                         a->d);
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_attention(struct snug_run *run, const struct snug_op *op) {
    struct attention a = {.o = snug_run_data(run, op->out[0]), .lse = (float *)snug_run_data(run, op->out[1])};
    return run_attention(run, op, &a, op->in[0], false);
}

extern "C" snug_status snug_cuda_attention_backward(struct snug_run *run, const struct snug_op *op) {
    struct attention a = {.dout = snug_run_data(run, op->in[0]),
                          .o = snug_run_data(run, op->in[2]),
                          .dqkv = snug_run_data(run, op->out[0]),
                          .lse = (float *)snug_run_data(run, op->in[3]),
                          .delta = (float *)run->workspace};
    return run_attention(run, op, &a, op->in[1], true);
}
