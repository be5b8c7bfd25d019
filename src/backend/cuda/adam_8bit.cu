/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam and AdamW with block-wise 8-bit states (Dettmers et al., arXiv:2110.02861), as bitsandbytes has them. A warp
 * takes a block of 256 elements, 8 a lane, and keeps it in registers from the old codes to the new ones; books and
 * cells stand in shared memory, which a block of threads fills once for all that it does.
 */
#include <float.h>

#include "backend/cuda/update.cuh"

extern "C" {
#include "backend/cuda/codes.h"
}

enum { THREADS = 256, WARPS = THREADS / 32, BLOCK = SNUG_QUANTISED_BLOCK, EACH = BLOCK / 32 };
enum { RESIDENT = 4 }; /* blocks of threads on a multiprocessor: 64 registers a thread */

struct adam_8bit {
    float *p;
    bf16 *p16; /* the parameter itself where it is kept in bf16 */
    struct weight_copy copy;
    const float *g, *clip;
    uint8_t *m, *v;
    float *absmax_m, *absmax_v;
    const struct snug_cuda_step *step;
    const struct snug_cuda_codes *codes;
    int64_t each, blocks, count; /* elements and quantised blocks of a segment; blocks of all segments */
    float b1, rest1, b2, rest2, eps, decay;
    bool decoupled;
    int32_t parameter;
};

/* What the elements of a weight have in common. */
struct constants {
    float clip, l2, keep, step_size, eps;
};

static __device__ struct constants constants_of(const struct adam_8bit &a, const struct snug_cuda_step &step,
                                                float decay) {
    return {a.clip ? a.clip[1] : 1, a.decoupled ? 0 : decay, a.decoupled ? 1 - step.learning_rate * decay : 1,
            -step.rate_8bit, step.correction_8bit * a.eps};
}

/* The code of |x|; the book begins there at its zero. Values beyond 1 are 1. */
static __device__ __forceinline__ uint32_t signed_code(const struct snug_cuda_codes &codes, float x) {
    const uint32_t size = __float_as_uint(fminf(fabsf(x), 1));
    const uint32_t bits = size > SNUG_CUDA_SIGNED_LEAST ? size : SNUG_CUDA_SIGNED_LEAST;
    const uint32_t cell = codes.signed_cells[(bits - SNUG_CUDA_SIGNED_LEAST) >> SNUG_SIGNED_SHIFT];
    const uint32_t code = (cell + bits) >> SNUG_SIGNED_SHIFT;
    if (!signbit(x)) return code;
    /* The negative half lies mirrored, without -1; a negative value keeps its sign where 0 is nearest. */
    const uint32_t mirrored = 2 * SNUG_SIGNED_ZERO - (code > SNUG_SIGNED_ZERO ? code : SNUG_SIGNED_ZERO + 1);
    return code == SNUG_CODES - 1 ? 0 : mirrored;
}

static __device__ __forceinline__ uint32_t unsigned_code(const struct snug_cuda_codes &codes, float x) {
    const uint32_t size = __float_as_uint(fminf(x, 1));
    const uint32_t bits = size > SNUG_CUDA_UNSIGNED_LEAST ? size : SNUG_CUDA_UNSIGNED_LEAST;
    const uint32_t cell = codes.unsigned_cells[(bits - SNUG_CUDA_UNSIGNED_LEAST) >> SNUG_UNSIGNED_SHIFT];
    return (cell + bits) >> SNUG_UNSIGNED_SHIFT;
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

/* Elements first … first + n - 1; those behind are as if they were 0 with states of 0. */
static __device__ __forceinline__ void load_part(struct part &x, const struct adam_8bit &a, int64_t first, int n,
                                                 bool whole) {
    if (whole) {
        load<EACH>(x.g, a.g + first);
        if (a.p)
            load<EACH>(x.p, a.p + first);
        else
            load<EACH>(x.p, a.p16 + first);
        const uint2 m = *reinterpret_cast<const uint2 *>(a.m + first), v = *reinterpret_cast<const uint2 *>(a.v + first);
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

/* The square root to 2 units in the last place, which is what bitsandbytes divides with as well: the exact ones would
   take as long as all else. Below fp32's normal numbers it is anything far below epsilon. */
static __device__ __forceinline__ float root(float x) { return x * rsqrtf(fmaxf(x, FLT_MIN)); }

/* Block number block of the weight, by one warp. */
static __device__ void update_block(const struct adam_8bit &a, const struct snug_cuda_codes &codes,
                                    const struct snug_cuda_step &step, const struct constants &s, int64_t block) {
    const uint32_t segment = (uint32_t)block / (uint32_t)a.blocks; /* 2^32 blocks are more than any memory has */
    const int64_t inside = (block - segment * a.blocks) * BLOCK + threadIdx.x % 32 * EACH;
    const int64_t first = segment * a.each + inside, left = a.each - inside;
    const int n = left < 0 ? 0 : left < EACH ? (int)left : EACH;
    const bool whole = n == EACH && first % EACH == 0;
    const float absmax_m = a.absmax_m[block], absmax_v = a.absmax_v[block];
    struct part x;
    float m[EACH], v[EACH], largest_m = 0, largest_v = 0;
    load_part(x, a, first, n, whole);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const bool usable = fabsf(x.g[i]) < INFINITY;
        float g = x.g[i] * s.clip;
        if (s.l2 != 0) g += s.l2 * x.p[i];
        m[i] = codes.signed_book[code_at(x.m, i)] * absmax_m * a.b1 + g * a.rest1;
        v[i] = codes.unsigned_book[code_at(x.v, i)] * absmax_v * a.b2 + g * a.rest2 * g;
        if (usable) x.p[i] = (x.p[i] + s.step_size * __fdividef(m[i], root(v[i]) + s.eps)) * s.keep;
        if (!usable) m[i] = v[i] = 0;
        largest_m = fmaxf(largest_m, fabsf(m[i]));
        largest_v = fmaxf(largest_v, v[i]);
    }
    largest_m = warp_max(largest_m);
    largest_v = warp_max(largest_v);
    /* So small that it counts as 0: the codes are those at which bitsandbytes' search ends for 0 / 0. */
    const bool zero_m = largest_m < FLT_MIN, zero_v = largest_v < FLT_MIN;
    const float scale_m = 1 / largest_m, scale_v = 1 / largest_v;
    x.m[0] = x.m[1] = x.v[0] = x.v[1] = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        put_code(x.m, i, zero_m ? (signbit(m[i]) ? 0 : SNUG_CODES - 1) : signed_code(codes, m[i] * scale_m));
        put_code(x.v, i, zero_v ? 0 : unsigned_code(codes, v[i] * scale_v));
    }
    store_part(x, a, step, first, n, whole);
    if (threadIdx.x % 32) return;
    a.absmax_m[block] = zero_m ? 0 : largest_m;
    a.absmax_v[block] = zero_v ? 0 : largest_v;
}

static __device__ void fill_codes(struct snug_cuda_codes &to, const struct snug_cuda_codes *from) {
    uint32_t *words = reinterpret_cast<uint32_t *>(&to);
    for (int i = threadIdx.x; i < (int)(sizeof to / 4); i += THREADS)
        words[i] = reinterpret_cast<const uint32_t *>(from)[i];
    __syncthreads();
}

static __global__ void __launch_bounds__(THREADS, RESIDENT) adam_8bit_kernel(const struct adam_8bit a) {
    __shared__ struct snug_cuda_codes codes;
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    fill_codes(codes, a.codes);
    const struct constants s = constants_of(a, step, a.decay);
    for (int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; block < a.count; block += gridDim.x * WARPS)
        update_block(a, codes, step, s, block);
}

/* What a tensor of the table adds to what all weights share. */
static __device__ void take_states(struct adam_8bit &a, const struct snug_cuda_piece &piece, uint8_t *arena) {
    a.m = arena + piece.state[0];
    a.v = arena + piece.state[1];
    a.absmax_m = (float *)(arena + piece.state[2]);
    a.absmax_v = (float *)(arena + piece.state[3]);
    a.each = piece.count / piece.segments;
    a.blocks = (a.each + BLOCK - 1) / BLOCK;
    a.count = a.blocks * piece.segments;
    if (!piece.decay) a.decay = 0;
}

/* All weights at once; a has what they share. total: blocks of the table, see many.c. The tensor at hand stands in
   shared memory: in registers it would leave none for the elements. */
static __global__ void __launch_bounds__(THREADS, RESIDENT)
adam_8bit_all(const struct adam_8bit a, uint8_t *arena, const struct snug_cuda_piece *pieces, int32_t count,
              int64_t total) {
    enum { PART = SNUG_CUDA_BLOCK / BLOCK };
    __shared__ struct snug_cuda_codes codes;
    __shared__ struct adam_8bit own;
    __shared__ int64_t begin;
    if (a.step->skip) return;
    fill_codes(codes, a.codes);
    for (int64_t turn = blockIdx.x; turn < total; turn += gridDim.x) {
        __syncthreads();
        if (threadIdx.x == 0) {
            const struct snug_cuda_piece piece = piece_of_block(pieces, count, turn);
            own = a;
            take_piece(own, piece, arena);
            take_states(own, piece, arena);
            begin = (turn - piece.block) * PART;
        }
        __syncthreads();
        const struct constants s = constants_of(own, *a.step, own.decay);
        const int64_t end = begin + PART < own.count ? begin + PART : own.count;
        for (int64_t block = begin + threadIdx.x / 32; block < end; block += WARPS)
            update_block(own, codes, *a.step, s, block);
    }
}

extern "C" snug_status snug_cuda_adam_8bit(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_optimizer *o = run->optimizer;
    const enum snug_cuda_turn turn = snug_cuda_turn_of(run, op, &cuda->updates_8bit);
    const float b1 = (float)o->beta1, b2 = (float)o->beta2;
    struct adam_8bit a = weight_of<struct adam_8bit>(run, op);
    a.m = (uint8_t *)snug_run_data(run, op->out[2]);
    a.v = (uint8_t *)snug_run_data(run, op->out[3]);
    a.absmax_m = (float *)snug_run_data(run, op->out[4]);
    a.absmax_v = (float *)snug_run_data(run, op->out[5]);
    a.codes = cuda->batch.codes;
    a.each = snug_run_rows(run, op->out[0]) * snug_run_cols(run, op->out[0]) / op->segments;
    a.b1 = b1;
    a.rest1 = 1 - b1;
    a.b2 = b2;
    a.rest2 = 1 - b2;
    a.eps = (float)o->epsilon;
    a.decay = (float)o->weight_decay;
    a.decoupled = o->decoupled;
    /* As many blocks as run at the same time, so that each fills its tables once. */
    const int64_t most = (int64_t)cuda->multiprocessors * RESIDENT;
    if (turn == SNUG_CUDA_DONE) return SNUG_OK;
    if (turn == SNUG_CUDA_FOR_ALL) {
        const int64_t total = cuda->updates_8bit.blocks;
        adam_8bit_all<<<(unsigned)(total < most ? total : most), THREADS, 0, cuda->stream>>>(
            a, run->arena, cuda->batch.updates_8bit, cuda->updates_8bit.count, total);
        return snug_cuda_done(run, op);
    }
    if (!op->decay) a.decay = 0;
    a.blocks = (a.each + BLOCK - 1) / BLOCK;
    a.count = a.blocks * op->segments;
    const int64_t wanted = (a.count + WARPS - 1) / WARPS;
    if (wanted > 0) adam_8bit_kernel<<<(unsigned)(wanted < most ? wanted : most), THREADS, 0, cuda->stream>>>(a);
    return snug_cuda_done(run, op);
}
