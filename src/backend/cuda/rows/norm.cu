/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation: with mean and variance (biased) of a row of s, and x = (s - mean) / sqrt(variance + eps),
 *   y = gamma x + beta.
 * Backward, with g = gamma dy and means over the row:
 *   ds = (g - mean(g) - x mean(g x)) / sqrt(variance + eps) + addend,   dgamma = sum of dy x over rows,   dbeta = sum
 * of dy. Statistics are those of s as stored, so that recomputing it gives the same bits.
 */
#include "backend/cuda/rows/rows.cuh"

/* ---- forward ---- */

struct norm_forward {
    const void *z, *x;         /* RESIDUAL_NORM: s = dropout(z) + x; NORM has s in x, and no z */
    void *s, *y;               /* s may be NULL */
    const float *gamma, *beta; /* beta may be NULL */
    struct snug_cuda_batch batch;
    struct dropout dropout;
    int h, extent;
    int64_t rows, fixed;
    float eps;
};

/* Rows that a block is loading. */
template <typename T, int W, int V, int R> struct fetched {
    raw_row<T, W, V> a[R], b[R];
    int32_t position[R], sample[R]; /* dropout's */
};

/* Rows first … first + R - 1 of a and, if there is one, b. */
template <typename T, int W, int V, int R>
static __device__ __forceinline__ void fetch(struct fetched<T, W, V, R> &to, const T *a, const T *b, int h,
                                             int64_t first, int64_t live, const struct snug_cuda_batch &batch,
                                             int extent, bool masked) {
#pragma unroll
    for (int k = 0; k < R; k++) {
        const int64_t r = first + k;
        const bool there = r < live;
        fetch_row(to.a[k], a + r * h, h, there);
        if (b) fetch_row(to.b[k], b + r * h, h, there);
        to.position[k] = to.sample[k] = 0;
        if (!there || !masked) continue;
        const int64_t token = token_of_row(batch, extent, r);
        to.position[k] = batch.positions[token];
        to.sample[k] = batch.sample[token];
    }
}

template <typename T, int W, int V, int R>
static __device__ __forceinline__ void fetch_rows(raw_row<T, W, V> (&to)[R], const T *from, int h, int64_t first,
                                                  int64_t live) {
#pragma unroll
    for (int k = 0; k < R; k++) fetch_row(to[k], from + (first + k) * h, h, first + k < live);
}

enum { FORWARD_RESIDENT = 3 };

/* The next rows are loaded before the sums of a row are needed. */
template <typename T, bool RESIDUAL, int W, int V, int R>
static __global__ void __launch_bounds__(ROW_THREADS, V > 1 ? 1 : FORWARD_RESIDENT)
    norm_forward_kernel(const struct norm_forward a) {
    __shared__ struct warp_sums sums[2 * R];
    const int h = a.h;
    const int64_t live = live_rows(a.batch.step, a.extent, a.fixed), stride = (int64_t)gridDim.x * R;
    const bool masked = a.dropout.threshold;
    const struct dropout_row none = {0, 0, a.batch.step->key, a.batch.step->step};
    int64_t first = (int64_t)blockIdx.x * R;
    struct fetched<T, W, V, R> next;
    row<W, V> gamma, beta;
    fetch<T, W, V, R>(next, (const T *)a.x, RESIDUAL ? (const T *)a.z : NULL, h, first, live, a.batch, a.extent,
                      masked);
    load_row(gamma, a.gamma, h);
    load_row_or_zeros(beta, a.beta, h);
    clear_sums(sums, 2 * R);
    for (; first < a.rows; first += stride) {
        row<W, V> x[R];
        struct dropout_row mask[R];
#pragma unroll
        for (int k = 0; k < R; k++) {
            mask[k] = none;
            mask[k].position = (uint32_t)next.position[k];
            mask[k].sample = (uint32_t)next.sample[k];
            open_row(x[k], next.a[k]);
            if constexpr (RESIDUAL) {
                row<W, V> z;
                open_row(z, next.b[k]);
                drop_row(z, a.dropout, mask[k], h);
#pragma unroll
                for (int i = 0; i < V; i++)
#pragma unroll
                    for (int c = 0; c < W; c++) x[k].v[i][c] += z.v[i][c];
                round_row<W, V, T>(a.s && first + k < a.rows ? (T *)a.s + (first + k) * h : NULL, x[k], h);
            }
        }
        fetch<T, W, V, R>(next, (const T *)a.x, RESIDUAL ? (const T *)a.z : NULL, h, first + stride, live, a.batch,
                          a.extent, masked);
        normalise_rows<W, V, R>(x, gamma, beta, h, a.eps, sums);
#pragma unroll
        for (int k = 0; k < R; k++) {
            const int64_t r = first + k;
            if (r >= a.rows) continue;
            if (!RESIDUAL) drop_row(x[k], a.dropout, mask[k], h);
            if (r >= live) clear_row(x[k]);
            store_row((T *)a.y + r * h, x[k], h);
        }
    }
}

template <typename T> static bool launch_forward(const struct snug_cuda *cuda, const struct norm_forward &a) {
    return with_row_shape<T>(a.h, [&](auto shape) {
        constexpr int W = decltype(shape)::w, V = decltype(shape)::v, R = decltype(shape)::r;
        const unsigned threads = row_threads(a.h, W, V);
        const unsigned blocks = row_blocks(cuda, a.rows, R, threads, FORWARD_RESIDENT);
        if (a.z)
            norm_forward_kernel<T, true, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
        else
            norm_forward_kernel<T, false, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
    });
}

static snug_status forward(struct snug_run *run, const struct snug_op *op, struct norm_forward *a, int32_t y,
                           float eps) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    a->y = snug_run_data(run, y);
    a->batch = cuda->batch;
    a->dropout = dropout_of(op);
    a->h = (int)snug_run_cols(run, y);
    a->extent = run->program->tensors[y].extent;
    a->fixed = a->rows = snug_cuda_rows(run, y);
    a->eps = eps;
    if (a->rows == 0) return SNUG_OK;
    bool done = false;
    with_type(snug_run_dtype(run, y), [&](auto type) { done = launch_forward<decltype(type)>(cuda, *a); });
    return done ? snug_cuda_done(run, op) : snug_cuda_check_sizes(run->program, op);
}

extern "C" snug_status snug_cuda_residual_norm(struct snug_run *run, const struct snug_op *op) {
    struct norm_forward a = {.z = snug_run_data(run, op->residual_norm.z),
                             .x = snug_run_data(run, op->residual_norm.x),
                             .s = snug_run_data(run, op->residual_norm.s),
                             .gamma = (const float *)snug_run_data(run, op->residual_norm.gamma),
                             .beta = (const float *)snug_run_data(run, op->residual_norm.beta)};
    return forward(run, op, &a, op->residual_norm.y, op->residual_norm.eps);
}

extern "C" snug_status snug_cuda_norm(struct snug_run *run, const struct snug_op *op) {
    struct norm_forward a = {.x = snug_run_data(run, op->norm.s),
                             .gamma = (const float *)snug_run_data(run, op->norm.gamma),
                             .beta = (const float *)snug_run_data(run, op->norm.beta)};
    return forward(run, op, &a, op->norm.y, op->norm.eps);
}

/* ---- backward ---- */

enum { BACKWARD_RESIDENT = 2 };

/* dgamma, dbeta, and the column sums of dz, or of ds where there is no dz. */
template <typename T, bool ON_DY, bool BIAS, bool ADDEND, int W, int V, int R>
static __global__ void __launch_bounds__(ROW_THREADS, V > 1 ? 1 : BACKWARD_RESIDENT)
    norm_backward_kernel(const struct norm_backward a) {
    __shared__ struct warp_sums sums[4 * R];
    const int h = a.h;
    const int64_t live = live_rows(a.batch.step, a.extent, a.fixed), stride = (int64_t)gridDim.x * R;
    const float each = 1 / (float)h;
    const bool masked = a.dropout.threshold;
    const struct dropout_row none = {0, 0, a.batch.step->key, a.batch.step->step};
    int64_t first = (int64_t)blockIdx.x * R;
    struct fetched<T, W, V, R> next;
    raw_row<T, W, V> next_addend[R];
    row<W, V> gamma, dgamma, dbeta, dbias;
    fetch<T, W, V, R>(next, (const T *)a.s, (const T *)a.dy, h, first, live, a.batch, a.extent, masked);
    if constexpr (ADDEND) fetch_rows<T, W, V, R>(next_addend, (const T *)a.addend, h, first, live);
    load_row(gamma, a.gamma, h);
    clear_row(dgamma);
    clear_row(dbeta);
    clear_row(dbias);
    clear_sums(sums, 4 * R);
    for (; first < a.rows; first += stride) {
        row<W, V> x[R], dy[R];
        raw_row<T, W, V> addend[R];
        struct dropout_row mask[R];
#pragma unroll
        for (int k = 0; k < R; k++) {
            mask[k] = none;
            mask[k].position = (uint32_t)next.position[k];
            mask[k].sample = (uint32_t)next.sample[k];
            open_row(x[k], next.a[k]);
            open_row(dy[k], next.b[k]);
            if constexpr (ADDEND) addend[k] = next_addend[k];
        }
        fetch<T, W, V, R>(next, (const T *)a.s, (const T *)a.dy, h, first + stride, live, a.batch, a.extent, masked);
        if constexpr (ADDEND) fetch_rows<T, W, V, R>(next_addend, (const T *)a.addend, h, first + stride, live);
        centre_rows<W, V, R>(x, h, sums);
        float means[3 * R] = {}; /* of squares, of g, and of g times the centred row */
#pragma unroll
        for (int k = 0; k < R; k++) {
            if (ON_DY) drop_row(dy[k], a.dropout, mask[k], h);
#pragma unroll
            for (int i = 0; i < V; i++)
#pragma unroll
                for (int c = 0; c < W; c++) {
                    const float value = x[k].v[i][c], g = dy[k].v[i][c] * gamma.v[i][c];
                    means[k] += value * value;
                    means[R + k] += g;
                    means[2 * R + k] += g * value;
                }
        }
        block_sums(means, sums + R);
#pragma unroll
        for (int k = 0; k < R; k++) {
            const int64_t r = first + k;
            const float rstd = rsqrtf(means[k] * each + a.eps);
            const float g = means[R + k] * each, gx = means[2 * R + k] * each * rstd;
#pragma unroll
            for (int i = 0; i < V; i++)
#pragma unroll
                for (int c = 0; c < W; c++) {
                    const float value = x[k].v[i][c] * rstd, d = dy[k].v[i][c];
                    dgamma.v[i][c] += d * value;
                    dbeta.v[i][c] += d;
                    dy[k].v[i][c] = rstd * (d * gamma.v[i][c] - g - value * gx);
                }
            if (r >= a.rows) continue;
            if constexpr (ADDEND) {
                row<W, V> added;
                open_row(added, addend[k]);
#pragma unroll
                for (int i = 0; i < V; i++)
#pragma unroll
                    for (int c = 0; c < W; c++) dy[k].v[i][c] += added.v[i][c];
            }
            if (r >= live) clear_row(dy[k]);
            round_row<W, V, T>((T *)a.ds + r * h, dy[k], h);
            if (!ON_DY && a.dz) {
                drop_row(dy[k], a.dropout, mask[k], h);
                store_row((T *)a.dz + r * h, dy[k], h);
            }
            if constexpr (BIAS) {
#pragma unroll
                for (int i = 0; i < V; i++)
#pragma unroll
                    for (int c = 0; c < W; c++) dbias.v[i][c] += dy[k].v[i][c];
            }
        }
    }
    float *partial = a.partial + (int64_t)blockIdx.x * (BIAS ? 3 : 2) * h;
    store_row(partial, dgamma, h);
    store_row(partial + h, dbeta, h);
    if (BIAS) store_row(partial + 2 * h, dbias, h);
}

/* Column sums of partial, [parts, columns]: 32 columns per block, and 32 threads per column, each for a part of the
   rows. Every n columns belong to another gradient. */
struct sums_of_partials {
    float *gradient[3]; /* each or NULL */
    bool overwrite[3];
    const float *partial;
    int64_t parts, columns, n;
};

static __global__ void __launch_bounds__(1024) add_partials_kernel(const struct sums_of_partials a) {
    __shared__ float sums[32][33];
    const int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (column < a.columns) {
#pragma unroll 8
        for (int64_t p = threadIdx.y; p < a.parts; p += 32) sum += a.partial[p * a.columns + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_sum(sums[threadIdx.x][threadIdx.y]);
    const int64_t of = (int64_t)blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x || of >= a.columns) return;
    const int which = (int)(of / a.n);
    float *gradient = which == 0 ? a.gradient[0] : which == 1 ? a.gradient[1] : a.gradient[2];
    const bool overwrite = which == 0 ? a.overwrite[0] : which == 1 ? a.overwrite[1] : a.overwrite[2];
    if (!gradient) return;
    float *to = gradient + of % a.n;
    *to = overwrite ? sum : *to + sum;
}

static void add_partials(const struct snug_run *run, const struct sums_of_partials &a) {
    add_partials_kernel<<<blocks_for(a.columns, 32), dim3(32, 32), 0, snug_cuda_of(run)->stream>>>(a);
}

void snug_cuda_add_partials(const struct snug_run *run, float *gradient, const float *partial, int64_t parts, int64_t n,
                            bool overwrite) {
    add_partials(run, {{gradient}, {overwrite}, partial, parts, n, n});
}

/* parts: the number of partial sums that it writes. */
template <typename T>
static bool launch_backward(const struct snug_cuda *cuda, const struct norm_backward &a, bool on_dy, bool bias,
                            int64_t *parts) {
    return with_row_shape<T>(a.h, [&](auto shape) {
        constexpr int W = decltype(shape)::w, V = decltype(shape)::v, R = decltype(shape)::r;
        const unsigned threads = row_threads(a.h, W, V);
        unsigned blocks = row_blocks(cuda, a.rows, R, threads, BACKWARD_RESIDENT);
        if (blocks > SNUG_CUDA_NORM_PARTS) blocks = SNUG_CUDA_NORM_PARTS;
        *parts = blocks;
        if (blocks == 0) return;
        if (on_dy)
            norm_backward_kernel<T, true, false, false, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
        else if (bias && a.addend)
            norm_backward_kernel<T, false, true, true, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
        else if (bias)
            norm_backward_kernel<T, false, true, false, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
        else if (a.addend)
            norm_backward_kernel<T, false, false, true, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
        else
            norm_backward_kernel<T, false, false, false, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
    });
}

snug_status snug_cuda_norm_backward_rows(const struct snug_run *run, const struct snug_op *op, struct norm_backward *a,
                                         int32_t dy, bool on_dy, float *dgamma, float *dbeta) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const bool overwrite = snug_run_overwrites(run, op);
    struct sums_of_partials sums = {.gradient = {dgamma, dbeta}, .overwrite = {overwrite, overwrite}};
    float *dbias = sums.gradient[2] = snug_cuda_bias_gradient_output(run, op, &sums.overwrite[2]);
    a->partial = (float *)run->workspace;
    a->batch = cuda->batch;
    a->dropout = dropout_of(op);
    a->h = (int)snug_run_cols(run, dy);
    a->extent = run->program->tensors[dy].extent;
    a->fixed = a->rows = snug_cuda_rows(run, dy);
    sums.partial = a->partial;
    sums.n = a->h;
    sums.columns = (dbias ? 3 : 2) * sums.n;
    bool done = false;
    with_type(snug_run_dtype(run, dy),
              [&](auto type) { done = launch_backward<decltype(type)>(cuda, *a, on_dy, dbias, &sums.parts); });
    if (!done) return snug_cuda_check_sizes(run->program, op);
    if (dgamma || dbeta || dbias) add_partials(run, sums);
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_norm_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_norm_backward &n = op->norm_backward;
    struct norm_backward a = {.dy = snug_run_data(run, n.dy),
                              .s = snug_run_data(run, n.s),
                              .ds = snug_run_data(run, n.ds),
                              .dz = snug_run_data(run, n.dz),
                              .gamma = (const float *)snug_run_data(run, n.gamma),
                              .eps = n.eps,
                              .addend = snug_run_data(run, n.addend)};
    return snug_cuda_norm_backward_rows(run, op, &a, n.dy, false, (float *)snug_run_data(run, n.dgamma),
                                        (float *)snug_run_data(run, n.dbeta));
}
