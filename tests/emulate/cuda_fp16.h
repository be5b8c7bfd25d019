/* SPDX-License-Identifier: Apache-2.0 */
/* As cuda_bf16.h, for fp16. */
#ifndef SNUG_TESTS_EMULATE_CUDA_FP16_H
#define SNUG_TESTS_EMULATE_CUDA_FP16_H

#include "cuda_bf16.h"

#include "core/dtype.h"

struct __half {
    uint16_t bits;
};
struct __half2 {
    __half x, y;
};
static inline float __half2float(__half value) { return snug_f16_to_f32(value.bits); }
static inline __half __float2half_rn(float value) { return {snug_f32_to_f16(value)}; }
static inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
static inline float2 __half22float2(__half2 value) { return {__half2float(value.x), __half2float(value.y)}; }

#endif
