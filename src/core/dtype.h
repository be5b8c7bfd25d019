/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, and the conversions between fp32 and bf16/fp16 that all code uses. */
#ifndef SNUG_CORE_DTYPE_H
#define SNUG_CORE_DTYPE_H

#include <stdint.h>
#include <string.h>

enum snug_dtype { SNUG_F32, SNUG_BF16, SNUG_F16, SNUG_I32, SNUG_U8, SNUG_F64, SNUG_DTYPE_COUNT };

static inline int64_t snug_dtype_size(enum snug_dtype dtype) {
    static const int64_t size[SNUG_DTYPE_COUNT] = {4, 2, 2, 4, 1, 8};
    return size[dtype];
}

static inline const char *snug_dtype_name(enum snug_dtype dtype) {
    static const char *const name[SNUG_DTYPE_COUNT] = {"F32", "BF16", "F16", "I32", "U8", "F64"};
    return name[dtype];
}

static inline float snug_bf16_to_f32(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to nearest, ties to even; a NaN gives a quiet NaN. */
static inline uint16_t snug_f32_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? (bits >> 16 | 0x40u) : rounded >> 16);
}

/* Adds 16 random bits to the discarded bits and truncates; an infinity or NaN is rounded as above. */
static inline uint16_t snug_f32_to_bf16_stochastic(float value, uint32_t random) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t special = (bits & 0x7f800000u) == 0x7f800000u;
    return special ? snug_f32_to_bf16(value) : (uint16_t)((bits + (random & 0xffffu)) >> 16);
}

static inline float snug_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 1023u, bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else { /* subnormal: mantissa * 2^-24 is exact in fp32 */
        float small = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &small, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A value of a 16-bit type. */
static inline float snug_half_to_f32(enum snug_dtype dtype, uint16_t half) {
    return dtype == SNUG_F16 ? snug_f16_to_f32(half) : snug_bf16_to_f32(half);
}

/* Rounds to nearest, ties to even; a value that is too large gives infinity, a NaN gives a quiet NaN. */
static inline uint16_t snug_f32_to_f16(float value) {
    uint32_t bits, magnitude;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); /* from the midpoint between 65504 and the next power of two on */
    if (magnitude < 0x38800000u) {         /* subnormal: after adding 0.5 the last bits count multiples of 2^-24 */
        float small;
        memcpy(&small, &magnitude, sizeof small);
        small += 0.5f;
        memcpy(&magnitude, &small, sizeof magnitude);
        return (uint16_t)(sign | (magnitude - 0x3f000000u));
    }
    return (uint16_t)(sign | (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13);
}

static inline uint16_t snug_f32_to_half(enum snug_dtype dtype, float value) {
    return dtype == SNUG_F16 ? snug_f32_to_f16(value) : snug_f32_to_bf16(value);
}

#endif
