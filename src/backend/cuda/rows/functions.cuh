/* SPDX-License-Identifier: Apache-2.0 */
/* The activation functions and their derivatives. */
#ifndef SNUG_BACKEND_CUDA_ROWS_FUNCTIONS_CUH
#define SNUG_BACKEND_CUDA_ROWS_FUNCTIONS_CUH

#include "backend/cuda/device.cuh"

/* sqrt(2 / pi) and the cubic's weight of the tanh approximation: Hendrycks and Gimpel, arXiv:1606.08415 */
#define GELU_SCALE 0.7978845608028654f
#define GELU_CUBIC 0.044715f

/* QUICK where the error is below the precision of 16-bit types. */
template <bool QUICK> static __device__ __forceinline__ float sigmoid(float u) {
    if constexpr (QUICK)
        return quick_inverse(1 + quick_exp2(-1.44269504f * u));
    else
        return 1 / (1 + expf(-u));
}

/* The normal distribution function of u, and its density in *density. */
template <bool QUICK> static __device__ __forceinline__ float normal(float u, float *density) {
    if constexpr (QUICK) { /* Abramowitz and Stegun 26.2.17, to 7.5e-8 */
        const float t = quick_inverse(fmaf(fabsf(u), 0.2316419f, 1));
        *density = quick_exp2(fmaf(u * u, -0.72134752f, -1.32574807f)); /* exp(-u^2 / 2) / sqrt(2 pi) */
        float tail = fmaf(t, 1.330274429f, -1.821255978f);
        tail = fmaf(t, tail, 1.781477937f);
        tail = fmaf(t, tail, -0.356563782f);
        tail = fmaf(t, tail, 0.319381530f) * t * *density;
        return u > 0 ? 1 - tail : tail;
    } else {
        *density = 0.39894228f * expf(-0.5f * u * u);
        return 0.5f + 0.5f * erff(u * 0.70710678f);
    }
}

/* f(u), and f'(u) in *d. */
template <enum snug_activation F, bool QUICK> static __device__ __forceinline__ float apply(float u, float *d) {
    if constexpr (F == SNUG_GELU) {
        float density;
        const float phi = normal<QUICK>(u, &density);
        *d = phi + u * density;
        return u * phi;
    } else if constexpr (F == SNUG_GELU_TANH) { /* (1 + tanh(x)) / 2 is the sigmoid of 2 x */
        const float s = sigmoid<QUICK>(2 * GELU_SCALE * (u + GELU_CUBIC * u * u * u));
        *d = s + 2 * u * s * (1 - s) * GELU_SCALE * (1 + 3 * GELU_CUBIC * u * u);
        return u * s;
    } else if constexpr (F == SNUG_RELU) {
        *d = u > 0 ? 1 : 0;
        return u > 0 ? u : 0;
    } else if constexpr (F == SNUG_SILU) {
        const float s = sigmoid<QUICK>(u);
        *d = s * (1 + u * (1 - s));
        return u * s;
    } else {
        const float t = tanhf(u);
        *d = 1 - t * t;
        return t;
    }
}

/* Calls launch with an integral constant of a function. */
template <enum snug_activation F> struct activation_constant { static constexpr enum snug_activation value = F; };
template <typename F> static void with_function(enum snug_activation f, F launch) {
    switch (f) {
    case SNUG_GELU: launch(activation_constant<SNUG_GELU>()); break;
    case SNUG_GELU_TANH: launch(activation_constant<SNUG_GELU_TANH>()); break;
    case SNUG_RELU: launch(activation_constant<SNUG_RELU>()); break;
    case SNUG_SILU: launch(activation_constant<SNUG_SILU>()); break;
    case SNUG_TANH: launch(activation_constant<SNUG_TANH>()); break;
    }
}

#endif
