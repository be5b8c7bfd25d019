/* SPDX-License-Identifier: Apache-2.0 */
/* DoRA: the inverse lengths of the rows of w + scale b a, and y = x m inverse + b + addend with its derivative. Plain
   kernels: sums in a fixed order, no shared tiles. */
#include "backend/cuda/device.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, COLUMNS = 32, STRIPES = 8 };

/* A block for each row of w, whose values are `along` apart, and rows `across`. */
template <typename T>
static __global__ void row_lengths_kernel(float *inverse, const T *w, const float *a, const float *b, float scale,
                                          int64_t cols, int64_t r, int64_t along, int64_t across) {
    const int64_t n = blockIdx.x;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < cols; i += THREADS) {
        float v = to_float(w[n * across + i * along]);
        for (int64_t k = 0; k < r; k++) v += scale * b[n * r + k] * a[k * cols + i];
        squares += v * v;
    }
    squares = block_sum<WARPS>(squares);
    if (threadIdx.x == 0) inverse[n] = 1 / sqrtf(squares);
}

extern "C" snug_status snug_cuda_row_lengths(struct snug_run *run, const struct snug_op *op) {
    const struct snug_row_lengths &l = op->row_lengths;
    const int64_t rows = snug_run_cols(run, l.inverse), cols = snug_run_cols(run, l.a), r = snug_run_cols(run, l.b);
    with_type(snug_run_dtype(run, l.w), [&](auto type) {
        typedef decltype(type) T;
        row_lengths_kernel<T><<<(unsigned)rows, THREADS, 0, snug_cuda_of(run)->stream>>>(
            (float *)snug_run_data(run, l.inverse), (const T *)snug_run_data(run, l.w),
            (const float *)snug_run_data(run, l.a), (const float *)snug_run_data(run, l.b), l.scale, cols, r,
            l.transposed ? rows : 1, l.transposed ? 1 : cols);
    });
    return snug_cuda_done(run, op);
}

template <typename T>
static __global__ void scale_columns_kernel(T *y, const T *x, const float *m, const float *inverse, const float *b,
                                            const T *addend, int64_t cols, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, c = i % cols;
    if (i >= count) return;
    float v = to_float(x[i]) * (m[c] * inverse[c]);
    if (b) v += b[c];
    y[i] = from_float<T>(addend ? v + to_float(addend[i]) : v);
}

extern "C" snug_status snug_cuda_scale_columns(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale_columns &s = op->scale_columns;
    const int64_t cols = snug_run_cols(run, s.y), count = snug_cuda_rows(run, s.y) * cols;
    if (count == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, s.y), [&](auto type) {
        typedef decltype(type) T;
        scale_columns_kernel<T><<<blocks_for(count, THREADS), THREADS, 0, snug_cuda_of(run)->stream>>>(
            (T *)snug_run_data(run, s.y), (const T *)snug_run_data(run, s.x), (const float *)snug_run_data(run, s.m),
            (const float *)snug_run_data(run, s.inverse), (const float *)snug_run_data(run, s.b),
            (const T *)(s.addend ? snug_run_data(run, s.addend) : NULL), cols, count);
    });
    return snug_cuda_done(run, op);
}

static __device__ void add_to(float *gradient, int64_t c, float sum, bool overwrites) {
    if (gradient) gradient[c] = overwrites ? sum : gradient[c] + sum;
}

/* A block has some columns, and a thread every few of their rows. */
template <typename T>
static __global__ void scale_columns_backward_kernel(T *dx, float *dm, float *db, const T *dy, const T *x,
                                                     const float *m, const float *inverse, int64_t rows, int64_t cols,
                                                     bool overwrites) {
    __shared__ float products[STRIPES][COLUMNS], sums[STRIPES][COLUMNS];
    const int64_t c = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    float product = 0, sum = 0;
    if (c < cols) {
        const float factor = m[c] * inverse[c];
        for (int64_t row = threadIdx.y; row < rows; row += STRIPES) {
            const float d = to_float(dy[row * cols + c]);
            product += d * to_float(x[row * cols + c]);
            sum += d;
            dx[row * cols + c] = from_float<T>(d * factor);
        }
    }
    products[threadIdx.y][threadIdx.x] = product;
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || c >= cols) return;
    for (int i = 1; i < STRIPES; i++) {
        product += products[i][threadIdx.x];
        sum += sums[i][threadIdx.x];
    }
    add_to(dm, c, product * inverse[c], overwrites);
    add_to(db, c, sum, overwrites);
}

extern "C" snug_status snug_cuda_scale_columns_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale_columns_backward &s = op->scale_columns_backward;
    const int64_t rows = snug_cuda_rows(run, s.dy), cols = snug_run_cols(run, s.dy);
    with_type(snug_run_dtype(run, s.dy), [&](auto type) {
        typedef decltype(type) T;
        scale_columns_backward_kernel<T>
            <<<blocks_for(cols, COLUMNS), dim3(COLUMNS, STRIPES), 0, snug_cuda_of(run)->stream>>>(
                (T *)snug_run_data(run, s.dx), (float *)snug_run_data(run, s.dm), (float *)snug_run_data(run, s.db),
                (const T *)snug_run_data(run, s.dy), (const T *)snug_run_data(run, s.x),
                (const float *)snug_run_data(run, s.m), (const float *)snug_run_data(run, s.inverse), rows, cols,
                snug_run_overwrites(run, op));
    });
    return snug_cuda_done(run, op);
}
