/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of the widest kind that the instruction set has, in the compilers' own vector extension. Intrinsics are used
 * only for instructions that the extension does not have: fused multiply-add, maximum, 32 x 32 -> 64 bit product.
 *
 * Sums are computed in the order written here, for any alignment of the data, and every element is computed with the
 * same instructions at any position in a vector: so recomputation gives the same bits.
 */
#ifndef SNUG_BACKEND_CPU_VEC_H
#define SNUG_BACKEND_CPU_VEC_H

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <math.h>

#include "backend/backend.h"
#include "core/philox.h"

#if defined(__AVX512F__)
#define VEC_LANES 16
#define VEC_X86(name) _mm512_##name
typedef __m512 vec_x86;
typedef __m512i vec_x86_int;
#elif defined(__AVX2__)
#define VEC_LANES 8
#define VEC_X86(name) _mm256_##name
typedef __m256 vec_x86;
typedef __m256i vec_x86_int;
#else
#define VEC_LANES 4
#ifdef __x86_64__
#define VEC_X86(name) _mm_##name
typedef __m128 vec_x86;
typedef __m128i vec_x86_int;
#elif defined(__aarch64__)
#define VEC_NEON
#endif
#endif

typedef float vec __attribute__((vector_size(4 * VEC_LANES)));
typedef int32_t vec_int __attribute__((vector_size(4 * VEC_LANES)));
typedef uint32_t vec_uint __attribute__((vector_size(4 * VEC_LANES)));
typedef uint16_t vec_half __attribute__((vector_size(2 * VEC_LANES)));
typedef uint64_t vec_wide __attribute__((vector_size(4 * VEC_LANES)));

/* x - 0 is x for every x, so the compiler removes it; 0 + x is not x for -0. */
static inline vec vec_all(float x) { return x - (vec){0}; }
static inline vec_uint vec_all_uint(uint32_t x) { return (vec_uint){0} + x; }

static inline vec vec_fma(vec a, vec b, vec c) {
#ifdef __FMA__
    return (vec)VEC_X86(fmadd_ps)((vec_x86)a, (vec_x86)b, (vec_x86)c);
#elif defined(VEC_NEON)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

static inline vec vec_select(vec_int mask, vec a, vec b) { return (vec)(((vec_int)a & mask) | ((vec_int)b & ~mask)); }

/* If one is NaN, the result is b: keep the constant on the left, and NaN stays. */
static inline vec vec_max(vec a, vec b) {
#ifdef VEC_X86
    return (vec)VEC_X86(max_ps)((vec_x86)a, (vec_x86)b);
#else
    return vec_select((vec_int)(a > b), a, b);
#endif
}

static inline vec vec_min(vec a, vec b) {
#ifdef VEC_X86
    return (vec)VEC_X86(min_ps)((vec_x86)a, (vec_x86)b);
#else
    return vec_select((vec_int)(a < b), a, b);
#endif
}

static inline vec_int vec_max_int(vec_int a, vec_int b) {
#ifdef VEC_X86
    return (vec_int)VEC_X86(max_epi32)((vec_x86_int)a, (vec_x86_int)b);
#else
    return (a & (a > b)) | (b & ~(a > b));
#endif
}

static inline vec_int vec_min_int(vec_int a, vec_int b) {
#ifdef VEC_X86
    return (vec_int)VEC_X86(min_epi32)((vec_x86_int)a, (vec_x86_int)b);
#else
    return (a & (a < b)) | (b & ~(a < b));
#endif
}

static inline vec_uint vec_max_uint(vec_uint a, vec_uint b) {
#ifdef VEC_X86
    return (vec_uint)VEC_X86(max_epu32)((vec_x86_int)a, (vec_x86_int)b);
#else
    return (a & (vec_uint)(a > b)) | (b & ~(vec_uint)(a > b));
#endif
}

static inline vec vec_sqrt(vec x) {
#ifdef VEC_X86
    return (vec)VEC_X86(sqrt_ps)((vec_x86)x);
#elif defined(VEC_NEON)
    return (vec)vsqrtq_f32((float32x4_t)x);
#else
    for (int i = 0; i < VEC_LANES; i++) x[i] = sqrtf(x[i]);
    return x;
#endif
}

static inline vec vec_abs(vec x) { return (vec)((vec_uint)x & 0x7fffffffu); }

/* All bits set in the first count lanes, none in the others. */
static inline vec_int vec_below(int64_t count) {
    vec_int lane;
    for (int i = 0; i < VEC_LANES; i++) lane[i] = i;
    return lane < (int32_t)(count < VEC_LANES ? count : VEC_LANES);
}

/* Whether a comparison is true in any lane. */
static inline bool vec_any(vec_int mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(VEC_X86)
    return VEC_X86(movemask_ps)((vec_x86)mask) != 0;
#elif defined(VEC_NEON)
    return vmaxvq_u32((uint32x4_t)mask) != 0;
#else
    int32_t any = 0;
    for (int i = 0; i < VEC_LANES; i++) any |= mask[i];
    return any != 0;
#endif
}

/* The sum of all lanes, as a tree. */
static inline float vec_sum(vec x) {
    typedef float quad __attribute__((vector_size(16)));
    quad part[VEC_LANES / 4];
    memcpy(part, &x, sizeof x);
    for (int width = VEC_LANES / 8; width; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return (part[0][0] + part[0][2]) + (part[0][1] + part[0][3]);
}

static inline float vec_largest(vec x) {
    typedef float quad __attribute__((vector_size(16)));
    typedef int32_t quad_int __attribute__((vector_size(16)));
    quad part[VEC_LANES / 4];
    memcpy(part, &x, sizeof x);
    for (int width = VEC_LANES / 8; width; width /= 2)
        for (int i = 0; i < width; i++) {
            quad_int more = part[i + width] > part[i];
            part[i] = (quad)(((quad_int)part[i + width] & more) | ((quad_int)part[i] & ~more));
        }
    const float a = part[0][0] > part[0][2] ? part[0][0] : part[0][2];
    const float b = part[0][1] > part[0][3] ? part[0][1] : part[0][3];
    return a > b ? a : b;
}

/* a0 b0 a1 b1 … of the first halves of a and b, or of the second halves. */
static inline vec vec_interleave_first(vec a, vec b) {
#if VEC_LANES == 16
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif VEC_LANES == 8
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}

static inline vec vec_interleave_second(vec a, vec b) {
#if VEC_LANES == 16
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif VEC_LANES == 8
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

/* Transposes a square. Interleaving rows i and i + half rotates the bits of (row, column) by one; as many rotations as
   a column index has bits swap row and column. */
static inline void vec_transpose(vec m[VEC_LANES]) {
    const int half = VEC_LANES / 2;
#pragma GCC unroll 4
    for (int stage = 1; stage < VEC_LANES; stage *= 2) {
        vec next[VEC_LANES];
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) {
            next[2 * i] = vec_interleave_first(m[i], m[i + half]);
            next[2 * i + 1] = vec_interleave_second(m[i], m[i + half]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VEC_LANES; i++) m[i] = next[i];
    }
}

static inline __attribute__((always_inline)) void vec_fold(vec x[VEC_LANES], int half) {
    for (int i = 0; i < half; i++)
        x[i] = vec_interleave_first(x[i], x[i + half]) + vec_interleave_second(x[i], x[i + half]);
}

/* The sums of the lanes of each of as many vectors as there are lanes, added in the order of vec_sum(). */
static inline __attribute__((always_inline)) vec vec_sums(vec x[VEC_LANES]) {
#if VEC_LANES > 8
    vec_fold(x, 8);
#endif
#if VEC_LANES > 4
    vec_fold(x, 4);
#endif
    vec_fold(x, 2);
    vec_fold(x, 1);
    return x[0];
}

/* ---- memory: rows of F32 or BF16, at any address ----------------------------------------------------------------- */

static inline vec vec_read(const float *p) {
#ifdef VEC_NEON /* gcc 12 copies a memcpy() through integer registers where lanes are then used one by one */
    return (vec)vld1q_f32(p);
#else
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
#endif
}

static inline void vec_write(float *p, vec x) { memcpy(p, &x, sizeof x); }

/* Conversions between lanes of 16 and 32 bits; gcc 12 would split both into scalar instructions. */
static inline vec_uint vec_widen(vec_half x) {
#if defined(__AVX512F__)
    return (vec_uint)_mm512_cvtepu16_epi32((__m256i)x);
#elif defined(__AVX2__)
    return (vec_uint)_mm256_cvtepu16_epi32((__m128i)x);
#else
    return __builtin_convertvector(x, vec_uint);
#endif
}

static inline vec_half vec_narrow(vec_uint x) {
#if defined(__AVX512F__)
    return (vec_half)_mm512_cvtepi32_epi16((__m512i)x);
#else
    return __builtin_convertvector(x, vec_half);
#endif
}

static inline vec vec_read_bf16(const uint16_t *p) {
    vec_half half;
    memcpy(&half, p, sizeof half);
    return (vec)(vec_widen(half) << 16);
}

/* The bf16 nearest to x, as in snug_f32_to_bf16(), in the low half of each lane. */
static inline vec_uint vec_bf16_bits(vec x) {
    vec_uint bits = (vec_uint)x, high = bits >> 16, rounded = (bits + (high & 1u) + 0x7fffu) >> 16;
    vec_uint is_nan = (vec_uint)(x != x); /* NOLINT(misc-redundant-expression): only NaN differs from itself */
    return ((high | 0x40u) & is_nan) | (rounded & ~is_nan);
}

static inline void vec_write_bf16(uint16_t *p, vec x) {
    vec_half half = vec_narrow(vec_bf16_bits(x));
    memcpy(p, &half, sizeof half);
}

static __attribute__((noinline, unused)) vec vec_load_tail(const void *row, enum snug_dtype dtype, int64_t i,
                                                           int64_t n) {
    float f32[VEC_LANES] = {0};
    uint16_t bf16[VEC_LANES] = {0};
    if (dtype == SNUG_F32) {
        memcpy(f32, (const float *)row + i, (size_t)(n - i) * sizeof *f32);
        return vec_read(f32);
    }
    memcpy(bf16, (const uint16_t *)row + i, (size_t)(n - i) * sizeof *bf16);
    return vec_read_bf16(bf16);
}

static __attribute__((noinline, unused)) void vec_store_tail(void *row, enum snug_dtype dtype, int64_t i, int64_t n,
                                                             vec x) {
    float f32[VEC_LANES];
    uint16_t bf16[VEC_LANES];
    if (dtype == SNUG_F32) {
        vec_write(f32, x);
        memcpy((float *)row + i, f32, (size_t)(n - i) * sizeof *f32);
    } else {
        vec_write_bf16(bf16, x);
        memcpy((uint16_t *)row + i, bf16, (size_t)(n - i) * sizeof *bf16);
    }
}

/* Elements i … i + lanes - 1 of a row of n; 0 after its end. */
static inline vec vec_load(const void *row, enum snug_dtype dtype, int64_t i, int64_t n) {
    if (__builtin_expect(n - i < VEC_LANES, 0)) return vec_load_tail(row, dtype, i, n);
    return dtype == SNUG_F32 ? vec_read((const float *)row + i) : vec_read_bf16((const uint16_t *)row + i);
}

/* Elements after the row's end are not written. */
static inline void vec_store(void *row, enum snug_dtype dtype, int64_t i, int64_t n, vec x) {
    if (__builtin_expect(n - i < VEC_LANES, 0)) {
        vec_store_tail(row, dtype, i, n, x);
    } else if (dtype == SNUG_F32) {
        vec_write((float *)row + i, x);
    } else {
        vec_write_bf16((uint16_t *)row + i, x);
    }
}

/* x as it is read back from a tensor of dtype. */
static inline vec vec_rounded(vec x, enum snug_dtype dtype) {
    return dtype == SNUG_F32 ? x : (vec)(vec_bf16_bits(x) << 16);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

/* *scale * (1 + *part) = exp(x), to 1e-7 of it: x = n log 2 + r, scale = 2^n, part = a polynomial in r fitted for
   minimal relative error on |r| <= log(2) / 2. The result is clamped to 1.2e-38 … 1.6e38. */
static inline vec vec_exp_parts(vec x, vec *scale) {
    const vec magic = vec_all(0x1.8p23f); /* adding it rounds to an integer, in the low bits */
    x = vec_min(vec_all(88.0f), vec_max(vec_all(-87.3f), x));
    vec shifted = vec_fma(x, vec_all(0x1.715476p+0f), magic), n = shifted - magic;
    vec r = vec_fma(n, vec_all(-0x1.7f7d1cp-20f), vec_fma(n, vec_all(-0x1.62e4p-1f), x));
    *scale = (vec)((((vec_uint)shifted - (vec_uint)magic) + 127u) << 23);
    vec p = vec_fma(vec_all(0x1.6a23dp-10f), r, vec_all(0x1.123a20p-7f));
    p = vec_fma(p, r, vec_all(0x1.5558f2p-5f));
    p = vec_fma(p, r, vec_all(0x1.555492p-3f));
    p = vec_fma(p, r, vec_all(0x1.fffffcp-2f));
    return vec_fma(p * r, r, r);
}

static inline vec vec_exp(vec x) {
    vec scale, part = vec_exp_parts(x, &scale);
    return vec_fma(part, scale, scale);
}

/* tanh(x) with a relative error of 2e-7: (e^2x - 1) / (e^2x + 1), where e^2x - 1 is computed without cancellation near
   0. */
static inline vec vec_tanh(vec x) {
    vec scale, part = vec_exp_parts(vec_min(vec_all(20.0f), 2.0f * vec_abs(x)), &scale);
    vec less_one = vec_fma(part, scale, scale - 1.0f), t = less_one / (less_one + 2.0f);
    return (vec)((vec_uint)t | ((vec_uint)x & 0x80000000u));
}

static inline vec vec_sigmoid(vec x) { return 1.0f / (1.0f + vec_exp(-x)); }

/*
 * The normal distribution function, and exp(-x^2/2) in *bell. For u = |x| the upper tail is exp(-u^2/2) Q(1 / (1 + 0.3
 * u)), after Hastings' form of erfc (Abramowitz and Stegun 7.1.26) with more terms, Q fitted for minimal relative
 * error: 5e-8 in the tail, 2.5e-8 absolute.
 */
static inline vec vec_normal(vec x, vec *bell) {
    vec t = 1.0f / vec_fma(vec_abs(x), vec_all(0.3f), vec_all(1.0f));
    vec q = vec_fma(t, vec_all(0.037264902f), vec_all(-0.16379233f));
    q = vec_fma(q, t, vec_all(0.21763961f));
    q = vec_fma(q, t, vec_all(-0.064000174f));
    q = vec_fma(q, t, vec_all(0.13397329f));
    q = vec_fma(q, t, vec_all(0.098292105f));
    q = vec_fma(q, t, vec_all(0.12100959f));
    q = vec_fma(q, t, vec_all(0.11961302f));
    *bell = vec_exp(-0.5f * x * x);
    vec tail = q * t * *bell;
    return vec_select((vec_int)(x > 0.0f), 1.0f - tail, tail);
}

/* ---- Philox ------------------------------------------------------------------------------------------------------ */

/* The product of the low halves of a's wide lanes and b. */
static inline vec_wide vec_multiply_wide(vec_wide a, uint32_t b) {
#ifdef VEC_X86
    vec_wide all = (vec_wide){0} + b;
    return (vec_wide)VEC_X86(mul_epu32)((vec_x86_int)a, (vec_x86_int)all);
#elif defined(VEC_NEON)
    return (vec_wide)vmull_u32(vmovn_u64((uint64x2_t)a), vdup_n_u32(b));
#else
    return (a & 0xffffffffu) * b;
#endif
}

/* Blocks that vec_philox() computes at a time. */
#define VEC_BLOCKS (VEC_LANES / 2)

/* Block numbers of the wide lanes, such that interleaving the words puts them in order. */
static inline vec_wide vec_block_order(void) {
    vec_wide order;
    for (int i = 0; i < VEC_BLOCKS; i++) order[i] = (uint64_t)(i / 2 + i % 2 * (VEC_BLOCKS / 2));
    return order;
}

/* The words of VEC_BLOCKS blocks, one after the other, in *low and *high. Each wide lane computes one block, as
   snug_philox_rounds() does: only the low halves of its words count, the high halves are never read. */
static inline void vec_philox(vec_wide c0, vec_wide c1, uint32_t c2_of_all, uint32_t c3_of_all, const uint32_t key[2],
                              int rounds, vec_uint *low, vec_uint *high) {
    vec_wide c2 = (vec_wide){0} + c2_of_all, c3 = (vec_wide){0} + c3_of_all;
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < rounds; round++) {
        vec_wide a = vec_multiply_wide(c0, 0xD2511F53u), b = vec_multiply_wide(c2, 0xCD9E8D57u);
        c0 = b >> 32 ^ c1 ^ k0;
        c2 = a >> 32 ^ c3 ^ k1;
        c1 = b;
        c3 = a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vec_wide a = (c0 & 0xffffffffu) | c1 << 32, b = (c2 & 0xffffffffu) | c3 << 32;
#if VEC_LANES == 16
    *low = (vec_uint)__builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
    *high = (vec_uint)__builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
#elif VEC_LANES == 8
    *low = (vec_uint)__builtin_shufflevector(a, b, 0, 4, 2, 6);
    *high = (vec_uint)__builtin_shufflevector(a, b, 1, 5, 3, 7);
#else
    *low = (vec_uint)__builtin_shufflevector(a, b, 0, 2);
    *high = (vec_uint)__builtin_shufflevector(a, b, 1, 3);
#endif
}

/* The parameters that all masks of one operation (and head) share. */
struct vec_dropout {
    uint32_t threshold, key[2], use;
    float scale;
};

static inline struct vec_dropout vec_dropout(const struct snug_run *run, const struct snug_op *op, int32_t head) {
    const uint32_t threshold = snug_dropout_threshold(op->p);
    return (struct vec_dropout){threshold,
                                {snug_philox_key(run->seed), (uint32_t)run->step},
                                (uint32_t)SNUG_PHILOX_DROPOUT << 29 | op->site << 12 | (uint32_t)head,
                                (float)snug_dropout_scale(threshold)};
}

/* Words of VEC_BLOCKS blocks from number first on; place: second word of the counter. */
static inline void vec_dropout_words(vec_uint words[2], const struct vec_dropout *dropout, int64_t first, int32_t place,
                                     int32_t sample) {
    const vec_wide zeros = {0};
    vec_philox(vec_block_order() + (uint64_t)first, zeros + (uint32_t)place, (uint32_t)sample, dropout->use,
               dropout->key, SNUG_DROPOUT_ROUNDS, &words[0], &words[1]);
}

/* 0 or scale, by the upper half of each word; the lower half has no effect. */
static inline vec vec_factors(const struct vec_dropout *dropout, vec_uint words) {
    return (vec)((vec_uint)vec_all(dropout->scale) & (vec_uint)(words >= vec_all_uint(dropout->threshold)));
}

/* mask[0 … n-1] = 0 or scale, for channels 0 … n-1 of a token; mask is written up to a multiple of two vectors. */
static inline void vec_mask(float *mask, int64_t n, const struct vec_dropout *dropout, int32_t position,
                            int32_t sample) {
    for (int64_t i = 0; i < n; i += 8 * VEC_BLOCKS) {
        vec_uint words[2];
        vec_dropout_words(words, dropout, i / 8, position, sample);
        for (int half = 0; half < 2 && i + half * 2 * VEC_LANES < n; half++) {
            const vec even = vec_factors(dropout, words[half] << 16), odd = vec_factors(dropout, words[half]);
            float *to = mask + i + half * 2 * VEC_LANES;
            vec_write(to, vec_interleave_first(even, odd));
            vec_write(to + VEC_LANES, vec_interleave_second(even, odd));
        }
    }
}

/* vec_mask() for keys first … first + n-1 of queries 2 pair and, at distance stride, 2 pair + 1; up to a multiple of
   two vectors. first is also such a multiple. */
static inline void vec_attention_masks(float *masks, int64_t stride, int64_t first, int64_t n,
                                       const struct vec_dropout *dropout, int32_t pair, int32_t sample) {
    for (int64_t i = 0; i < n; i += 4 * VEC_BLOCKS) {
        vec_uint words[2];
        vec_dropout_words(words, dropout, (first + i) / 4, pair, sample);
        for (int half = 0; half < 2; half++) {
            float *mask = masks + i + half * VEC_LANES;
            vec_write(mask, vec_factors(dropout, words[half] << 16));
            vec_write(mask + stride, vec_factors(dropout, words[half]));
        }
    }
}

/* bits[0 … n-1] = snug_rounding_bits() of elements first … first + n-1 of a parameter; first is a multiple of 8, bits
   is written up to a multiple of four vectors. A block's words are the bits of 8 elements, in memory order. */
static inline void vec_rounding_bits(uint16_t *bits, const struct snug_run *run, int32_t parameter, int64_t first,
                                     int64_t n) {
    const uint32_t key[2] = {snug_philox_key(run->seed), (uint32_t)run->step};
    const vec_wide order = vec_block_order();
    for (int64_t i = 0; i < n; i += 8 * VEC_BLOCKS) {
        const vec_wide block = order + (uint64_t)((first + i) / 8);
        vec_uint low, high;
        vec_philox(block, block >> 32, (uint32_t)parameter, (uint32_t)SNUG_PHILOX_ROUNDING << 29, key,
                   SNUG_PHILOX_ROUNDS, &low, &high);
        memcpy(bits + i, &low, sizeof low);
        memcpy(bits + i + 2 * VEC_LANES, &high, sizeof high);
    }
}

#endif
