/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = cap(q k^T * scale) and probabilities P = softmax(S),
 *   o = (F * P) v,   F the dropout factors, element by element,
 *   lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be recomputed without the whole row.
 * Backward, with dP_ij = F_ij (do_i . v_j), dS_ij = P_ij (dP_ij - do_i . o_i) and dX_ij = dS_ij cap'(X_ij), the
 * gradient of X = q k^T * scale: dv = (F * P)^T do,   dq = dX k * scale,   dk = dX^T q * scale.
 *
 * These kernels are for the types and head sizes that attention_mma.cu does not support, in fp32 without tensor cores:
 * a block takes a tile of queries (forward, dq) or of keys (dk, dv) and loops over the other side in tiles, for dk and
 * dv also over the query heads that read the key/value head, so each output has one owner and sums have a fixed order.
 *
 * Biases are
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
    if (blockIdx.z == gridDim.z - 1) return clear_tail<T>(a, a.o, a.h, a.h);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int q0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    const T *keys = (const T *)a.k + head.keys, *values = (const T *)a.v + head.keys;
    if (q0 >= head.length) return;
    float o[N][D / 16] = {}, max[N], sum[N] = {};
    for (int i = 0; i < N; i++) max[i] = -INFINITY;
    load_tile<T, D, N>(q, (const T *)a.q + head.column, a.q_row, head, q0, a.d);
    const struct range seen = keys_of(a, q0, SIDE, head.length, SIDE);
    for (int k0 = seen.first; k0 < seen.end; k0 += SIDE) {
        __syncthreads();
        load_tile<T, D, N>(k, keys, a.k_row, head, k0, a.d);
        load_tile<T, D, N>(v, values, a.v_row, head, k0, a.d);
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
                float slope;
                const float score = score_of(a, head, s[i][j], q0 + y + 16 * i, key, &slope);
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
    if (blockIdx.z == gridDim.z - 1) return clear_gradients<T>(a);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int q0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    const T *keys = (const T *)a.k + head.keys, *values = (const T *)a.v + head.keys;
    if (q0 >= head.length) return;
    float dq[N][D / 16] = {};
    load_tile<T, D, N>(q, (const T *)a.q + head.column, a.q_row, head, q0, a.d);
    load_tile<T, D, N>(dout, (const T *)a.dout + head.column, a.h, head, q0, a.d);
    const struct range seen = keys_of(a, q0, SIDE, head.length, SIDE);
    for (int k0 = seen.first; k0 < seen.end; k0 += SIDE) {
        __syncthreads();
        load_tile<T, D, N>(k, keys, a.k_row, head, k0, a.d);
        if (!TURNS) load_tile<T, D, N>(v, values, a.v_row, head, k0, a.d);
        load_mask<SIDE>(mask, head, a.dropout.threshold, q0, k0);
        __syncthreads();
        float s[N][N], dp[N][N];
        dots<D, N>(s, q, k, a.d);
        if (TURNS) replace_tile<T, D, N>(v, values, a.v_row, head, k0, a.d);
        dots<D, N>(dp, dout, v, a.d);
        if (TURNS) replace_tile<T, D, N>(k, keys, a.k_row, head, k0, a.d);
        probabilities<N, true>(a, head, s, dp, mask, q0, k0);
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
                ((T *)a.dq)[(head.first + q0 + y + 16 * i) * a.q_row + head.column + x + 16 * c] =
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
    struct head head = head_of(a, blockIdx.z, blockIdx.y * a.group);
    const int k0 = blockIdx.x * SIDE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    if (k0 >= head.length) return;
    float dk[N][D / 16] = {}, dv[N][D / 16] = {};
    load_tile<T, D, N>(k, (const T *)a.k + head.keys, a.k_row, head, k0, a.d);
    load_tile<T, D, N>(v, (const T *)a.v + head.keys, a.v_row, head, k0, a.d);
    const struct range seen = queries_of(a, k0, SIDE, head.length, SIDE);
    for (int member = 0; member < a.group; member++) {
        choose_head(head, a, blockIdx.y * a.group + member);
        const T *queries = (const T *)a.q + head.column, *gradients = (const T *)a.dout + head.column;
        for (int q0 = seen.first; q0 < seen.end; q0 += SIDE) {
            __syncthreads();
            load_tile<T, D, N>(q, queries, a.q_row, head, q0, a.d);
            if (!TURNS) load_tile<T, D, N>(dout, gradients, a.h, head, q0, a.d);
            load_mask<SIDE>(mask, head, a.dropout.threshold, q0, k0);
            __syncthreads();
            float s[N][N], dp[N][N];
            dots<D, N>(s, q, k, a.d);
            if (TURNS) replace_tile<T, D, N>(dout, gradients, a.h, head, q0, a.d);
            dots<D, N>(dp, dout, v, a.d);
            probabilities<N, true>(a, head, s, dp, mask, q0, k0);
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
            if (TURNS) replace_tile<T, D, N>(q, queries, a.q_row, head, q0, a.d);
            add_weighted<D, N>(
                dk, [&](int r, int c) { return ds[c][r]; }, q);
        }
    }
    for (int i = 0; i < N; i++)
        for (int c = 0; c < D / 16; c++)
            if (k0 + y + 16 * i < head.length && x + 16 * c < a.d) {
                const int64_t row = head.first + k0 + y + 16 * i, column = head.keys + x + 16 * c;
                ((T *)a.dk)[row * a.k_row + column] = from_float<T>(dk[i][c] * a.scale);
                ((T *)a.dv)[row * a.v_row + column] = from_float<T>(dv[i][c]);
            }
}

/* ---- launching ---- */

template <typename T, typename S>
static void launch_all(const struct attention &a, int64_t longest, int sequences, bool backward, cudaStream_t stream) {
    constexpr int D = S::D, N = S::N, MATRICES = S::TURNS ? 3 : 4;
    const dim3 grid(blocks_for(longest > 0 ? longest : 1, 16 * N), (unsigned)a.heads, (unsigned)sequences + 1);
    const dim3 keys(grid.x, (unsigned)a.kv_heads, (unsigned)sequences);
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

/* The first column of operand n, and what is between its rows. */
static void *column_of(const struct snug_run *run, int32_t tensor, const struct snug_attention_form &form, int n,
                       int64_t *row) {
    *row = snug_run_cols(run, tensor);
    return (uint8_t *)snug_run_data(run, tensor) + form.column[n] * snug_dtype_size(snug_run_dtype(run, tensor));
}

static int reach_of(const struct snug_run *run, int32_t reach) {
    return reach >= 0 && reach < run->program->longest - 1 ? reach : ALL_KEYS;
}

static snug_status run_attention(struct snug_run *run, const struct snug_op *op, struct attention *a,
                                 const int32_t (&operands)[3], int32_t bias, int32_t dbias, bool backward) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_attention_form &form = *snug_op_attention_form(op);
    const int64_t positions = snug_cuda_attention_position_bytes(run->program, op);
    const int64_t own = positions + (bias ? snug_cuda_attention_bias_bytes(op) : 0);
    const enum snug_dtype type = snug_run_dtype(run, operands[0]);
    uint8_t *workspace = (uint8_t *)run->workspace;
    a->q = column_of(run, operands[0], form, 0, &a->q_row);
    a->k = column_of(run, operands[1], form, 1, &a->k_row);
    a->v = column_of(run, operands[2], form, 2, &a->v_row);
    a->batch = cuda->batch;
    a->dropout = dropout_of(op);
    a->heads = form.heads;
    a->kv_heads = form.kv_heads;
    a->group = form.heads / form.kv_heads;
    a->d = form.head_dim;
    a->h = (int64_t)a->heads * a->d;
    a->bucket = snug_cuda_rows(run, operands[0]);
    a->scale = form.scale;
    a->softcap = form.softcap;
    a->before = reach_of(run, form.before);
    a->after = reach_of(run, form.after);
    a->workspace = workspace + own;
    a->delta = (float *)a->workspace;
    if (bias) {
        a->bias = (const float *)(workspace);
        snug_cuda_expand_biases(run, (float *)(workspace), bias, a->scale);
    }
    if (positions) {
        if (!snug_cuda_attention_positions_mma(*a, run, op, backward, workspace))
            snug_cuda_attention_positions(*a, run, op, backward, workspace);
        return snug_cuda_done(run, op);
    }
    bool done = !dbias || snug_cuda_attention_dbias(*a, run, op);
    if (done)
        done = backward ? snug_cuda_attention_wgmma_backward(*a, run, type) ||
                              snug_cuda_attention_wgmma_long(*a, run, op, type) ||
                              snug_cuda_attention_mma_backward(*a, run, type)
                        : snug_cuda_attention_wgmma(*a, run, type) || snug_cuda_attention_mma(*a, run, type);
    if (!done) done = launch_tiles(*a, run, type, backward);
    if (!done) return snug_fail(run->ctx, SNUG_E_INTERNAL, "no kernel takes heads of %d channels", a->d);
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_attention(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention &o = op->attention;
    struct attention a = {.o = snug_run_data(run, o.o), .lse = (float *)snug_run_data(run, o.lse)};
    return run_attention(run, op, &a, {o.q, o.k, o.v}, o.bias, 0, false);
}

snug_status snug_cuda_prompt_attention(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cached_attention &o = op->cached_attention;
    struct attention a = {.o = snug_run_data(run, o.o), .lse = (float *)run->workspace};
    return run_attention(run, op, &a, {o.q, o.k, o.v}, 0, 0, false);
}

extern "C" snug_status snug_cuda_attention_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention_backward &o = op->attention_backward;
    struct attention a = {
        .dout = snug_run_data(run, o.dout), .o = snug_run_data(run, o.o), .lse = (float *)snug_run_data(run, o.lse)};
    int64_t row; /* the operands' */
    a.dq = column_of(run, o.dq, o.form, 0, &row);
    a.dk = column_of(run, o.dk, o.form, 1, &row);
    a.dv = column_of(run, o.dv, o.form, 2, &row);
    return run_attention(run, op, &a, {o.q, o.k, o.v}, o.bias, o.dbias, true);
}
