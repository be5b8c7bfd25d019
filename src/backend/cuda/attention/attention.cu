/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = q k^T / sqrt(d) and probabilities P = softmax(S),
 *   o = (F * P) v,   F the dropout factors, element by element,
 *   lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be recomputed without the whole row.
 * Backward, with dP_ij = F_ij (do_i . v_j):
 *   dv = (F * P)^T do,   dS_ij = P_ij (dP_ij - do_i . o_i),   dq = dS k / sqrt(d),   dk = dS^T q / sqrt(d).
 *
 * These kernels are for the types and head sizes that attention_mma.cu does not support, in fp32 without tensor cores:
 * a block takes a tile of queries (forward, dq) or of keys (dk, dv) and loops over the other side in tiles, so each
 * output has one owner and sums have a fixed order.
 *
 * Where q and k are rotated, all kernels read a rotated copy, and dq and dk are rotated back after them. Biases are
 * added to S over scale. A window limits the tiles of the loop; elements of the edge tiles are masked.
 */
#include "backend/cuda/attention/attention_tiles.cuh"

template <typename T, int D, int N>
static __global__ void __launch_bounds__(256) forward_kernel(const struct attention a) {
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
    const struct range seen = seen_from(q0, SIDE, a.window, head.length, SIDE);
    for (int k0 = seen.first; k0 < seen.end; k0 += SIDE) {
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
                const int key = k0 + x + 16 * j;
                const float score = score_of(a, head, s[i][j], q0 + y + 16 * i, key);
                s[i][j] = key < head.length ? score * a.scale : -INFINITY;
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
        add_weighted<D, N>(
            o, [&](int r, int c) { return p[r][c]; }, v);
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

template <typename T, int D, int N, bool TURNS>
static __global__ void __launch_bounds__(256) dq_kernel(const struct attention a) {
    enum { SIDE = tiles<D, N>::SIDE };
    extern __shared__ __align__(16) uint8_t shared[];
    auto &q = *reinterpret_cast<typename tiles<D, N>::matrix *>(shared);
    auto &dout = (&q)[1], &k = (&q)[2], &v = (&k)[TURNS ? 0 : 1];
    auto &ds = *reinterpret_cast<typename tiles<D, N>::scores *>(&(&v)[1]);
    uint8_t(*mask)[SIDE / 4] = reinterpret_cast<uint8_t(*)[SIDE / 4]>(&(&ds)[1]);
    if (blockIdx.z == gridDim.z - 1) return clear_tail(a, (T *)a.dqkv, 3 * a.h);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int q0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    const T *qkv = (const T *)a.qkv;
    if (q0 >= head.length) return;
    float dq[N][D / 16] = {};
    load_tile<T, D, N>(q, qkv, 3 * a.h, head, q0, a.d);
    load_tile<T, D, N>(dout, (const T *)a.dout, a.h, head, q0, a.d);
    const struct range seen = seen_from(q0, SIDE, a.window, head.length, SIDE);
    for (int k0 = seen.first; k0 < seen.end; k0 += SIDE) {
        __syncthreads();
        load_tile<T, D, N>(k, qkv + a.h, 3 * a.h, head, k0, a.d);
        if (!TURNS) load_tile<T, D, N>(v, qkv + 2 * a.h, 3 * a.h, head, k0, a.d);
        load_mask<SIDE>(mask, head, a.dropout.threshold, q0, k0);
        __syncthreads();
        float s[N][N], dp[N][N];
        dots<D, N>(s, q, k, a.d);
        if (TURNS) replace_tile<T, D, N>(v, qkv + 2 * a.h, 3 * a.h, head, k0, a.d);
        dots<D, N>(dp, dout, v, a.d);
        if (TURNS) replace_tile<T, D, N>(k, qkv + a.h, 3 * a.h, head, k0, a.d);
        probabilities<N>(a, head, s, dp, mask, q0, k0);
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++) ds[y + 16 * i][x + 16 * j] = dp[i][j];
        __syncthreads();
        add_weighted<D, N>(
            dq, [&](int r, int c) { return ds[r][c]; }, k);
    }
    for (int i = 0; i < N; i++)
        for (int c = 0; c < D / 16; c++)
            if (q0 + y + 16 * i < head.length && x + 16 * c < a.d)
                ((T *)a.dqkv)[(head.first + q0 + y + 16 * i) * 3 * a.h + head.column + x + 16 * c] =
                    from_float<T>(dq[i][c] * a.scale);
}

template <typename T, int D, int N, bool TURNS>
static __global__ void __launch_bounds__(256) dkv_kernel(const struct attention a) {
    enum { SIDE = tiles<D, N>::SIDE };
    extern __shared__ __align__(16) uint8_t shared[];
    auto &q = *reinterpret_cast<typename tiles<D, N>::matrix *>(shared);
    auto &dout = (&q)[TURNS ? 0 : 1], &k = (&dout)[1], &v = (&k)[1];
    auto &ds = *reinterpret_cast<typename tiles<D, N>::scores *>(&(&v)[1]);
    auto &p = (&ds)[1];
    uint8_t(*mask)[SIDE / 4] = reinterpret_cast<uint8_t(*)[SIDE / 4]>(&(&ds)[2]);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int k0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    const T *qkv = (const T *)a.qkv;
    if (k0 >= head.length) return;
    float dk[N][D / 16] = {}, dv[N][D / 16] = {};
    load_tile<T, D, N>(k, qkv + a.h, 3 * a.h, head, k0, a.d);
    load_tile<T, D, N>(v, qkv + 2 * a.h, 3 * a.h, head, k0, a.d);
    const struct range seen = seen_from(k0, SIDE, a.window, head.length, SIDE);
    for (int q0 = seen.first; q0 < seen.end; q0 += SIDE) {
        __syncthreads();
        load_tile<T, D, N>(q, qkv, 3 * a.h, head, q0, a.d);
        if (!TURNS) load_tile<T, D, N>(dout, (const T *)a.dout, a.h, head, q0, a.d);
        load_mask<SIDE>(mask, head, a.dropout.threshold, q0, k0);
        __syncthreads();
        float s[N][N], dp[N][N];
        dots<D, N>(s, q, k, a.d);
        if (TURNS) replace_tile<T, D, N>(dout, (const T *)a.dout, a.h, head, q0, a.d);
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
        add_weighted<D, N>(
            dv, [&](int r, int c) { return p[c][r]; }, dout);
        if (TURNS) replace_tile<T, D, N>(q, qkv, 3 * a.h, head, q0, a.d);
        add_weighted<D, N>(
            dk, [&](int r, int c) { return ds[c][r]; }, q);
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

template <typename T, typename S>
static void launch_all(const struct attention &a, int64_t longest, int sequences, bool backward, cudaStream_t stream) {
    constexpr int D = S::D, N = S::N, MATRICES = S::TURNS ? 3 : 4;
    const dim3 grid(blocks_for(longest > 0 ? longest : 1, 16 * N), (unsigned)a.heads, (unsigned)sequences + 1);
    const dim3 keys(grid.x, grid.y, (unsigned)sequences);
    if (!backward) return launch(forward_kernel<T, D, N>, shared_bytes<D, N>(3, 1), grid, a, stream);
    launch_delta<T>(a, stream);
    launch(dq_kernel<T, D, N, S::TURNS>, shared_bytes<D, N>(MATRICES, 1), grid, a, stream);
    if (sequences > 0) launch(dkv_kernel<T, D, N, S::TURNS>, shared_bytes<D, N>(MATRICES, 2), keys, a, stream);
}

/* ---- the operations ---- */

static bool launch_tiles(const struct attention &a, const struct snug_run *run, enum snug_dtype type, bool backward) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    bool done = false;
    with_type(type, [&](auto value) {
        done = with_tile_size(a.d, cuda->block_memory, backward, [&](auto size) {
            launch_all<decltype(value), decltype(size)>(a, run->program->longest, (int)run->batch->sequences, backward,
                                                        cuda->stream);
        });
    });
    return done;
}

/* The operands of both operations. */
struct positions {
    int heads, window;
    float theta;
    int32_t bias, dbias;
};

static snug_status run_attention(struct snug_run *run, const struct snug_op *op, struct attention *a, int32_t qkv,
                                 const struct positions &positions, bool backward) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_cuda_attention_scratch scratch =
        snug_cuda_attention_scratch_of(run->program, qkv, positions.heads, positions.theta, positions.bias);
    uint8_t *workspace = (uint8_t *)run->workspace;
    a->qkv = snug_run_data(run, qkv);
    a->batch = cuda->batch;
    a->dropout = dropout_of(op);
    a->heads = positions.heads;
    a->h = snug_run_cols(run, qkv) / 3;
    a->d = (int)(a->h / a->heads);
    a->bucket = snug_cuda_rows(run, qkv);
    a->scale = (float)(1 / sqrt((double)a->d));
    a->window = positions.window > 0 && positions.window < run->program->longest - 1 ? positions.window : ALL_KEYS;
    a->workspace = workspace + scratch.rest;
    a->delta = (float *)a->workspace;
    if (positions.theta > 0) {
        snug_cuda_rotate(run, workspace, qkv, a->heads, positions.theta);
        a->qkv = workspace;
    }
    if (positions.bias) {
        a->bias = (const float *)(workspace + scratch.biases);
        snug_cuda_expand_biases(run, (float *)(workspace + scratch.biases), positions.bias, a->scale);
    }
    bool done = !positions.dbias || snug_cuda_attention_dbias(*a, run, op);
    if (done)
        done = backward
                   ? snug_cuda_attention_wgmma_backward(*a, run, qkv) || snug_cuda_attention_mma_backward(*a, run, qkv)
                   : snug_cuda_attention_wgmma(*a, run, qkv) || snug_cuda_attention_mma(*a, run, qkv);
    if (!done) done = launch_tiles(*a, run, snug_run_dtype(run, qkv), backward);
    if (!done) return snug_cuda_check_sizes(run->program, op);
    if (backward && positions.theta > 0)
        snug_cuda_rotate_back(run, op->attention_backward.dqkv, a->heads, positions.theta);
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_attention(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention &o = op->attention;
    struct attention a = {.o = snug_run_data(run, o.o), .lse = (float *)snug_run_data(run, o.lse)};
    return run_attention(run, op, &a, o.qkv, {o.heads, o.window, o.rope_theta, o.bias, 0}, false);
}

extern "C" snug_status snug_cuda_attention_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention_backward &o = op->attention_backward;
    struct attention a = {.dout = snug_run_data(run, o.dout),
                          .o = snug_run_data(run, o.o),
                          .dqkv = snug_run_data(run, o.dqkv),
                          .lse = (float *)snug_run_data(run, o.lse)};
    return run_attention(run, op, &a, o.qkv, {o.heads, o.window, o.rope_theta, o.bias, o.dbias}, true);
}
