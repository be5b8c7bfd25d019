/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of attention have in common. */
#ifndef SNUG_BACKEND_CUDA_ATTENTION_CUH
#define SNUG_BACKEND_CUDA_ATTENTION_CUH

#include "backend/cuda/device.cuh"

struct attention {
    const void *qkv, *dout;
    void *o, *dqkv;
    float *lse, *delta; /* [T, heads]; delta: do . o */
    struct snug_cuda_batch batch;
    struct dropout dropout;
    int heads, d;
    int64_t h, bucket; /* rows from the last token to here become zero */
    float scale;       /* 1 / sqrt(d) */
};

/* One head of one sequence. */
struct head {
    int first, length, index;
    int64_t column;
    uint32_t sample, site, key, step;
};

static __device__ __forceinline__ struct head head_of(const struct attention &a, int sequence, int index) {
    const int first = a.batch.offsets[sequence], length = a.batch.offsets[sequence + 1] - first;
    return {first,
            length,
            index,
            (int64_t)index * a.d,
            length > 0 ? (uint32_t)a.batch.sample[first] : 0,
            a.dropout.site | (uint32_t)index,
            a.batch.step->key,
            a.batch.step->step};
}

/* Of keys 4 quad … 4 quad + 3 of a query: bit i is set where key i is kept. */
static __device__ __forceinline__ uint32_t kept_quad(const struct head &head, uint32_t threshold, uint32_t quad,
                                                     uint32_t query) {
    const struct snug_philox_block b =
        snug_philox_rounds(quad, query / 2, head.sample, head.site, head.key, head.step, SNUG_DROPOUT_ROUNDS);
    uint32_t kept = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) kept |= (uint32_t)(snug_dropout_half(b.word[i], query) >= threshold) << i;
    return kept;
}

/* The blocks behind the last sequence clear the rows behind the last token. */
template <typename T> static __device__ void clear_tail(const struct attention &a, T *to, int64_t stride) {
    const int64_t tokens = a.batch.step->tokens, count = (a.bucket - tokens) * stride;
    const int64_t blocks = (int64_t)gridDim.x * gridDim.y, block = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    for (int64_t i = block * blockDim.x + threadIdx.x; i < count; i += blocks * blockDim.x)
        to[tokens * stride + i] = from_float<T>(0);
}

/* Hopper's tensor cores, for d of 64, in 16 bits, where the longest sequence has more than 128 tokens; forward with
   dropout up to one half, backward up to 512 tokens and where there are enough. False where they do not take it. */
#ifdef SNUG_CUDA_HOPPER
bool snug_cuda_attention_wgmma(const struct attention &a, const struct snug_run *run, int32_t qkv);
bool snug_cuda_attention_wgmma_backward(const struct attention &a, const struct snug_run *run, int32_t qkv);
#else
static inline bool snug_cuda_attention_wgmma(const struct attention &, const struct snug_run *, int32_t) {
    return false;
}
static inline bool snug_cuda_attention_wgmma_backward(const struct attention &, const struct snug_run *, int32_t) {
    return false;
}
#endif

/* Tensor cores, for d of 32, 64 or 128. False where they cannot take it, which needs no workspace then. */
bool snug_cuda_attention_mma(const struct attention &a, const struct snug_run *run, int32_t qkv);
bool snug_cuda_attention_mma_backward(const struct attention &a, const struct snug_run *run, int32_t qkv);
int64_t snug_cuda_attention_mma_workspace(const struct snug_program *program, enum snug_dtype type, int64_t h,
                                          int heads);

#endif
