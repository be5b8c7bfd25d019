/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's device language for a C++ compiler: device.cuh includes this instead of CUDA's header. */
#ifndef SNUG_TESTS_EMULATE_CUDA_BF16_H
#define SNUG_TESTS_EMULATE_CUDA_BF16_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static /* blocks run one after the other */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern dim3 threadIdx, blockIdx, gridDim, blockDim;

/* ---- the machine (machine.cc) ---- */

extern uint8_t *emulated_shared; /* the block's dynamic shared memory */
void emulate_launch(dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel);
uint64_t emulate_shuffle(uint64_t value, int mask);
void emulate_ldmatrix(uint32_t (&registers)[4], const void *row, bool transposed);
void emulate_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bool fp16);
void emulate_half_mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b);
void emulate_mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void emulate_multiply_tile(float (&c)[8][4], const uint32_t (&a)[4], uint64_t tile, bool add, bool by_rows, bool fp16);
uint32_t emulate_round_to_tf32(float value);
void emulate_load(uint32_t (&r)[2], const void *from);
void emulate_load(uint32_t (&r)[4], const void *from);
void emulate_copy(void *to, const void *from, size_t size, bool there);
void emulate_stmatrix(void *row, const uint32_t (&registers)[4]);
void emulate_multiply_tiles(float (&c)[8][4], uint64_t left, uint64_t tile, bool add, bool left_by_rows, bool by_rows,
                            bool fp16);
void emulate_make_barrier(void *barrier, int arrivals);
void emulate_arrive(void *barrier);
void emulate_wait(void *barrier, uint32_t phase);
void __syncwarp();
void __syncthreads();

void emulate_submit(const std::function<void()> &work); /* runs or records it (graphs.cc) */
template <typename F> void emulate_call(dim3 grid, dim3 block, size_t shared, const void *, F kernel) {
    emulate_submit([=] { emulate_launch(grid, block, shared, kernel); });
}

template <typename T> T __shfl_xor_sync(unsigned, T value, int mask) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emulate_shuffle(bits, mask);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Of lane 0 only. */
template <typename T> T __shfl_sync(unsigned, T value, int) {
    for (int step = 16; step > 0; step /= 2) {
        const T other = __shfl_xor_sync(~0u, value, step);
        if (threadIdx.x & step) value = other;
    }
    return value;
}

/* Blocks run one after the other, and their threads in turns. */
static inline unsigned atomicInc(unsigned *at, unsigned most) {
    const unsigned old = *at;
    *at = old >= most ? 0 : old + 1;
    return old;
}
static inline void __threadfence() {}
static inline bool __any_sync(unsigned, bool value) {
    for (int step = 16; step > 0; step /= 2) value |= __shfl_xor_sync(~0u, value, step);
    return value;
}

template <typename F> int cudaFuncSetAttribute(F, int, int) { return 0; }

#define SNUG_CUDA_ARCH (10 * emulate_capability())
template <typename T> static inline T __ldg(const T *from) { return *from; }

/* ---- types ---- */

struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
struct uint2 {
    uint32_t x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
static inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

static inline float __uint_as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Two numbers of 16 bits each. */
template <typename F> static inline uint32_t each_half(uint32_t a, uint32_t b, uint32_t c, F f) {
    const uint32_t low = (uint16_t)f((uint16_t)a, (uint16_t)b, (uint16_t)c);
    return low | (uint32_t)(uint16_t)f((uint16_t)(a >> 16), (uint16_t)(b >> 16), (uint16_t)(c >> 16)) << 16;
}
static inline uint32_t __vmaxu2(uint32_t a, uint32_t b) {
    return each_half(a, b, 0, [](uint16_t x, uint16_t y, uint16_t) { return x > y ? x : y; });
}
static inline uint32_t __vminu2(uint32_t a, uint32_t b) {
    return each_half(a, b, 0, [](uint16_t x, uint16_t y, uint16_t) { return x < y ? x : y; });
}
static inline uint32_t __vneg2(uint32_t a) {
    return each_half(a, 0, 0, [](uint16_t x, uint16_t, uint16_t) { return -x; });
}
static inline uint32_t __viaddmin_u16x2(uint32_t a, uint32_t b, uint32_t c) {
    return each_half(a, b, c, [](uint16_t x, uint16_t y, uint16_t z) {
        const uint16_t sum = (uint16_t)(x + y);
        return sum < z ? sum : z;
    });
}

static inline uint32_t emulate_select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t both = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t number = selector >> 4 * i & 15;
        const uint8_t byte = (uint8_t)(both >> 8 * (number & 7));
        result |= (uint32_t)(uint8_t)(number & 8 ? (int8_t)byte >> 7 : byte) << 8 * i;
    }
    return result;
}

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; }

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
static inline float __bfloat162float(__nv_bfloat16 value) { return __uint_as_float((uint32_t)value.bits << 16); }
static inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u), nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return {(uint16_t)(nan ? (bits >> 16 | 0x40u) : rounded >> 16)};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

#endif
