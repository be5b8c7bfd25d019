/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam and AdamW with block-wise 8-bit states (Dettmers et al., arXiv:2110.02861), as in bitsandbytes. A warp processes
 * a block of 256 elements, 8 per lane, and keeps it in registers from the old codes to the new ones; quantization maps
 * and their tables are in shared memory, which a block of threads fills once for all of its work.
 */
#include <float.h>

#include "backend/cuda/update/update.cuh"

extern "C" {
#include "backend/cuda/update/quantization.h"
}
#define inline inline __host__ __device__
#include "optim/formulas/adam_8bit.h"
#undef inline

enum { THREADS = 256, WARPS = THREADS / 32, BLOCK = SNUG_QUANTISED_BLOCK, EACH = BLOCK / 32 };
enum { RESIDENT = 4 }; /* blocks of threads on a multiprocessor: 64 registers a thread */

struct adam_8bit {
    float *p;
    bf16 *p16; /* the parameter itself if it is stored in bf16 */
    struct weight_copy copy;
    const float *g, *clip;
    uint8_t *m, *v;
    float *absmax_m, *absmax_v;
    const struct snug_cuda_step *step;
    const struct snug_cuda_quantization *quantization;
    int64_t each, blocks, count; /* elements and quantised blocks of a segment; blocks of all segments */
    bool decay;
    int32_t parameter;
    int64_t element; /* of the parameter, at which p begins */
};

/* The code of |x|, in the half of the map from 0 on. Values above 1 are clamped to 1. */
static __device__ __forceinline__ uint32_t signed_code(const struct snug_cuda_quantization &q, float x) {
    const uint32_t size = __float_as_uint(fminf(fabsf(x), 1));
    const uint32_t bits = size > SNUG_CUDA_SIGNED_LEAST ? size : SNUG_CUDA_SIGNED_LEAST;
    const uint32_t entry = q.signed_table[(bits - SNUG_CUDA_SIGNED_LEAST) >> SNUG_SIGNED_SHIFT];
    const uint32_t code = (entry + bits) >> SNUG_SIGNED_SHIFT;
    if (!signbit(x)) return code;
    /* The negative half is mirrored, without -1; a negative value keeps its sign even if 0 is nearest. */
    const uint32_t mirrored = 2 * SNUG_SIGNED_ZERO - (code > SNUG_SIGNED_ZERO ? code : SNUG_SIGNED_ZERO + 1);
    return code == SNUG_CODES - 1 ? 0 : mirrored;
}

static __device__ __forceinline__ uint32_t unsigned_code(const struct snug_cuda_quantization &q, float x) {
    const uint32_t size = __float_as_uint(fminf(x, 1));
    const uint32_t bits = size > SNUG_CUDA_UNSIGNED_LEAST ? size : SNUG_CUDA_UNSIGNED_LEAST;
    const uint32_t entry = q.unsigned_table[(bits - SNUG_CUDA_UNSIGNED_LEAST) >> SNUG_UNSIGNED_SHIFT];
    return (entry + bits) >> SNUG_UNSIGNED_SHIFT;
}

/* A lane's elements of a block. */
struct part {
    float p[EACH], g[EACH];
    uint32_t m[2], v[2]; /* four codes each */
};

static __device__ __forceinline__ uint32_t code_at(const uint32_t (&codes)[2], int i) {
    return codes[i / 4] >> i % 4 * 8 & 255;
}

static __device__ __forceinline__ void put_code(uint32_t (&codes)[2], int i, uint32_t code) {
    codes[i / 4] |= code << i % 4 * 8;
}

/* Elements first … first + n - 1; those after them count as 0 with states of 0. */
static __device__ __forceinline__ void load_part(struct part &x, const struct adam_8bit &a, int64_t first, int n,
                                                 bool whole) {
    if (whole) {
        load<EACH>(x.g, a.g + first);
        if (a.p)
            load<EACH>(x.p, a.p + first);
        else
            load<EACH>(x.p, a.p16 + first);
        const uint2 m = *reinterpret_cast<const uint2 *>(a.m + first),
                    v = *reinterpret_cast<const uint2 *>(a.v + first);
        x.m[0] = m.x, x.m[1] = m.y, x.v[0] = v.x, x.v[1] = v.y;
        return;
    }
    x.m[0] = x.m[1] = x.v[0] = x.v[1] = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const bool there = i < n;
        x.g[i] = there ? a.g[first + i] : 0;
        x.p[i] = !there ? 0 : a.p ? a.p[first + i] : to_float(a.p16[first + i]);
        put_code(x.m, i, there ? a.m[first + i] : SNUG_SIGNED_ZERO);
        put_code(x.v, i, there ? a.v[first + i] : 0);
    }
}

static __device__ __forceinline__ void store_part(struct part &x, const struct adam_8bit &a,
                                                  const struct snug_cuda_step &step, int64_t first, int n, bool whole) {
    if (!whole) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (i >= n) continue;
            store_parameter(a, step, first + i, x.p[i]);
            a.m[first + i] = (uint8_t)code_at(x.m, i);
            a.v[first + i] = (uint8_t)code_at(x.v, i);
        }
        return;
    }
    *reinterpret_cast<uint2 *>(a.m + first) = make_uint2(x.m[0], x.m[1]);
    *reinterpret_cast<uint2 *>(a.v + first) = make_uint2(x.v[0], x.v[1]);
    store_parameters(a, step, first, x.p);
}

/* Block number block of the weight, by one warp. */
static __device__ void update_block(const struct adam_8bit &a, const struct snug_cuda_quantization &q,
                                    const struct snug_cuda_step &step, const struct snug_adam_8bit_numbers &s,
                                    float clip, int64_t block) {
    const uint32_t segment = (uint32_t)block / (uint32_t)a.blocks; /* no memory holds 2^32 blocks */
    const int64_t inside = (block - segment * a.blocks) * BLOCK + threadIdx.x % 32 * EACH;
    const int64_t first = segment * a.each + inside, left = a.each - inside;
    const int n = left < 0 ? 0 : left < EACH ? (int)left : EACH;
    const bool whole = n == EACH && first % EACH == 0;
    const struct snug_adam_8bit_scales scales = snug_adam_8bit_scales(&s, a.absmax_m[block], a.absmax_v[block]);
    struct part x;
    float m[EACH], v[EACH], largest_m = 0, largest_v = 0;
    load_part(x, a, first, n, whole);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const bool usable = fabsf(x.g[i]) < INFINITY;
        const float g = snug_adam_8bit_gradient(&s, x.p[i], x.g[i] * clip);
        m[i] = snug_adam_8bit_mean(&s, q.signed_map[code_at(x.m, i)], scales.m, g);
        v[i] = snug_adam_8bit_square(&s, q.unsigned_map[code_at(x.v, i)], scales.v, g);
        if (usable) x.p[i] = snug_adam_8bit_step(&s, x.p[i], m[i], v[i]);
        if (!usable) m[i] = v[i] = 0;
        largest_m = fmaxf(largest_m, fabsf(m[i]));
        largest_v = fmaxf(largest_v, v[i]);
    }
    largest_m = warp_max(largest_m);
    largest_v = warp_max(largest_v);
    /* So small that it is treated as 0: the codes are those that bitsandbytes' search returns for 0 / 0. */
    const bool zero_m = largest_m < FLT_MIN, zero_v = largest_v < FLT_MIN;
    const float scale_m = 1 / largest_m, scale_v = 1 / largest_v;
    x.m[0] = x.m[1] = x.v[0] = x.v[1] = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        put_code(x.m, i, zero_m ? (signbit(m[i]) ? 0 : SNUG_CODES - 1) : signed_code(q, m[i] * scale_m));
        put_code(x.v, i, zero_v ? 0 : unsigned_code(q, v[i] * scale_v));
    }
    store_part(x, a, step, first, n, whole);
    if (threadIdx.x % 32) return;
    a.absmax_m[block] = zero_m ? 0 : largest_m;
    a.absmax_v[block] = zero_v ? 0 : largest_v;
}

static __device__ void load_quantization(struct snug_cuda_quantization &to, const struct snug_cuda_quantization *from) {
    uint32_t *words = reinterpret_cast<uint32_t *>(&to);
    for (int i = threadIdx.x; i < (int)(sizeof to / 4); i += THREADS)
        words[i] = reinterpret_cast<const uint32_t *>(from)[i];
    __syncthreads();
}

static __device__ struct snug_adam_8bit_numbers numbers_of(const struct adam_8bit &a,
                                                           const struct snug_cuda_step &step) {
    struct snug_adam_8bit_numbers s = step.update.numbers.adam_8bit;
    if (!a.decay) s.keep = 1, s.l2 = 0;
    return s;
}

static __global__ void __launch_bounds__(THREADS, RESIDENT) adam_8bit_kernel(const struct adam_8bit a) {
    __shared__ struct snug_cuda_quantization q;
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    load_quantization(q, a.quantization);
    const struct snug_adam_8bit_numbers s = numbers_of(a, step);
    const float clip = a.clip ? a.clip[1] : 1;
    for (int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; block < a.count; block += gridDim.x * WARPS)
        update_block(a, q, step, s, clip, block);
}

/* Sets the fields of a tensor of the table; the others are shared by all weights. */
static __device__ void take_states(struct adam_8bit &a, const struct snug_cuda_entry &entry, uint8_t *arena) {
    a.m = arena + entry.state[0];
    a.v = arena + entry.state[1];
    a.absmax_m = (float *)(arena + entry.state[2]);
    a.absmax_v = (float *)(arena + entry.state[3]);
    a.each = entry.count / entry.segments;
    a.blocks = (a.each + BLOCK - 1) / BLOCK;
    a.count = a.blocks * entry.segments;
    a.decay = entry.decay;
}

/* All weights at once; a has the shared fields. total: blocks of the table, see multi_tensor.c. The current tensor is
   in shared memory, because the elements need the registers. */
static __global__ void __launch_bounds__(THREADS, RESIDENT)
    adam_8bit_all(const struct adam_8bit a, uint8_t *arena, const struct snug_cuda_entry *entries, int32_t count,
                  int64_t total) {
    enum { PART = SNUG_CUDA_BLOCK / BLOCK };
    __shared__ struct snug_cuda_quantization q;
    __shared__ struct adam_8bit own;
    __shared__ int64_t begin;
    if (a.step->skip) return;
    load_quantization(q, a.quantization);
    for (int64_t next = blockIdx.x; next < total; next += gridDim.x) {
        __syncthreads();
        if (threadIdx.x == 0) {
            const struct snug_cuda_entry entry = entry_of_block(entries, count, next);
            own = a;
            take_entry(own, entry, arena);
            take_states(own, entry, arena);
            begin = (next - entry.block) * PART;
        }
        __syncthreads();
        const struct snug_adam_8bit_numbers s = numbers_of(own, *a.step);
        const float clip = a.clip ? a.clip[1] : 1;
        const int64_t end = begin + PART < own.count ? begin + PART : own.count;
        for (int64_t block = begin + threadIdx.x / 32; block < end; block += WARPS)
            update_block(own, q, *a.step, s, clip, block);
    }
}

extern "C" snug_status snug_cuda_adam_8bit(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const enum snug_cuda_share share = snug_cuda_share_of(run, op, &cuda->updates_8bit);
    struct adam_8bit a = weight_of<struct adam_8bit>(run, op);
    a.m = (uint8_t *)snug_run_data(run, op->update.states[0]);
    a.v = (uint8_t *)snug_run_data(run, op->update.states[1]);
    a.absmax_m = (float *)snug_run_data(run, op->update.states[2]);
    a.absmax_v = (float *)snug_run_data(run, op->update.states[3]);
    a.quantization = cuda->batch.quantization;
    a.each = snug_run_rows(run, op->update.weight) * snug_run_cols(run, op->update.weight) / op->update.segments;
    a.decay = op->update.decay;
    /* As many blocks as run at once, so each fills its tables once. */
    const int64_t most = (int64_t)cuda->multiprocessors * RESIDENT;
    if (share == SNUG_CUDA_NO_TENSOR) return SNUG_OK;
    if (share == SNUG_CUDA_ALL_TENSORS) {
        const int64_t total = cuda->updates_8bit.blocks;
        adam_8bit_all<<<(unsigned)(total < most ? total : most), THREADS, 0, cuda->stream>>>(
            a, run->arena, cuda->batch.updates_8bit, cuda->updates_8bit.count, total);
        return snug_cuda_done(run, op);
    }
    a.blocks = (a.each + BLOCK - 1) / BLOCK;
    a.count = a.blocks * op->update.segments;
    const int64_t wanted = (a.count + WARPS - 1) / WARPS;
    if (wanted > 0) adam_8bit_kernel<<<(unsigned)(wanted < most ? wanted : most), THREADS, 0, cuda->stream>>>(a);
    return snug_cuda_done(run, op);
}
