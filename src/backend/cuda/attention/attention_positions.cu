/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with position keys and queries: S_ij = (q_i . k_j + q_i . pk_r + k_j . pq_r) * scale, where r is the row of
 * distance i - j. Of what attention_positions_mma.cu does not take, without tensor cores: a warp for each query
 * (forward, dq) or key (dk, dv), whose lanes have 32 pairs at a time, each with its dot products; then the lanes are
 * channels. The gradients of a row of pk and pq are sums over all pairs of its distances, in all sequences: a block for
 * each row and head computes these pairs again. So each output has one owner, and sums have a fixed order.
 */
#include "backend/cuda/attention/attention_operands.cuh"

enum { WARPS = 4, ROW_WARPS = 8, CHANNELS = SNUG_CUDA_HEAD_MOST / 32 };

struct positions {
    const void *pk, *pq; /* [2*span,h], or NULL */
    void *dpk, *dpq;
    int32_t *rows; /* by distance, which may be below 0 */
    int farthest, span;
};

static __global__ void rows_kernel(const struct positions p, int32_t logarithmic) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) - p.farthest;
    if (i <= p.farthest) p.rows[i] = snug_position_row(i, p.span, logarithmic);
}

template <typename T>
static __device__ __forceinline__ const T *at(const void *from, int64_t row, int64_t stride, int64_t column) {
    return (const T *)from + row * stride + column;
}

template <typename T, int W> static __device__ __forceinline__ float dot(const T *a, const T *b, int d) {
    float sum = 0;
    for (int c = 0; c < d; c += W) {
        float left[W], right[W];
        load<W>(left, a + c);
        load<W>(right, b + c);
#pragma unroll
        for (int i = 0; i < W; i++) sum += left[i] * right[i];
    }
    return sum;
}

template <typename T, int W>
static __device__ float score_at(const struct attention &a, const struct positions &p, const struct head &head,
                                 int query, int key) {
    const T *q = at<T>(a.q, head.first + query, a.q_row, head.column),
            *k = at<T>(a.k, head.first + key, a.k_row, head.keys);
    const int64_t row = p.rows[query - key];
    float sum = dot<T, W>(q, k, a.d);
    if (p.pk) sum += dot<T, W>(q, at<T>(p.pk, row, a.h, head.column), a.d);
    if (p.pq) sum += dot<T, W>(k, at<T>(p.pq, row, a.h, head.column), a.d);
    return sum * a.scale;
}

static __device__ __forceinline__ float factor_at(const struct attention &a, const struct head &head, int query,
                                                  int key) {
    if (a.dropout.threshold == 0) return 1;
    const uint32_t kept = kept_quad(head, a.dropout.threshold, (uint32_t)key / 4, (uint32_t)query);
    return kept >> key % 4 & 1 ? a.dropout.scale : 0;
}

/* F * P and dP of a pair, and P. */
template <typename T, int W>
static __device__ void pair_at(const struct attention &a, const struct positions &p, const struct head &head, int query,
                               int key, float *weight, float *dp, float *probability) {
    const T *dout = at<T>(a.dout, head.first + query, a.h, head.column),
            *v = at<T>(a.v, head.first + key, a.v_row, head.keys);
    const float factor = factor_at(a, head, query, key);
    *probability =
        expf(score_at<T, W>(a, p, head, query, key) - a.lse[(int64_t)(head.first + query) * a.heads + head.index]);
    *weight = factor * *probability;
    *dp = factor * dot<T, W>(dout, v, a.d);
}

/* F * P and dS of a pair. */
template <typename T, int W>
static __device__ void gradient_at(const struct attention &a, const struct positions &p, const struct head &head,
                                   int query, int key, float *weight, float *ds) {
    float dp, probability;
    pair_at<T, W>(a, p, head, query, key, weight, &dp, &probability);
    *ds = probability * (dp - a.delta[(int64_t)(head.first + query) * a.heads + head.index]);
}

/* delta_i = sum of P_ij dP_ij. It is do . o, but for the rounding of o in 16 bits, which would show in rows of few
   pairs. */
template <typename T, int W> static __global__ void row_kernel(const struct attention a, const struct positions p) {
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int query = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (query >= head.length) return;
    float sum = 0;
    for (int key = lane; key < head.length; key += 32) {
        float weight, dp, probability;
        pair_at<T, W>(a, p, head, query, key, &weight, &dp, &probability);
        sum += probability * dp;
    }
    sum = warp_sum(sum);
    if (lane == 0) a.delta[(int64_t)(head.first + query) * a.heads + head.index] = sum;
}

/* What each lane has for the lanes as channels. */
struct pairs {
    float weight[32], ds[32];
};
static __device__ __forceinline__ void share(struct pairs &pairs, float weight, float ds) {
    __syncwarp(); /* the warp has read the previous ones */
    pairs.weight[threadIdx.x % 32] = weight;
    pairs.ds[threadIdx.x % 32] = ds;
    __syncwarp();
}

/* sum += weight * a row's channels, of which a lane has every 32nd */
template <typename T>
static __device__ __forceinline__ void add_row(float (&sum)[CHANNELS], float weight, const T *row, int d) {
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
        const int c = threadIdx.x % 32 + 32 * i;
        if (c < d) sum[i] += weight * to_float(row[c]);
    }
}

template <typename T>
static __device__ __forceinline__ void store_row(T *row, const float (&sum)[CHANNELS], float scale, int d) {
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
        const int c = threadIdx.x % 32 + 32 * i;
        if (c < d) row[c] = from_float<T>(sum[i] * scale);
    }
}

template <typename T, int W> static __global__ void forward_kernel(const struct attention a, const struct positions p) {
    __shared__ struct pairs shared[WARPS];
    if (blockIdx.z == gridDim.z - 1) return clear_tail<T>(a, a.o, a.h, a.h);
    struct pairs &pairs = shared[threadIdx.x / 32];
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int query = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (query >= head.length) return;
    float o[CHANNELS] = {}, max = -INFINITY, sum = 0;
    for (int k0 = 0; k0 < head.length; k0 += 32) {
        const int key = k0 + lane, count = head.length - k0 < 32 ? head.length - k0 : 32;
        const float s = lane < count ? score_at<T, W>(a, p, head, query, key) : -INFINITY,
                    top = fmaxf(max, warp_max(s)), shrink = expf(max - top), e = expf(s - top),
                    weight = e * factor_at(a, head, query, key);
        max = top;
        sum = sum * shrink + warp_sum(e);
        for (int i = 0; i < CHANNELS; i++) o[i] *= shrink;
        share(pairs, weight, 0);
        for (int j = 0; j < count; j++)
            add_row(o, pairs.weight[j], at<T>(a.v, head.first + k0 + j, a.v_row, head.keys), a.d);
    }
    const int64_t token = head.first + query;
    store_row((T *)a.o + token * a.h + head.column, o, 1 / sum, a.d);
    if (lane == 0) a.lse[token * a.heads + head.index] = max + logf(sum);
}

template <typename T, int W> static __global__ void dq_kernel(const struct attention a, const struct positions p) {
    __shared__ struct pairs shared[WARPS];
    if (blockIdx.z == gridDim.z - 1) return clear_gradients<T>(a);
    struct pairs &pairs = shared[threadIdx.x / 32];
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int query = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (query >= head.length) return;
    float dq[CHANNELS] = {};
    for (int k0 = 0; k0 < head.length; k0 += 32) {
        const int count = head.length - k0 < 32 ? head.length - k0 : 32;
        float weight = 0, ds = 0;
        if (lane < count) gradient_at<T, W>(a, p, head, query, k0 + lane, &weight, &ds);
        share(pairs, weight, ds);
        for (int j = 0; j < count; j++) {
            const float of_key = pairs.ds[j];
            add_row(dq, of_key, at<T>(a.k, head.first + k0 + j, a.k_row, head.keys), a.d);
            if (p.pk) add_row(dq, of_key, at<T>(p.pk, p.rows[query - k0 - j], a.h, head.column), a.d);
        }
    }
    store_row((T *)a.dq + (int64_t)(head.first + query) * a.q_row + head.column, dq, a.scale, a.d);
}

template <typename T, int W> static __global__ void dkv_kernel(const struct attention a, const struct positions p) {
    __shared__ struct pairs shared[WARPS];
    struct pairs &pairs = shared[threadIdx.x / 32];
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    const int key = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (key >= head.length) return;
    float dk[CHANNELS] = {}, dv[CHANNELS] = {};
    for (int q0 = 0; q0 < head.length; q0 += 32) {
        const int count = head.length - q0 < 32 ? head.length - q0 : 32;
        float weight = 0, ds = 0;
        if (lane < count) gradient_at<T, W>(a, p, head, q0 + lane, key, &weight, &ds);
        share(pairs, weight, ds);
        for (int i = 0; i < count; i++) {
            const float of_query = pairs.ds[i];
            const int64_t token = head.first + q0 + i;
            add_row(dv, pairs.weight[i], at<T>(a.dout, token, a.h, head.column), a.d);
            add_row(dk, of_query, at<T>(a.q, token, a.q_row, head.column), a.d);
            if (p.pq) add_row(dk, of_query, at<T>(p.pq, p.rows[q0 + i - key], a.h, head.column), a.d);
        }
    }
    store_row((T *)a.dk + (int64_t)(head.first + key) * a.k_row + head.keys, dk, a.scale, a.d);
    store_row((T *)a.dv + (int64_t)(head.first + key) * a.v_row + head.keys, dv, 1, a.d);
}

/* The first distance whose row is at least `row`; rows grow with distances. */
static __device__ int first_distance(const struct positions &p, int row) {
    int low = -p.farthest, high = p.farthest + 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (p.rows[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The row of a gradient = the sum of the warps', in order. */
template <typename T>
static __device__ void sum_warps(T *row, const float (&sum)[CHANNELS], float (*shared)[SNUG_CUDA_HEAD_MOST],
                                 float scale, int d) {
    for (int i = 0; i < CHANNELS; i++) shared[threadIdx.x / 32][threadIdx.x % 32 + 32 * i] = sum[i];
    __syncthreads();
    for (int c = threadIdx.x; c < d; c += 32 * ROW_WARPS) {
        float total = 0;
        for (int warp = 0; warp < ROW_WARPS; warp++) total += shared[warp][c];
        row[c] = from_float<T>(total * scale);
    }
    __syncthreads();
}

template <typename T, int W>
static __global__ void position_kernel(const struct attention a, const struct positions p) {
    __shared__ float shared[ROW_WARPS][SNUG_CUDA_HEAD_MOST];
    __shared__ struct pairs all[ROW_WARPS];
    struct pairs &pairs = all[threadIdx.x / 32];
    const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int nearest = first_distance(p, row), end = first_distance(p, row + 1);
    float dpk[CHANNELS] = {}, dpq[CHANNELS] = {};
    for (int sequence = 0; sequence < a.batch.step->sequences; sequence++) {
        const struct head head = head_of(a, sequence, blockIdx.y);
        const int first = nearest > 1 - head.length ? nearest : 1 - head.length,
                  last = end < head.length ? end : head.length;
        for (int distance = first; distance < last; distance++) {
            const int begin = distance > 0 ? distance : 0, most = head.length - abs(distance);
            for (int n0 = 32 * warp; n0 < most; n0 += 32 * ROW_WARPS) {
                const int count = most - n0 < 32 ? most - n0 : 32, query = begin + n0 + lane;
                float weight = 0, ds = 0;
                if (lane < count) gradient_at<T, W>(a, p, head, query, query - distance, &weight, &ds);
                share(pairs, weight, ds);
                for (int i = 0; i < count; i++) {
                    const float of_pair = pairs.ds[i];
                    const int64_t token = head.first + begin + n0 + i;
                    if (p.dpk) add_row(dpk, of_pair, at<T>(a.q, token, a.q_row, head.column), a.d);
                    if (p.dpq) add_row(dpq, of_pair, at<T>(a.k, token - distance, a.k_row, head.keys), a.d);
                }
            }
        }
    }
    const int64_t to = row * a.h + (int64_t)blockIdx.y * a.d;
    if (p.dpk) sum_warps((T *)p.dpk + to, dpk, shared, a.scale, a.d);
    if (p.dpq) sum_warps((T *)p.dpq + to, dpq, shared, a.scale, a.d);
}

template <typename T, int W>
static void launch_positions(const struct attention &a, const struct positions &p, const struct snug_run *run,
                             bool backward) {
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    const unsigned sequences = (unsigned)run->batch->sequences;
    const dim3 grid(blocks_for(p.farthest + 1, WARPS), (unsigned)a.heads, sequences + 1);
    const dim3 tokens(grid.x, grid.y, sequences), rows(2 * (unsigned)p.span, grid.y);
    if (!backward) {
        forward_kernel<T, W><<<grid, 32 * WARPS, 0, stream>>>(a, p);
        return;
    }
    if (sequences > 0) row_kernel<T, W><<<tokens, 32 * WARPS, 0, stream>>>(a, p);
    dq_kernel<T, W><<<grid, 32 * WARPS, 0, stream>>>(a, p);
    if (sequences > 0) dkv_kernel<T, W><<<tokens, 32 * WARPS, 0, stream>>>(a, p);
    if (p.dpk || p.dpq) position_kernel<T, W><<<rows, 32 * ROW_WARPS, 0, stream>>>(a, p);
}

void snug_cuda_attention_positions(const struct attention &a, const struct snug_run *run, const struct snug_op *op,
                                   bool backward, void *rows) {
    const struct snug_attention_backward &b = op->attention_backward;
    const int32_t pk = backward ? b.pk : op->attention.pk, pq = backward ? b.pq : op->attention.pq;
    const int64_t longest = run->program->longest > 0 ? run->program->longest : 1;
    struct positions p = {};
    p.pk = snug_run_data(run, pk);
    p.pq = snug_run_data(run, pq);
    if (backward) {
        p.dpk = snug_run_data(run, b.dpk);
        p.dpq = snug_run_data(run, b.dpq);
    }
    p.farthest = (int)longest - 1;
    p.span = (int)snug_run_rows(run, pk ? pk : pq) / 2;
    p.rows = (int32_t *)rows + p.farthest;
    rows_kernel<<<blocks_for(2 * longest, 256), 256, 0, snug_cuda_of(run)->stream>>>(
        p, snug_op_attention_form(op)->farthest);
    const bool wide = a.d % 8 == 0 && a.q_row % 8 == 0 && a.k_row % 8 == 0 && a.v_row % 8 == 0;
    with_type(snug_run_dtype(run, pk ? pk : pq), [&](auto value) {
        typedef decltype(value) T;
        if (wide)
            launch_positions<T, 8>(a, p, run, backward);
        else
            launch_positions<T, 1>(a, p, run, backward);
    });
}
