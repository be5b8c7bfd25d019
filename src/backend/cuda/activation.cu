/* SPDX-License-Identifier: Apache-2.0 */
/* a = f(u), element by element. */
#include "backend/cuda/device.cuh"

/* sqrt(2 / pi) and the cubic's weight of the tanh approximation: Hendrycks and Gimpel, arXiv:1606.08415 */
#define GELU_SCALE 0.7978845608028654f
#define GELU_CUBIC 0.044715f

static __device__ __forceinline__ float sigmoid(float u) { return 1 / (1 + expf(-u)); }

/* f(u), and f'(u) in *d. */
template <enum snug_activation F> static __device__ __forceinline__ float apply(float u, float *d) {
    if constexpr (F == SNUG_GELU) {
        const float phi = 0.5f + 0.5f * erff(u * 0.70710678f); /* the normal distribution function */
        *d = phi + u * 0.39894228f * expf(-0.5f * u * u);
        return u * phi;
    } else if constexpr (F == SNUG_GELU_TANH) {
        const float t = tanhf(GELU_SCALE * (u + GELU_CUBIC * u * u * u));
        *d = 0.5f * (1 + t) + 0.5f * u * (1 - t * t) * GELU_SCALE * (1 + 3 * GELU_CUBIC * u * u);
        return 0.5f * u * (1 + t);
    } else if constexpr (F == SNUG_RELU) {
        *d = u > 0 ? 1 : 0;
        return u > 0 ? u : 0;
    } else if constexpr (F == SNUG_SILU) {
        const float s = sigmoid(u);
        *d = s * (1 + u * (1 - s));
        return u * s;
    } else {
        const float t = tanhf(u);
        *d = 1 - t * t;
        return t;
    }
}

/* 8 elements a thread; those behind the last whole 8 singly. da is NULL forward; a may be NULL backward. */
template <typename T, enum snug_activation F>
static __global__ void __launch_bounds__(256) activation_kernel(T *a, T *du, const T *u, const T *da, int64_t count) {
    const int64_t first = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 8;
    if (first >= count) return;
    const int n = count - first < 8 ? (int)(count - first) : 8;
    float x[8], g[8], d;
    if (n == 8) {
        load<8>(x, u + first);
        if (da) load<8>(g, da + first);
    } else {
        for (int i = 0; i < n; i++) x[i] = to_float(u[first + i]);
        for (int i = 0; i < n && da; i++) g[i] = to_float(da[first + i]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = apply<F>(x[i], &d);
        if (da) g[i] *= d;
    }
    if (n == 8) {
        if (a) store<8>(a + first, x);
        if (da) store<8>(du + first, g);
    } else {
        for (int i = 0; i < n && a; i++) a[first + i] = from_float<T>(x[i]);
        for (int i = 0; i < n && da; i++) du[first + i] = from_float<T>(g[i]);
    }
}

template <typename T>
static void launch(const struct snug_run *run, enum snug_activation f, T *a, T *du, const T *u, const T *da,
                   int64_t count) {
    const unsigned blocks = blocks_for(count, 8 * 256);
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    if (blocks == 0) return;
    switch (f) {
    case SNUG_GELU: activation_kernel<T, SNUG_GELU><<<blocks, 256, 0, stream>>>(a, du, u, da, count); break;
    case SNUG_GELU_TANH: activation_kernel<T, SNUG_GELU_TANH><<<blocks, 256, 0, stream>>>(a, du, u, da, count); break;
    case SNUG_RELU: activation_kernel<T, SNUG_RELU><<<blocks, 256, 0, stream>>>(a, du, u, da, count); break;
    case SNUG_SILU: activation_kernel<T, SNUG_SILU><<<blocks, 256, 0, stream>>>(a, du, u, da, count); break;
    case SNUG_TANH: activation_kernel<T, SNUG_TANH><<<blocks, 256, 0, stream>>>(a, du, u, da, count); break;
    }
}

static snug_status run_activation(struct snug_run *run, const struct snug_op *op, int32_t a, int32_t du, int32_t u,
                                  int32_t da) {
    const int64_t count = snug_cuda_rows(run, u) * snug_run_cols(run, u);
    void *A = snug_run_data(run, a), *DU = snug_run_data(run, du), *U = snug_run_data(run, u);
    void *DA = snug_run_data(run, da);
    with_type(snug_run_dtype(run, u), [&](auto type) {
        typedef decltype(type) T;
        launch(run, op->activation, (T *)A, (T *)DU, (const T *)U, (const T *)DA, count);
    });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_activation(struct snug_run *run, const struct snug_op *op) {
    return run_activation(run, op, op->out[0], -1, op->in[0], -1);
}

extern "C" snug_status snug_cuda_activation_backward(struct snug_run *run, const struct snug_op *op) {
    return run_activation(run, op, op->out[1], op->out[0], op->in[1], op->in[0]);
}
