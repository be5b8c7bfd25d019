/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by kernels: types, rows, warp reductions, dropout. */
#ifndef SNUG_BACKEND_CUDA_DEVICE_CUH
#define SNUG_BACKEND_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Host and device share the small functions of these headers: they are compiled for both. */
#define inline inline __host__ __device__
#include "core/dtype.h"
#include "core/philox.h"
#include "optim/loss_scale.h"
#include "program/pooling.h"
#include "program/positions.h"
#undef inline

extern "C" {
#include "backend/cuda/matmul/bias.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/state.h"
}

#define FULL_WARP 0xffffffffu
#define LOG2_E 1.4426950408889634f

/* What a kernel is compiled for: 750 is compute capability 7.5. In the emulator it is a run-time value, so it is
   compared by if, not by #if; the code of the other branch is dropped. */
#ifndef SNUG_CUDA_ARCH
#ifdef __CUDA_ARCH__
#define SNUG_CUDA_ARCH __CUDA_ARCH__
#else
#define SNUG_CUDA_ARCH 0 /* nvcc parses kernels for the host, too */
#endif
#endif

typedef __nv_bfloat16 bf16;
typedef __half f16;

static __device__ __forceinline__ float to_float(float value) { return value; }
static __device__ __forceinline__ float to_float(bf16 value) { return __bfloat162float(value); }
static __device__ __forceinline__ float to_float(f16 value) { return __half2float(value); }
template <typename T> static __device__ __forceinline__ T from_float(float value);
template <> __device__ __forceinline__ float from_float<float>(float value) { return value; }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float value) { return __float2bfloat16_rn(value); }
template <> __device__ __forceinline__ f16 from_float<f16>(float value) { return __float2half_rn(value); }

/* Two values of a 16-bit type as stored, the first in the low half. */
template <typename T = bf16> static __device__ __forceinline__ uint32_t pack(float low, float high);
template <> __device__ __forceinline__ uint32_t pack<bf16>(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}
template <> __device__ __forceinline__ uint32_t pack<f16>(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}
template <typename T> static __device__ __forceinline__ void unpack(float (&to)[2], uint32_t pair);
template <> __device__ __forceinline__ void unpack<bf16>(float (&to)[2], uint32_t pair) {
    to[0] = __uint_as_float(pair << 16);
    to[1] = __uint_as_float(pair & 0xffff0000u);
}
template <> __device__ __forceinline__ void unpack<f16>(float (&to)[2], uint32_t pair) {
    const __half2 both = *reinterpret_cast<const __half2 *>(&pair);
    const float2 values = __half22float2(both);
    to[0] = values.x;
    to[1] = values.y;
}

/* Calls launch with a value of the type that dtype names, for decltype: the only place where run-time types become
   types of kernels. False for a type that activations and weights never have. */
template <typename F> static bool with_type(enum snug_dtype dtype, F launch) {
    switch (dtype) {
    case SNUG_F32: return launch(float()), true;
    case SNUG_BF16: return launch(bf16()), true;
    case SNUG_F16: return launch(f16()), true;
    default: return false;
    }
}

/* 2^x and 1 / x, exact up to the last two bits: one instruction each, which flushes subnormal numbers. */
static __device__ __forceinline__ float quick_exp2(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
static __device__ __forceinline__ float quick_inverse(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* ---- kernels that begin before the one before them in the stream is done ---- */

/* A kernel that launch_chained() launches may begin from here on. What it reads of this one it reads after
   wait_before(), and every thread of it waits, so that none is ahead of two. */
static __device__ __forceinline__ void start_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ __forceinline__ void wait_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Launches a kernel that waits, with so many bytes of dynamic shared memory. In a graph the driver takes a microsecond
   or two from the end of a kernel to the beginning of the next one; in generation, whose kernels are short, from
   compute capability 9.0 on it begins before. */
template <typename... P>
static void launch_chained_with(const struct snug_cuda *cuda, dim3 blocks, dim3 threads, size_t shared,
                                void (*kernel)(P...), const P &...arguments) {
#ifdef __CUDACC__
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = cuda->stream;
    config.attrs = &attribute;
    config.numAttrs = cuda->generates && cuda->capability >= SNUG_CUDA_WGMMA_CAPABILITY;
    cudaLaunchKernelEx(&config, kernel, arguments...);
#else
    kernel<<<blocks, threads, shared, cuda->stream>>>(arguments...);
#endif
}
template <typename... P>
static void launch_chained(const struct snug_cuda *cuda, dim3 blocks, dim3 threads, void (*kernel)(P...),
                           const P &...arguments) {
    launch_chained_with(cuda, blocks, threads, 0, kernel, arguments...);
}

/* Whether this block is the last one of `count` that arrive here: what they stored is in memory then. The number of
   arrivals becomes 0 again. */
static __device__ __forceinline__ bool is_last_to_arrive(uint32_t *arrivals, unsigned count) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(arrivals, count - 1) == count - 1;
    __syncthreads();
    const bool done = last;
    __threadfence();
    return done;
}

/* ---- W values at a time: 8 or 4, which are aligned to W * sizeof(T) or to 16 bytes, or 1 ---- */

template <int W> static __device__ __forceinline__ void load(float (&out)[W], const float *from) {
    if constexpr (W % 4 == 0) {
#pragma unroll
        for (int i = 0; i < W; i += 4) {
            const float4 v = reinterpret_cast<const float4 *>(from)[i / 4];
            out[i] = v.x, out[i + 1] = v.y, out[i + 2] = v.z, out[i + 3] = v.w;
        }
    } else {
        for (int i = 0; i < W; i++) out[i] = from[i];
    }
}

template <typename T, int N>
static __device__ __forceinline__ void unpack_words(float (&out)[2 * N], const uint32_t (&words)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        float two[2];
        unpack<T>(two, words[i]);
        out[2 * i] = two[0], out[2 * i + 1] = two[1];
    }
}

template <int W, typename T> static __device__ __forceinline__ void load(float (&out)[W], const T *from) {
    if constexpr (W == 8) {
        const uint4 raw = *reinterpret_cast<const uint4 *>(from);
        unpack_words<T, 4>(out, {raw.x, raw.y, raw.z, raw.w});
    } else if constexpr (W == 4) {
        const uint2 raw = *reinterpret_cast<const uint2 *>(from);
        unpack_words<T, 2>(out, {raw.x, raw.y});
    } else {
        for (int i = 0; i < W; i++) out[i] = to_float(from[i]);
    }
}

/* W values as stored, 16 bytes or one value: loaded first, unpacked later. */
template <typename T, int W> struct packed {
    typedef uint4 type;
    static __device__ __forceinline__ type load(const T *from) { return *reinterpret_cast<const uint4 *>(from); }
    static __device__ __forceinline__ void open(float (&out)[W], type raw) {
        unpack_words<T, 4>(out, {raw.x, raw.y, raw.z, raw.w});
    }
    static __device__ __forceinline__ type close(const float (&in)[W]) {
        return make_uint4(pack<T>(in[0], in[1]), pack<T>(in[2], in[3]), pack<T>(in[4], in[5]), pack<T>(in[6], in[7]));
    }
    static __device__ __forceinline__ void store(T *to, type raw) { *reinterpret_cast<uint4 *>(to) = raw; }
};
template <> struct packed<float, 4> {
    typedef float4 type;
    static __device__ __forceinline__ type load(const float *from) { return *reinterpret_cast<const float4 *>(from); }
    static __device__ __forceinline__ void open(float (&out)[4], type raw) {
        out[0] = raw.x, out[1] = raw.y, out[2] = raw.z, out[3] = raw.w;
    }
    static __device__ __forceinline__ type close(const float (&in)[4]) {
        return make_float4(in[0], in[1], in[2], in[3]);
    }
    static __device__ __forceinline__ void store(float *to, type raw) { *reinterpret_cast<float4 *>(to) = raw; }
};
template <typename T> struct packed<T, 1> {
    struct type {
        float value;
    };
    static __device__ __forceinline__ type load(const T *from) { return {to_float(*from)}; }
    static __device__ __forceinline__ void open(float (&out)[1], type raw) { out[0] = raw.value; }
    static __device__ __forceinline__ type close(const float (&in)[1]) { return {to_float(from_float<T>(in[0]))}; }
    static __device__ __forceinline__ void store(T *to, type raw) { *to = from_float<T>(raw.value); }
};

template <int W> static __device__ __forceinline__ void store(float *to, const float (&in)[W]) {
    if constexpr (W % 4 == 0) {
#pragma unroll
        for (int i = 0; i < W; i += 4)
            reinterpret_cast<float4 *>(to)[i / 4] = make_float4(in[i], in[i + 1], in[i + 2], in[i + 3]);
    } else {
        for (int i = 0; i < W; i++) to[i] = in[i];
    }
}

template <int W, typename T> static __device__ __forceinline__ void store(T *to, const float (&in)[W]) {
    if constexpr (W == 8) {
        packed<T, 8>::store(to, packed<T, 8>::close(in));
    } else if constexpr (W == 4) {
        *reinterpret_cast<uint2 *>(to) = make_uint2(pack<T>(in[0], in[1]), pack<T>(in[2], in[3]));
    } else {
        for (int i = 0; i < W; i++) to[i] = from_float<T>(in[i]);
    }
}

/* ---- sums in a fixed tree ---- */

static __device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(FULL_WARP, value, step);
    return value;
}

static __device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(FULL_WARP, value, step);
    return value;
}

static __device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, step));
    return value;
}

/* The sum over a block of WARPS warps, which add theirs in their order. Every thread receives it. */
template <int WARPS, typename T> static __device__ T block_sum(T value) {
    __shared__ T shared[WARPS];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int i = 0; i < WARPS; i++) value += shared[i];
    __syncthreads();
    return value;
}

/* The same of the maximum. */
template <int WARPS> static __device__ float block_max(float value) {
    __shared__ float shared[WARPS];
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int i = 1; i < WARPS; i++) value = fmaxf(value, shared[i]);
    __syncthreads();
    return value;
}

/* ---- rows and dropout ---- */

/* Rows of an extent in this batch. */
static __device__ __forceinline__ int64_t live_rows(const struct snug_cuda_step *step, int extent, int64_t fixed) {
    return extent == SNUG_EXTENT_TOKENS      ? step->tokens
           : extent == SNUG_EXTENT_SEQUENCES ? step->sequences
           : extent == SNUG_EXTENT_ROWS      ? step->rows
           : extent == SNUG_EXTENT_STEP      ? step->step_rows
                                             : fixed;
}

/* Which tokens a tensor's rows belong to. */
struct row_tokens {
    int extent;
    int last; /* 1: the last of each sequence; 0: the first */
};
static inline struct row_tokens row_tokens_of(const struct snug_run *run, int32_t tensor) {
    const struct snug_tensor *t = &run->program->tensors[tensor];
    return {t->extent, t->pooling == SNUG_POOL_LAST};
}
static __device__ __forceinline__ int64_t token_of_row(const struct snug_cuda_batch &batch, const struct row_tokens &of,
                                                       int64_t row) {
    return of.extent == SNUG_EXTENT_ROWS        ? batch.loss_positions[batch.step->first_row + row]
           : of.extent == SNUG_EXTENT_SEQUENCES ? batch.offsets[row + of.last] - of.last
                                                : row;
}

struct dropout {
    uint32_t threshold, site; /* threshold 0: none */
    float scale;
};

static inline struct dropout dropout_of(const struct snug_op *op) {
    const uint32_t threshold = snug_dropout_threshold(op->p);
    return {threshold, op->site << 12, (float)snug_dropout_scale(threshold)};
}

/* Where a row's mask begins. */
struct dropout_row {
    uint32_t position, sample, key, step;
};

static __device__ __forceinline__ struct dropout_row dropout_row_of(const struct snug_cuda_batch &batch,
                                                                    int64_t token) {
    return {(uint32_t)batch.positions[token], (uint32_t)batch.sample[token], batch.step->key, batch.step->step};
}

/* Multiplies W channels from channel on, a multiple of W, by their factors. */
template <int W>
static __device__ __forceinline__ void drop(float (&values)[W], const struct dropout &d, const struct dropout_row &row,
                                            uint32_t channel) {
    static_assert(W == 8 || W == 4 || W == 1, "values of one block of random numbers");
    if (d.threshold == 0) return;
    const struct snug_philox_block block =
        snug_philox_rounds(channel / 8, row.position, row.sample, d.site, row.key, row.step, SNUG_DROPOUT_ROUNDS);
#pragma unroll
    for (int i = 0; i < W; i++) {
        uint32_t word = block.word[i / 2];
        if (W == 4 && channel % 8) word = block.word[2 + i / 2];
        if (W == 1) word = block.word[channel % 8 / 2];
        values[i] = snug_dropout_half(word, W == 1 ? channel : i) < d.threshold ? 0 : values[i] * d.scale;
    }
}

/* The tensor that a block belongs to, see multi_tensor.c. */
static __device__ __forceinline__ struct snug_cuda_entry entry_of_block(const struct snug_cuda_entry *entries,
                                                                        int32_t count, int64_t block = blockIdx.x) {
    int32_t low = 0, high = count - 1;
    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (entries[middle].block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return entries[low];
}

/* Blocks of threads for count items, `each` items per block. */
static inline unsigned blocks_for(int64_t count, int64_t each) { return (unsigned)((count + each - 1) / each); }

/* Adds to gradient [n], or overwrites it with, the sum of the rows of partial [parts, n], in a fixed order. */
void snug_cuda_add_partials(const struct snug_run *run, float *gradient, const float *partial, int64_t parts, int64_t n,
                            bool overwrite);

#endif
