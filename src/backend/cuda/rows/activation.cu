/* SPDX-License-Identifier: Apache-2.0 */
/*
 * a = f(u + b), and du = da f'(u + b), element by element. A thread takes some columns of every few rows, so it reads
 * their biases once; the column sums of du, the biases' gradient (bias.h), then cost only the partial sums.
 */
#include "backend/cuda/rows/functions.cuh"

/* RESIDENT: blocks that a multiprocessor runs at once. ROWS: rows that a thread processes at once, few enough that
   the registers suffice for that many blocks. */
enum { THREADS = SNUG_CUDA_ACTIVATION_THREADS, RESIDENT = 6, MOST_BLOCKS = SNUG_CUDA_ACTIVATION_PARTS };
template <bool BACKWARD> constexpr int ROWS = BACKWARD ? 1 : 2;

/* da and du are NULL forward; a may be NULL backward, bias [cols] anywhere, and partial, [parts, cols], unless a bias's
   gradient is needed. */
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

/* x: blocks per row; threads per block; y: blocks per column; backward as many as run at once, because each block
   writes a partial sum of its columns. */
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
    with_function(f, [&](auto function) {
        activation_kernel<T, decltype(function)::value, W, BACKWARD><<<blocks, threads, 0, s>>>(a);
    });
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

extern "C" snug_status snug_cuda_activation(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct activation a = {.a = snug_run_data(run, op->activation.a),
                                 .u = snug_run_data(run, op->activation.u),
                                 .bias = (const float *)snug_run_data(run, op->activation.b),
                                 .rows = snug_cuda_rows(run, op->activation.u),
                                 .cols = snug_run_cols(run, op->activation.u)};
    if (a.rows == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, op->activation.u),
              [&](auto type) { launch<decltype(type), false>(cuda, a, op->activation.function); });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_activation_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    bool overwrite;
    float *db = snug_cuda_bias_gradient_output(run, op, &overwrite);
    const struct activation a = {.a = snug_run_data(run, op->activation_backward.a),
                                 .du = snug_run_data(run, op->activation_backward.du),
                                 .u = snug_run_data(run, op->activation_backward.u),
                                 .da = snug_run_data(run, op->activation_backward.da),
                                 .bias = (const float *)snug_run_data(run, op->activation_backward.b),
                                 .partial = db ? (float *)run->workspace : NULL,
                                 .rows = snug_cuda_rows(run, op->activation_backward.u),
                                 .cols = snug_run_cols(run, op->activation_backward.u)};
    int64_t parts = 0;
    if (a.rows > 0)
        with_type(snug_run_dtype(run, op->activation_backward.u),
                  [&](auto type) { parts = launch<decltype(type), true>(cuda, a, op->activation_backward.function); });
    if (db) snug_cuda_add_partials(run, db, a.partial, parts, a.cols, overwrite);
    return snug_cuda_done(run, op);
}
