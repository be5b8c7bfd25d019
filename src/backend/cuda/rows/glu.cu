/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear units: a = f(u1) u2, where u1 and u2 are the halves of u's columns, or u and v; and du = (da u2 f'(u1),
   da f(u1)). Rows of zeros after the last one become zero. */
#include "backend/cuda/rows/functions.cuh"

enum { THREADS = 256 };

/* du and da are NULL forward, a is NULL backward. v, dv: or NULL. */
struct glu {
    void *a, *du, *dv;
    const void *u, *v, *da;
    int64_t rows, cols; /* of a */
};

template <typename T, enum snug_activation F, int W, bool BACKWARD>
static __global__ void __launch_bounds__(THREADS) glu_kernel(const struct glu g) {
    constexpr bool QUICK = sizeof(T) == 2;
    start_next();
    wait_before();
    const int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W;
    if (column >= g.cols) return;
    for (int64_t row = blockIdx.y; row < g.rows; row += gridDim.y) {
        const int64_t at = row * g.cols + column, left = g.v ? at : at + row * g.cols;
        const T *gates = g.v ? (const T *)g.v + at : (const T *)g.u + left + g.cols;
        float x[W], gate[W], d;
        load<W>(x, (const T *)g.u + left);
        load<W>(gate, gates);
        if constexpr (BACKWARD) {
            float da[W];
            load<W>(da, (const T *)g.da + at);
#pragma unroll
            for (int i = 0; i < W; i++) {
                const float value = apply<F, QUICK>(x[i], &d);
                x[i] = da[i] * gate[i] * d;
                gate[i] = da[i] * value;
            }
            store<W>((T *)g.du + left, x);
            store<W>(g.v ? (T *)g.dv + at : (T *)g.du + left + g.cols, gate);
        } else {
#pragma unroll
            for (int i = 0; i < W; i++) x[i] = apply<F, QUICK>(x[i], &d) * gate[i];
            store<W>((T *)g.a + at, x);
        }
    }
}

template <typename T, int W, bool BACKWARD>
static void launch_as(const struct glu &g, enum snug_activation f, const struct snug_cuda *cuda) {
    const int64_t pieces = (g.cols + W - 1) / W, x = (pieces + THREADS - 1) / THREADS;
    const unsigned threads = (unsigned)(((pieces + x - 1) / x + 31) / 32 * 32);
    const dim3 blocks((unsigned)x, (unsigned)(g.rows < 65535 ? g.rows : 65535));
    with_function(f, [&](auto function) {
        launch_chained(cuda, blocks, threads, glu_kernel<T, decltype(function)::value, W, BACKWARD>, g);
    });
}

template <bool BACKWARD>
static snug_status run_glu(struct snug_run *run, const struct snug_op *op, const struct glu &g, int32_t u,
                           enum snug_activation f) {
    if (g.rows == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, u), [&](auto type) {
        typedef decltype(type) T;
        constexpr int W = 16 / (int)sizeof(T);
        if (g.cols % W == 0)
            launch_as<T, W, BACKWARD>(g, f, snug_cuda_of(run));
        else
            launch_as<T, 1, BACKWARD>(g, f, snug_cuda_of(run));
    });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_glu(struct snug_run *run, const struct snug_op *op) {
    const struct glu g = {.a = snug_run_data(run, op->glu.a),
                          .u = snug_run_data(run, op->glu.u),
                          .v = op->glu.v ? snug_run_data(run, op->glu.v) : NULL,
                          .rows = snug_cuda_rows(run, op->glu.u),
                          .cols = snug_run_cols(run, op->glu.a)};
    return run_glu<false>(run, op, g, op->glu.u, op->glu.function);
}

extern "C" snug_status snug_cuda_glu_backward(struct snug_run *run, const struct snug_op *op) {
    const struct glu g = {.du = snug_run_data(run, op->glu_backward.du),
                          .dv = op->glu_backward.v ? snug_run_data(run, op->glu_backward.dv) : NULL,
                          .u = snug_run_data(run, op->glu_backward.u),
                          .v = op->glu_backward.v ? snug_run_data(run, op->glu_backward.v) : NULL,
                          .da = snug_run_data(run, op->glu_backward.da),
                          .rows = snug_cuda_rows(run, op->glu_backward.u),
                          .cols = snug_run_cols(run, op->glu_backward.da)};
    return run_glu<true>(run, op, g, op->glu_backward.u, op->glu_backward.function);
}
