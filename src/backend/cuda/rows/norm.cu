/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation: with mean and variance (biased) of a row of s, and x = (s - mean) / sqrt(variance + eps),
 *   y = gamma x + beta.
 * Backward, with g = gamma dy and means over the row:
 *   ds = (g - mean(g) - x mean(g x)) / sqrt(variance + eps) + addend,   dgamma = sum of dy x over rows,   dbeta = sum
 * of dy. Statistics are those of s as stored, so that recomputing it gives the same bits.
 * RMSNorm: the mean of s is taken as 0, and there is no mean(g). With a unit offset, gamma is 1 + the weight.
 * Rows that the registers of a block cannot hold are read again for each sum (the wide kernels).
 */
#include "backend/cuda/rows/rows.cuh"

/* ---- forward ---- */

struct norm_forward {
    const void *z, *x;         /* RESIDUAL_NORM: s = dropout(z) + x; NORM has s in x, and no z */
    void *s, *y;               /* s may be NULL */
    const float *gamma, *beta; /* beta may be NULL */
    struct snug_cuda_batch batch;
    struct dropout dropout;
    struct row_tokens tokens;
    int h, parts; /* rows: parts of a tensor's rows, each of h values */
    int64_t rows, fixed;
    struct snug_norm_form form;
    bool early; /* gamma and beta may be read before earlier operations are done */
};

static int parts_of(const struct snug_norm_form &form) { return form.parts > 0 ? form.parts : 1; }

template <int W>
static __device__ __forceinline__ void add_offset(float (&gamma)[W], const struct snug_norm_form &form) {
    if (!form.unit_offset) return;
#pragma unroll
    for (int i = 0; i < W; i++) gamma[i] += 1;
}

template <int W, int V>
static __device__ __forceinline__ void load_gamma(row<W, V> &gamma, const float *from, int h,
                                                  const struct snug_norm_form &form) {
    load_row(gamma, from, h);
#pragma unroll
    for (int i = 0; i < V; i++) add_offset<W>(gamma.v[i], form);
}

/* Rows that a block is loading. */
template <typename T, int W, int V, int R> struct fetched {
    raw_row<T, W, V> a[R], b[R];
    int32_t position[R], sample[R]; /* dropout's */
};

/* Rows first … first + R - 1 of a and, if there is one, b. */
template <typename T, int W, int V, int R>
static __device__ __forceinline__ void fetch(struct fetched<T, W, V, R> &to, const T *a, const T *b, int h,
                                             int64_t first, int64_t live, const struct snug_cuda_batch &batch,
                                             const struct row_tokens &tokens, bool masked) {
#pragma unroll
    for (int k = 0; k < R; k++) {
        const int64_t r = first + k;
        const bool there = r < live;
        fetch_row(to.a[k], a + r * h, h, there);
        if (b) fetch_row(to.b[k], b + r * h, h, there);
        to.position[k] = to.sample[k] = 0;
        if (!there || !masked) continue;
        const int64_t token = token_of_row(batch, tokens, r);
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
    start_next();
    const int h = a.h;
    const int64_t live = live_rows(a.batch.step, a.tokens.extent, a.fixed) * a.parts, stride = (int64_t)gridDim.x * R;
    const bool masked = a.dropout.threshold;
    const struct dropout_row none = {0, 0, a.batch.step->key, a.batch.step->step};
    int64_t first = (int64_t)blockIdx.x * R;
    struct fetched<T, W, V, R> next;
    row<W, V> gamma, beta;
    if (!a.early) wait_before();
    load_gamma(gamma, a.gamma, h, a.form);
    load_row_or_zeros(beta, a.beta, h);
    wait_before();
    fetch<T, W, V, R>(next, (const T *)a.x, RESIDUAL ? (const T *)a.z : NULL, h, first, live, a.batch, a.tokens,
                      masked);
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
                          a.tokens, masked);
        normalise_rows<W, V, R>(x, gamma, beta, h, a.form, sums);
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

/* Calls f(column) for each piece of W values of a row that this thread has. */
template <int W, typename F> static __device__ __forceinline__ void each_column(int64_t h, F f) {
    for (int64_t column = threadIdx.x * W; column < h; column += blockDim.x * W) f(column);
}

/* The sum of squares of s - *mean, of a row as stored. sums: two buffers. */
template <typename T, int W>
static __device__ __forceinline__ float wide_squares(const T *s, int64_t h, const struct snug_norm_form &form,
                                                     struct warp_sums *sums, float *mean) {
    float sum[1] = {}, squares[1] = {};
    *mean = 0;
    if (form.rms) {
        __syncthreads(); /* the other buffer is read until here */
    } else {
        each_column<W>(h, [&](int64_t column) {
            float x[W];
            load<W>(x, s + column);
#pragma unroll
            for (int i = 0; i < W; i++) sum[0] += x[i];
        });
        block_sums(sum, sums);
        *mean = sum[0] / (float)h;
    }
    const float centre = *mean;
    each_column<W>(h, [&](int64_t column) {
        float x[W];
        load<W>(x, s + column);
#pragma unroll
        for (int i = 0; i < W; i++) squares[0] = fmaf(x[i] - centre, x[i] - centre, squares[0]);
    });
    block_sums(squares, sums + 1);
    return squares[0];
}

template <typename T, int W>
static __global__ void __launch_bounds__(ROW_THREADS) wide_forward_kernel(const struct norm_forward a) {
    __shared__ struct warp_sums sums[2];
    const int64_t h = a.h, live = live_rows(a.batch.step, a.tokens.extent, a.fixed) * a.parts;
    clear_sums(sums, 2);
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const T *s = (const T *)a.x + r * h;
        T *y = (T *)a.y + r * h;
        struct dropout_row mask = {};
        if (r < live && a.dropout.threshold) mask = dropout_row_of(a.batch, token_of_row(a.batch, a.tokens, r));
        if (a.z) {
            T *stored = a.s ? (T *)a.s + r * h : y; /* each thread reads what it writes here */
            each_column<W>(h, [&](int64_t column) {
                float x[W] = {}, z[W] = {};
                if (r < live) {
                    load<W>(x, s + column);
                    load<W>(z, (const T *)a.z + r * h + column);
                    drop<W>(z, a.dropout, mask, (uint32_t)column);
                }
#pragma unroll
                for (int i = 0; i < W; i++) x[i] += z[i];
                store<W>(stored + column, x);
            });
            s = stored;
        }
        if (r >= live) {
            const float zeros[W] = {};
            each_column<W>(h, [&](int64_t column) { store<W>(y + column, zeros); });
            continue;
        }
        float mean;
        const float rstd = rsqrtf(wide_squares<T, W>(s, h, a.form, sums, &mean) / (float)h + a.form.eps);
        each_column<W>(h, [&](int64_t column) {
            float x[W], gamma[W], beta[W] = {};
            load<W>(x, s + column);
            load<W>(gamma, a.gamma + column);
            add_offset<W>(gamma, a.form);
            if (a.beta) load<W>(beta, a.beta + column);
#pragma unroll
            for (int i = 0; i < W; i++) x[i] = fmaf((x[i] - mean) * rstd, gamma[i], beta[i]);
            if (!a.z) drop<W>(x, a.dropout, mask, (uint32_t)column);
            store<W>(y + column, x);
        });
    }
}

template <typename T> static void launch_wide_forward(const struct snug_cuda *cuda, const struct norm_forward &a) {
    constexpr int W = 16 / (int)sizeof(T);
    const unsigned blocks = row_blocks(cuda, a.rows, 1, ROW_THREADS, FORWARD_RESIDENT);
    if (a.h % W == 0)
        wide_forward_kernel<T, W><<<blocks, ROW_THREADS, 0, cuda->stream>>>(a);
    else
        wide_forward_kernel<T, 1><<<blocks, ROW_THREADS, 0, cuda->stream>>>(a);
}

template <typename T> static void launch_forward(const struct snug_cuda *cuda, const struct norm_forward &a) {
    const bool fits = with_row_shape<T>(a.h, [&](auto shape) {
        constexpr int W = decltype(shape)::w, V = decltype(shape)::v, R = decltype(shape)::r;
        const unsigned threads = row_threads(a.h, W, V);
        const unsigned blocks = row_blocks(cuda, a.rows, R, threads, FORWARD_RESIDENT);
        if (a.z)
            launch_chained(cuda, blocks, threads, norm_forward_kernel<T, true, W, V, R>, a);
        else
            launch_chained(cuda, blocks, threads, norm_forward_kernel<T, false, W, V, R>, a);
    });
    if (!fits) launch_wide_forward<T>(cuda, a);
}

static snug_status forward(struct snug_run *run, const struct snug_op *op, struct norm_forward *a, int32_t y,
                           const struct snug_norm_form &form) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    a->y = snug_run_data(run, y);
    a->batch = cuda->batch;
    a->dropout = dropout_of(op);
    a->parts = parts_of(form);
    a->h = (int)snug_run_cols(run, y) / a->parts;
    a->tokens = row_tokens_of(run, y);
    a->fixed = snug_cuda_rows(run, y);
    a->rows = a->fixed * a->parts;
    a->form = form;
    a->early = run->program->tensors[op->kind == SNUG_OP_NORM ? op->norm.gamma : op->residual_norm.gamma].persistent;
    if (a->rows == 0) return SNUG_OK;
    with_type(snug_run_dtype(run, y), [&](auto type) { launch_forward<decltype(type)>(cuda, *a); });
    return snug_cuda_done(run, op);
}

extern "C" snug_status snug_cuda_residual_norm(struct snug_run *run, const struct snug_op *op) {
    struct norm_forward a = {.z = snug_run_data(run, op->residual_norm.z),
                             .x = snug_run_data(run, op->residual_norm.x),
                             .s = snug_run_data(run, op->residual_norm.s),
                             .gamma = (const float *)snug_run_data(run, op->residual_norm.gamma),
                             .beta = (const float *)snug_run_data(run, op->residual_norm.beta)};
    return forward(run, op, &a, op->residual_norm.y, op->residual_norm.form);
}

extern "C" snug_status snug_cuda_norm(struct snug_run *run, const struct snug_op *op) {
    struct norm_forward a = {.x = snug_run_data(run, op->norm.s),
                             .gamma = (const float *)snug_run_data(run, op->norm.gamma),
                             .beta = (const float *)snug_run_data(run, op->norm.beta)};
    return forward(run, op, &a, op->norm.y, op->norm.form);
}

/* ---- backward ---- */

enum { BACKWARD_RESIDENT = 2 };

struct norm_backward {
    const void *dy, *s;
    void *ds, *dz; /* ds may be dy or addend; dz may be NULL */
    const float *gamma;
    float *partial; /* [blocks, 2 or 3, h]: sums of dgamma, dbeta, and a bias's gradient */
    struct snug_cuda_batch batch;
    struct dropout dropout;
    struct row_tokens tokens;
    int h, parts; /* as in struct norm_forward */
    int64_t rows, fixed;
    struct snug_norm_form form;
    const void *addend; /* or NULL */
    bool drops_y;       /* the mask is dy's, not that between ds and dz */
};

/* dgamma, dbeta, and the column sums of dz, or of ds where there is no dz. */
template <typename T, bool BIAS, bool ADDEND, int W, int V, int R>
static __global__ void __launch_bounds__(ROW_THREADS, V > 1 ? 1 : BACKWARD_RESIDENT)
    norm_backward_kernel(const struct norm_backward a) {
    __shared__ struct warp_sums sums[4 * R];
    const int h = a.h;
    const int64_t live = live_rows(a.batch.step, a.tokens.extent, a.fixed) * a.parts, stride = (int64_t)gridDim.x * R;
    const float each = 1 / (float)h;
    const bool masked = a.dropout.threshold;
    const struct dropout_row none = {0, 0, a.batch.step->key, a.batch.step->step};
    int64_t first = (int64_t)blockIdx.x * R;
    struct fetched<T, W, V, R> next;
    raw_row<T, W, V> next_addend[R];
    row<W, V> gamma, dgamma, dbeta, dbias;
    fetch<T, W, V, R>(next, (const T *)a.s, (const T *)a.dy, h, first, live, a.batch, a.tokens, masked);
    if constexpr (ADDEND) fetch_rows<T, W, V, R>(next_addend, (const T *)a.addend, h, first, live);
    load_gamma(gamma, a.gamma, h, a.form);
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
        fetch<T, W, V, R>(next, (const T *)a.s, (const T *)a.dy, h, first + stride, live, a.batch, a.tokens, masked);
        if constexpr (ADDEND) fetch_rows<T, W, V, R>(next_addend, (const T *)a.addend, h, first + stride, live);
        centre_rows<W, V, R>(x, h, a.form, sums);
        float means[3 * R] = {}; /* of squares, of g, and of g times the centred row */
#pragma unroll
        for (int k = 0; k < R; k++) {
            if (a.drops_y) drop_row(dy[k], a.dropout, mask[k], h);
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
            const float rstd = rsqrtf(means[k] * each + a.form.eps);
            const float g = a.form.rms ? 0 : means[R + k] * each, gx = means[2 * R + k] * each * rstd;
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
            if (a.dz) {
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

/* The partial sums of a block's columns are in memory: a thread adds to its own. */
template <typename T, int W>
static __global__ void __launch_bounds__(ROW_THREADS) wide_backward_kernel(const struct norm_backward a, bool bias) {
    __shared__ struct warp_sums sums[4];
    const int64_t h = a.h, live = live_rows(a.batch.step, a.tokens.extent, a.fixed) * a.parts;
    float *partial = a.partial + (int64_t)blockIdx.x * (bias ? 3 : 2) * h;
    const auto add = [&](int which, int64_t column, const float(&more)[W]) {
        float sum[W];
        load<W>(sum, partial + which * h + column);
#pragma unroll
        for (int i = 0; i < W; i++) sum[i] += more[i];
        store<W>(partial + which * h + column, sum);
    };
    each_column<W>(h, [&](int64_t column) {
        const float zeros[W] = {};
        for (int which = 0; which < (bias ? 3 : 2); which++) store<W>(partial + which * h + column, zeros);
    });
    clear_sums(sums, 4);
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const T *s = (const T *)a.s + r * h;
        T *ds = (T *)a.ds + r * h, *dz = a.dz ? (T *)a.dz + r * h : NULL;
        if (r >= live) {
            each_column<W>(h, [&](int64_t column) {
                const float zeros[W] = {};
                store<W>(ds + column, zeros);
                if (dz) store<W>(dz + column, zeros);
            });
            continue;
        }
        struct dropout_row mask = {};
        if (a.dropout.threshold) mask = dropout_row_of(a.batch, token_of_row(a.batch, a.tokens, r));
        const auto load_dy = [&](float(&dy)[W], int64_t column) {
            load<W>(dy, (const T *)a.dy + r * h + column);
            if (a.drops_y) drop<W>(dy, a.dropout, mask, (uint32_t)column);
        };
        const auto load_pieces = [&](float(&x)[W], float(&dy)[W], float(&gamma)[W], int64_t column) {
            load<W>(x, s + column);
            load_dy(dy, column);
            load<W>(gamma, a.gamma + column);
            add_offset<W>(gamma, a.form);
        };
        float mean, means[2] = {}; /* of g, and of g times the centred row */
        const float rstd = rsqrtf(wide_squares<T, W>(s, h, a.form, sums, &mean) / (float)h + a.form.eps);
        each_column<W>(h, [&](int64_t column) {
            float x[W], dy[W], gamma[W];
            load_pieces(x, dy, gamma, column);
#pragma unroll
            for (int i = 0; i < W; i++) {
                means[0] += dy[i] * gamma[i];
                means[1] += dy[i] * gamma[i] * (x[i] - mean);
            }
        });
        block_sums(means, sums + 2);
        const float g = a.form.rms ? 0 : means[0] / (float)h, gx = means[1] / (float)h * rstd;
        each_column<W>(h, [&](int64_t column) {
            float x[W], dy[W], gamma[W], addend[W] = {}, product[W];
            load_pieces(x, dy, gamma, column);
            if (a.addend) load<W>(addend, (const T *)a.addend + r * h + column);
#pragma unroll
            for (int i = 0; i < W; i++) x[i] = (x[i] - mean) * rstd, product[i] = dy[i] * x[i];
            add(0, column, product);
            add(1, column, dy);
#pragma unroll
            for (int i = 0; i < W; i++)
                dy[i] = to_float(from_float<T>(rstd * (dy[i] * gamma[i] - g - x[i] * gx) + addend[i]));
            store<W>(ds + column, dy);
            if (dz) {
                drop<W>(dy, a.dropout, mask, (uint32_t)column);
                store<W>(dz + column, dy);
            }
            if (bias) add(2, column, dy);
        });
    }
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
static unsigned backward_blocks(const struct snug_cuda *cuda, const struct norm_backward &a, int each,
                                unsigned threads) {
    const unsigned blocks = row_blocks(cuda, a.rows, each, threads, BACKWARD_RESIDENT);
    return blocks < SNUG_CUDA_NORM_PARTS ? blocks : (unsigned)SNUG_CUDA_NORM_PARTS;
}

template <typename T>
static void launch_wide_backward(const struct snug_cuda *cuda, const struct norm_backward &a, bool bias,
                                 int64_t *parts) {
    constexpr int W = 16 / (int)sizeof(T);
    const unsigned blocks = backward_blocks(cuda, a, 1, ROW_THREADS);
    *parts = blocks;
    if (blocks == 0) return;
    if (a.h % W == 0)
        wide_backward_kernel<T, W><<<blocks, ROW_THREADS, 0, cuda->stream>>>(a, bias);
    else
        wide_backward_kernel<T, 1><<<blocks, ROW_THREADS, 0, cuda->stream>>>(a, bias);
}

template <typename T>
static void launch_backward(const struct snug_cuda *cuda, const struct norm_backward &a, bool bias, int64_t *parts) {
    const bool fits = with_row_shape<T>(a.h, [&](auto shape) {
        constexpr int W = decltype(shape)::w, V = decltype(shape)::v, R = decltype(shape)::r;
        const unsigned threads = row_threads(a.h, W, V), blocks = backward_blocks(cuda, a, R, threads);
        *parts = blocks;
        if (blocks == 0) return;
        if (bias && a.addend)
            norm_backward_kernel<T, true, true, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
        else if (bias)
            norm_backward_kernel<T, true, false, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
        else if (a.addend)
            norm_backward_kernel<T, false, true, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
        else
            norm_backward_kernel<T, false, false, W, V, R><<<blocks, threads, 0, cuda->stream>>>(a);
    });
    if (!fits) launch_wide_backward<T>(cuda, a, bias, parts);
}

extern "C" snug_status snug_cuda_norm_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_norm_backward &n = op->norm_backward;
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const bool overwrite = snug_run_overwrites(run, op);
    float *dgamma = (float *)snug_run_data(run, n.dgamma), *dbeta = (float *)snug_run_data(run, n.dbeta);
    struct sums_of_partials sums = {.gradient = {dgamma, dbeta}, .overwrite = {overwrite, overwrite}};
    float *dbias = sums.gradient[2] = snug_cuda_bias_gradient_output(run, op, &sums.overwrite[2]);
    const struct norm_backward a = {.dy = snug_run_data(run, n.dy),
                                    .s = snug_run_data(run, n.s),
                                    .ds = snug_run_data(run, n.ds),
                                    .dz = snug_run_data(run, n.dz),
                                    .gamma = (const float *)snug_run_data(run, n.gamma),
                                    .partial = (float *)run->workspace,
                                    .batch = cuda->batch,
                                    .dropout = dropout_of(op),
                                    .tokens = row_tokens_of(run, n.dy),
                                    .h = (int)snug_run_cols(run, n.dy) / parts_of(n.form),
                                    .parts = parts_of(n.form),
                                    .rows = snug_cuda_rows(run, n.dy) * parts_of(n.form),
                                    .fixed = snug_cuda_rows(run, n.dy),
                                    .form = n.form,
                                    .addend = snug_run_data(run, n.addend),
                                    .drops_y = n.drops_y};
    sums.partial = a.partial;
    sums.n = a.h;
    sums.columns = (dbias ? 3 : 2) * sums.n;
    with_type(snug_run_dtype(run, n.dy),
              [&](auto type) { launch_backward<decltype(type)>(cuda, a, dbias, &sums.parts); });
    if (dgamma || dbeta || dbias) add_partials(run, sums);
    return snug_cuda_done(run, op);
}
