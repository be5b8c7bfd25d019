/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the attention kernels share. */
#ifndef SNUG_BACKEND_CUDA_ATTENTION_ATTENTION_OPERANDS_CUH
#define SNUG_BACKEND_CUDA_ATTENTION_ATTENTION_OPERANDS_CUH

#include "backend/cuda/device.cuh"

extern "C" {
#include "backend/cuda/sizes/attention.h"
}

/* Position keys and queries on tensor cores, of some heads: see attention_positions_mma.cu. Distances are query - key.
 */
struct position_scores {
    const int32_t *rows;     /* by distance, which may be below 0; NULL: none of this */
    const void *c2p, *p2c;   /* [heads, tokens, stride]: q . pk and k . pq of each row; or NULL */
    void *of_query, *of_key; /* [heads, tokens, others]: dS by query and by key; or NULL */
    int64_t tokens, stride, others;
    int first, heads; /* these heads */
    int near, middle; /* up to this distance, rows are middle + distance */
};

struct attention {
    const void *q, *k, *v, *dout; /* the first columns of the operands */
    void *o, *dq, *dk, *dv;
    int64_t q_row, k_row, v_row; /* elements from a row to the next one; of gradients, too */
    float *lse, *delta;          /* [T, heads]; delta: do . o */
    struct snug_cuda_batch batch;
    struct dropout dropout;
    int heads, kv_heads, group, d; /* group: query heads of a key/value head */
    int64_t h, bucket;             /* columns of o; rows after the last token up to here become zero */
    float scale, softcap;          /* softcap 0: none */
    int before, after;             /* query i attends to the keys from i - before to i + after; or ALL_KEYS */
    const float *bias; /* [heads, DISTANCES]: bias of each distance from query to key, divided by scale; or NULL */
    struct position_scores positions;
    void *workspace; /* of the kernels */
};

enum { ALL_KEYS = 1 << 29 };
static inline bool is_windowed(const struct attention &a) { return a.before < ALL_KEYS || a.after < ALL_KEYS; }
/* The score of a masked key. Finite, so that differences of scores in a row of masked keys are not NaN, and a power of
   two, so that they are exact; the sums of such a row are multiplied by 0 at its first unmasked key. */
#define HIDDEN (-0x1p100f)
enum { FARTHEST = SNUG_CUDA_FARTHEST, DISTANCES = SNUG_CUDA_DISTANCES };

/* From the first to the last but one. */
struct range {
    int first, end;
};

/* Positions from `before` before the first of at … at + count - 1 to `after` after the last, from a multiple of tile
   on. */
static __device__ __forceinline__ struct range around(int at, int count, int before, int after, int length, int tile) {
    const int first = at > before ? (at - before) / tile * tile : 0, end = at + count + after;
    return {first, end < length ? end : length};
}
/* Keys that any of the queries at … at + count - 1 attends to; queries that attend to any of these keys. */
static __device__ __forceinline__ struct range keys_of(const struct attention &a, int at, int count, int length,
                                                       int tile) {
    return around(at, count, a.before, a.after, length, tile);
}
static __device__ __forceinline__ struct range queries_of(const struct attention &a, int at, int count, int length,
                                                          int tile) {
    return around(at, count, a.after, a.before, length, tile);
}

/* Whether a query does not attend to a key. */
static __device__ __forceinline__ bool is_hidden(const struct attention &a, int query, int key) {
    return query - key > a.before || key - query > a.after;
}
/* Whether each of `queries` queries from `query` on attends to each of `keys` keys. */
static __device__ __forceinline__ bool sees_all(const struct attention &a, int query, int queries, int key, int keys) {
    return query + queries - 1 - key <= a.before && key + keys - 1 - query <= a.after;
}

/* The index of a key's bias. */
static __device__ __forceinline__ int distance_of(int query, int key) {
    const int distance = key - query;
    return FARTHEST + (distance < -FARTHEST ? -FARTHEST : distance > FARTHEST ? FARTHEST : distance);
}

/* One head of one sequence. */
struct head {
    int first, length, index;
    int64_t column, keys; /* its first channel in q (and o), and in k and v */
    uint32_t sample, site, key, step;
};

static __device__ __forceinline__ struct head head_of(const struct attention &a, int sequence, int index) {
    const int first = a.batch.offsets[sequence], length = a.batch.offsets[sequence + 1] - first;
    return {first,
            length,
            index,
            (int64_t)index * a.d,
            (int64_t)(index / a.group) * a.d,
            length > 0 ? (uint32_t)a.batch.sample[first] : 0,
            a.dropout.site | (uint32_t)index,
            a.batch.step->key,
            a.batch.step->step};
}

/* Another query head that reads the same keys. */
static __device__ __forceinline__ void choose_head(struct head &head, const struct attention &a, int index) {
    head.index = index;
    head.column = (int64_t)index * a.d;
    head.site = a.dropout.site | (uint32_t)index;
}

/* Dropout mask of keys 4 quad … 4 quad + 3 of a query: bit i is set if key i is kept. */
static __device__ __forceinline__ uint32_t kept_quad(const struct head &head, uint32_t threshold, uint32_t quad,
                                                     uint32_t query) {
    const struct snug_philox_block b =
        snug_philox_rounds(quad, query / 2, head.sample, head.site, head.key, head.step, SNUG_DROPOUT_ROUNDS);
    uint32_t kept = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) kept |= (uint32_t)(snug_dropout_half(b.word[i], query) >= threshold) << i;
    return kept;
}

/* The blocks after the last sequence clear the rows after the last token. */
template <typename T>
static __device__ void clear_tail(const struct attention &a, void *to, int64_t row, int64_t width) {
    const int64_t tokens = a.batch.step->tokens, count = (a.bucket - tokens) * width;
    const int64_t blocks = (int64_t)gridDim.x * gridDim.y, block = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    for (int64_t i = block * blockDim.x + threadIdx.x; i < count; i += blocks * blockDim.x)
        ((T *)to)[(tokens + i / width) * row + i % width] = from_float<T>(0);
}
template <typename T> static __device__ void clear_gradients(const struct attention &a) {
    const int64_t keys = (int64_t)a.kv_heads * a.d;
    clear_tail<T>(a, a.dq, a.q_row, a.h);
    clear_tail<T>(a, a.dk, a.k_row, keys);
    clear_tail<T>(a, a.dv, a.v_row, keys);
}

/* Hopper's tensor cores, in 16 bits, without a bias or a cap, if the longest sequence has more than 128 tokens. Forward
   for d of 64 or 128, with dropout up to one half for 64; backward for d of 64 without shared key/value heads, up to
   512 tokens and if there are enough heads; long: backward if snug_cuda_takes_long_attention(). False if they are not
   applicable. */
#ifdef SNUG_CUDA_HOPPER
bool snug_cuda_attention_wgmma(const struct attention &a, const struct snug_run *run, enum snug_dtype type);
bool snug_cuda_attention_wgmma_backward(const struct attention &a, const struct snug_run *run, enum snug_dtype type);
bool snug_cuda_attention_wgmma_long(const struct attention &a, const struct snug_run *run, const struct snug_op *op,
                                    enum snug_dtype type);
#else
static inline bool snug_cuda_attention_wgmma(const struct attention &, const struct snug_run *, enum snug_dtype) {
    return false;
}
static inline bool snug_cuda_attention_wgmma_backward(const struct attention &, const struct snug_run *,
                                                      enum snug_dtype) {
    return false;
}
static inline bool snug_cuda_attention_wgmma_long(const struct attention &, const struct snug_run *,
                                                  const struct snug_op *, enum snug_dtype) {
    return false;
}
#endif

/* Tensor cores, for d of 32 to 256 in multiples of 16, in the forms of choose_width(). False if they are not
   applicable. */
bool snug_cuda_attention_mma(const struct attention &a, const struct snug_run *run, enum snug_dtype type);
bool snug_cuda_attention_mma_backward(const struct attention &a, const struct snug_run *run, enum snug_dtype type);

/* delta of heads with positions in 16 bits, into the rows of attention_mma_backward.cu. */
void snug_cuda_attention_mma_delta(const struct attention &a, const struct snug_run *run, enum snug_dtype type,
                                   void *rows, int64_t stride);

/* With position keys and queries; workspace: of snug_cuda_attention_position_bytes(). Tensor cores, for the same heads
   up to 128 channels and types; false if they are not applicable. */
bool snug_cuda_attention_positions_mma(const struct attention &a, const struct snug_run *run, const struct snug_op *op,
                                       bool backward, void *workspace);
void snug_cuda_attention_positions(const struct attention &a, const struct snug_run *run, const struct snug_op *op,
                                   bool backward, void *workspace);

/* CACHED_ATTENTION of sequences that have no earlier tokens, with lse in the workspace. */
snug_status snug_cuda_prompt_attention(struct snug_run *run, const struct snug_op *op);

/* [heads, DISTANCES] biases divided by scale. */
void snug_cuda_expand_biases(const struct snug_run *run, float *to, int32_t bias, float scale);
/* dbias += the sums of dS, by the kernels of attention_tiles.cuh. False if heads are too wide. */
bool snug_cuda_attention_dbias(const struct attention &a, const struct snug_run *run, const struct snug_op *op);

#endif
