/* SPDX-License-Identifier: Apache-2.0 */
/*
 * a = f(u + b), and du = da f'(u + b), element by element. A thread takes some columns of every few rows, so that it
 * reads their biases once, and the column sums of du, the biases' gradient (bias_gradient.c), cost nothing but their
 * partial sums.
 */
#include "backend/cuda/device.cuh"

/* sqrt(2 / pi) and the cubic's weight of the tanh approximation: Hendrycks and Gimpel, arXiv:1606.08415 */
#define GELU_SCALE 0.7978845608028654f
#define GELU_CUBIC 0.044715f

/* RESIDENT: blocks that a multiprocessor runs at once. ROWS: that a thread has under way, so many that registers are
   left for that many blocks. */
enum { THREADS = 256, RESIDENT = 6, MOST_BLOCKS = 1024 };
template <bool BACKWARD> constexpr int ROWS = BACKWARD ? 1 : 2;

/* QUICK where 16-bit types would not tell the difference. */
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

/* da and du are NULL forward; a may be NULL backward, bias [cols] anywhere, and partial, [parts, cols], where no bias's
   gradient is wanted. */
struct activation {
    void *a, *du;
    const void *u, *da;
    const float *bias;
    float *partial;
    int64_t rows, cols;
};

template <typename T, enum snug_activation F, int W, bool BACKWARD>
static __global__ void __launch_bounds__(THREADS, RESIDENT) activation_kernel(const struct activation a) {
    const int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W;
    float sum[W] = {}, bias[W] = {};
    if (column >= a.cols) return;
    if (a.bias) load<W>(bias, a.bias + column);
    constexpr int R = ROWS<BACKWARD>;
    for (int64_t first = (int64_t)blockIdx.y * R; first < a.rows; first += (int64_t)gridDim.y * R) {
        float x[R][W], g[R][W], d;
#pragma unroll
        for (int k = 0; k < R; k++)
            if (first + k < a.rows) {
                load<W>(x[k], (const T *)a.u + (first + k) * a.cols + column);
                if (BACKWARD) load<W>(g[k], (const T *)a.da + (first + k) * a.cols + column);
            }
#pragma unroll
        for (int k = 0; k < R; k++) {
            if (first + k >= a.rows) continue;
            const int64_t at = (first + k) * a.cols + column;
#pragma unroll
            for (int i = 0; i < W; i++) {
                x[k][i] = apply<F, sizeof(T) == 2>(x[k][i] + bias[i], &d);
                if (BACKWARD) g[k][i] *= d;
            }
            if (!BACKWARD || a.a) store<W>((T *)a.a + at, x[k]);
            if constexpr (BACKWARD) {
                store<W>((T *)a.du + at, g[k]);
#pragma unroll
                for (int i = 0; i < W; i++) sum[i] += g[k][i];
            }
        }
    }
    if (BACKWARD && a.partial) store<W>(a.partial + (int64_t)blockIdx.y * a.cols + column, sum);
}

/* Blocks beside each other, threads of one, and blocks above each other: backward as many as run at once, since each
   leaves a partial sum of its columns. */
struct grid {
    int64_t x, y, threads;
};

template <bool BACKWARD> static struct grid grid_of(int64_t rows, int64_t cols, int w, int64_t multiprocessors) {
    constexpr int R = ROWS<BACKWARD>;
    struct grid grid;
    const int64_t pieces = (cols + w - 1) / w, turns = (rows + R - 1) / R, enough = RESIDENT * multiprocessors;
    grid.x = (pieces + THREADS - 1) / THREADS;
    grid.threads = ((pieces + grid.x - 1) / grid.x + 31) / 32 * 32;
    grid.y = BACKWARD                      ? (enough < MOST_BLOCKS ? enough : MOST_BLOCKS) / grid.x
             : turns * grid.x > 4 * enough ? turns / 4
                                           : turns;
    if (grid.y > turns) grid.y = turns;
    if (grid.y > 65535) grid.y = 65535;
    if (grid.y < 1) grid.y = 1;
    return grid;
}

template <typename T, int W, bool BACKWARD>
static void launch_as(const struct activation &a, enum snug_activation f, const struct grid &grid, cudaStream_t s) {
    const dim3 blocks((unsigned)grid.x, (unsigned)grid.y);
    const unsigned threads = (unsigned)grid.threads;
    switch (f) {
    case SNUG_GELU: activation_kernel<T, SNUG_GELU, W, BACKWARD><<<blocks, threads, 0, s>>>(a); break;
    case SNUG_GELU_TANH: activation_kernel<T, SNUG_GELU_TANH, W, BACKWARD><<<blocks, threads, 0, s>>>(a); break;
    case SNUG_RELU: activation_kernel<T, SNUG_RELU, W, BACKWARD><<<blocks, threads, 0, s>>>(a); break;
    case SNUG_SILU: activation_kernel<T, SNUG_SILU, W, BACKWARD><<<blocks, threads, 0, s>>>(a); break;
    case SNUG_TANH: activation_kernel<T, SNUG_TANH, W, BACKWARD><<<blocks, threads, 0, s>>>(a); break;
    }
}

/* Returns the number of partial sums. */
template <typename T, bool BACKWARD>
static int64_t launch(const struct snug_cuda *cuda, const struct activation &a, enum snug_activation f) {
    constexpr int W = 16 / (int)sizeof(T);
    const bool whole = a.cols % W == 0;
    const struct grid grid = grid_of<BACKWARD>(a.rows, a.cols, whole ? W : 1, cuda->multiprocessors);
    if (whole)
        launch_as<T, W, BACKWARD>(a, f, grid, cuda->stream);
    else
        launch_as<T, 1, BACKWARD>(a, f, grid, cuda->stream);
    return grid.y;
}

extern "C" int64_t snug_cuda_activation_workspace(const struct snug_program *program, const struct snug_op *op) {
    return snug_cuda_bias_of(program, op) ? MOST_BLOCKS * THREADS * 8 * (int64_t)sizeof(float) : 0;
}

extern "C" snug_status snug_cuda_activation(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct activation a = {.a = snug_run_data(run, op->out[0]),
                                 .u = snug_run_data(run, op->in[0]),
                                 .bias = (const float *)snug_run_data(run, op->in[1]),
                                 .rows = snug_cuda_rows(run, op->in[0]),
                                 .cols = snug_run_cols(run, op->in[0])};
    if (a.rows == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, op->in[0]),
              [&](auto type) { launch<decltype(type), false>(cuda, a, op->activation); });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_activation_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    bool overwrite;
    float *db = snug_cuda_bias_to_give(run, op, &overwrite);
    const struct activation a = {.a = snug_run_data(run, op->out[1]),
                                 .du = snug_run_data(run, op->out[0]),
                                 .u = snug_run_data(run, op->in[1]),
                                 .da = snug_run_data(run, op->in[0]),
                                 .bias = (const float *)snug_run_data(run, op->in[2]),
                                 .partial = db ? (float *)run->workspace : NULL,
                                 .rows = snug_cuda_rows(run, op->in[1]),
                                 .cols = snug_run_cols(run, op->in[1])};
    int64_t parts = 0;
    if (a.rows > 0)
        with_type(snug_run_dtype(run, op->in[1]),
                  [&](auto type) { parts = launch<decltype(type), true>(cuda, a, op->activation); });
    if (db) snug_cuda_add_partials(run, db, a.partial, parts, a.cols, overwrite);
    return snug_cuda_done(run, op);
}
