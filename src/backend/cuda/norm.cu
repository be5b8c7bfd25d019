/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation: with mean and variance (biased) of a row of s, and x = (s - mean) / sqrt(variance + eps),
 *   y = gamma x + beta.
 * Backward, with g = gamma dy and means over the row:
 *   ds = (g - mean(g) - x mean(g x)) / sqrt(variance + eps),   dgamma = sum of dy x over rows,   dbeta = sum of dy.
 * A warp takes a row. Statistics are those of s as it is stored, so that running again gives the same bits.
 */
#include "backend/cuda/rows.cuh"

snug_status snug_cuda_refuse_row(const struct snug_run *run, const struct snug_op *op, int64_t h) {
    return snug_fail(run->ctx, SNUG_E_UNSUPPORTED,
                     "operation %d: rows of %lld values are wider than the CUDA backend takes (4096, or 2048 where 8 "
                     "does not divide them): use --device cpu",
                     (int)op->kind, (long long)h);
}

/* ---- forward ---- */

struct norm_forward {
    const void *z, *x; /* RESIDUAL_NORM: s = dropout(z) + x; NORM has s in x, and no z */
    void *s, *y;
    const float *gamma, *beta;
    struct snug_cuda_batch batch;
    struct dropout dropout;
    int h, extent;
    int64_t rows, fixed;
    float eps;
};

template <typename T, int W, int V> static __global__ void __launch_bounds__(32 * ROW_WARPS)
norm_forward_kernel(const struct norm_forward a) {
    const int64_t r = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / 32;
    const int h = a.h;
    if (r >= a.rows) return;
    T *s = (T *)a.s + r * h, *y = (T *)a.y + r * h;
    if (r >= live_rows(a.batch.step, a.extent, a.fixed)) {
        if (a.z) zero_row<W, V>(s, h);
        zero_row<W, V>(y, h);
        return;
    }
    row<W, V> sum, gamma, beta;
    load_row(sum, (const T *)a.x + r * h, h);
    load_row(gamma, a.gamma, h);
    load_row(beta, a.beta, h);
    struct dropout_row mask = {};
    if (a.dropout.threshold) mask = dropout_row_of(a.batch, token_of_row(a.batch, a.extent, r));
    if (a.z) {
        row<W, V> z;
        load_row(z, (const T *)a.z + r * h, h);
        each_piece<W, V>(h, [&](int i, int column) {
            drop<W>(z.v[i], a.dropout, mask, column);
#pragma unroll
            for (int k = 0; k < W; k++) sum.v[i][k] += z.v[i][k];
        });
        round_row<W, V, T>(sum);
        store_row(s, sum, h);
    }
    const struct statistics stat = statistics_of(sum, h, a.eps);
    each_piece<W, V>(h, [&](int i, int column) {
#pragma unroll
        for (int k = 0; k < W; k++)
            sum.v[i][k] = (sum.v[i][k] - stat.mean) * stat.rstd * gamma.v[i][k] + beta.v[i][k];
        if (!a.z) drop<W>(sum.v[i], a.dropout, mask, column);
    });
    store_row(y, sum, h);
}

static snug_status forward(struct snug_run *run, const struct snug_op *op, struct norm_forward *a, int32_t y) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    a->y = snug_run_data(run, y);
    a->batch = cuda->batch;
    a->dropout = dropout_of(op);
    a->h = (int)snug_run_cols(run, y);
    a->extent = run->program->tensors[y].extent;
    a->fixed = a->rows = snug_cuda_rows(run, y);
    a->eps = op->eps;
    if (a->rows == 0) return SNUG_OK;
    const bool done = with_row_shape(a->h, [&](auto shape) {
        constexpr int W = decltype(shape)::w, V = decltype(shape)::v;
        const unsigned blocks = blocks_for(a->rows, ROW_WARPS);
        with_type(snug_run_dtype(run, y), [&](auto type) {
            norm_forward_kernel<decltype(type), W, V><<<blocks, 32 * ROW_WARPS, 0, cuda->stream>>>(*a);
        });
    });
    return done ? snug_cuda_done(run, op) : snug_cuda_refuse_row(run, op, a->h);
}

extern "C" snug_status snug_cuda_residual_norm(struct snug_run *run, const struct snug_op *op) {
    struct norm_forward a = {.z = snug_run_data(run, op->in[0]),
                             .x = snug_run_data(run, op->in[1]),
                             .s = snug_run_data(run, op->out[0]),
                             .gamma = (const float *)snug_run_data(run, op->in[2]),
                             .beta = (const float *)snug_run_data(run, op->in[3])};
    return forward(run, op, &a, op->out[1]);
}

extern "C" snug_status snug_cuda_norm(struct snug_run *run, const struct snug_op *op) {
    struct norm_forward a = {.x = snug_run_data(run, op->in[0]),
                             .gamma = (const float *)snug_run_data(run, op->in[1]),
                             .beta = (const float *)snug_run_data(run, op->in[2])};
    return forward(run, op, &a, op->out[0]);
}

/* ---- backward ---- */

template <typename T, int W, int V> static __global__ void __launch_bounds__(32 * ROW_WARPS)
norm_backward_kernel(const struct norm_backward a) {
    extern __shared__ float shared[]; /* dgamma, dbeta of the block */
    const int h = a.h, warp = threadIdx.x / 32;
    const int64_t live = live_rows(a.batch.step, a.extent, a.fixed), warps = (int64_t)gridDim.x * ROW_WARPS;
    row<W, V> gamma, dgamma, dbeta;
    load_row(gamma, a.gamma, h);
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int k = 0; k < W; k++) dgamma.v[i][k] = dbeta.v[i][k] = 0;

    for (int64_t r = (int64_t)blockIdx.x * ROW_WARPS + warp; r < a.rows; r += warps) {
        T *ds = (T *)a.ds + r * h, *dz = a.dz ? (T *)a.dz + r * h : NULL;
        if (r >= live) {
            zero_row<W, V>(ds, h);
            if (dz) zero_row<W, V>(dz, h);
            continue;
        }
        row<W, V> s, dy;
        struct dropout_row mask = {};
        load_row(s, (const T *)a.s + r * h, h);
        load_row(dy, (const T *)a.dy + r * h, h);
        if (a.dropout.threshold) mask = dropout_row_of(a.batch, token_of_row(a.batch, a.extent, r));
        const struct statistics stat = statistics_of(s, h, a.eps);
        float g = 0, gx = 0;
        each_piece<W, V>(h, [&](int i, int column) {
            if (a.on_dy) drop<W>(dy.v[i], a.dropout, mask, column);
#pragma unroll
            for (int k = 0; k < W; k++) {
                const float x = (s.v[i][k] - stat.mean) * stat.rstd, d = dy.v[i][k];
                dgamma.v[i][k] += d * x;
                dbeta.v[i][k] += d;
                s.v[i][k] = x;
                dy.v[i][k] = d * gamma.v[i][k];
                g += dy.v[i][k];
                gx += dy.v[i][k] * x;
            }
        });
        g = warp_sum(g) / (float)h;
        gx = warp_sum(gx) / (float)h;
        each_piece<W, V>(h, [&](int i, int column) {
#pragma unroll
            for (int k = 0; k < W; k++) dy.v[i][k] = stat.rstd * (dy.v[i][k] - g - s.v[i][k] * gx);
            store<W>(ds + column, dy.v[i]);
            if (!dz) return;
#pragma unroll
            for (int k = 0; k < W; k++) dy.v[i][k] = to_float(from_float<T>(dy.v[i][k]));
            drop<W>(dy.v[i], a.dropout, mask, column);
            store<W>(dz + column, dy.v[i]);
        });
    }
    for (int turn = 0; turn < ROW_WARPS; turn++) { /* warp by warp: a fixed order */
        if (turn == warp)
            each_piece<W, V>(h, [&](int i, int column) {
#pragma unroll
                for (int k = 0; k < W; k++) {
                    float *to = shared + column + k;
                    to[0] = turn ? to[0] + dgamma.v[i][k] : dgamma.v[i][k];
                    to[h] = turn ? to[h] + dbeta.v[i][k] : dbeta.v[i][k];
                }
            });
        __syncthreads();
    }
    for (int i = threadIdx.x; i < 2 * h; i += blockDim.x) a.partial[(int64_t)blockIdx.x * 2 * h + i] = shared[i];
}

/* Column sums of partial: 32 columns a block, 8 threads each over a part of the rows. */
static __global__ void add_partials_kernel(float *gradient, const float *partial, int64_t parts, int64_t stride,
                                           int64_t n, bool overwrite) {
    __shared__ float sums[8][33];
    const int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x;
    const int64_t each = (parts + 7) / 8, begin = threadIdx.y * each, end = begin + each < parts ? begin + each : parts;
    float sum = 0;
    if (column < n)
        for (int64_t p = begin; p < end; p++) sum += partial[p * stride + column];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || column >= n) return;
    sum = 0;
    for (int i = 0; i < 8; i++) sum += sums[i][threadIdx.x];
    gradient[column] = overwrite ? sum : gradient[column] + sum;
}

void snug_cuda_add_partials(const struct snug_run *run, float *gradient, const float *partial, int64_t parts,
                            int64_t stride, int64_t n, bool overwrite) {
    add_partials_kernel<<<blocks_for(n, 32), dim3(32, 8), 0, snug_cuda_of(run)->stream>>>(gradient, partial, parts,
                                                                                         stride, n, overwrite);
}

snug_status snug_cuda_norm_backward_rows(const struct snug_run *run, const struct snug_op *op,
                                         struct norm_backward *a, float *dgamma, float *dbeta) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const bool overwrite = snug_run_overwrites(run, op);
    a->dy = snug_run_data(run, op->in[0]);
    a->s = snug_run_data(run, op->in[1]);
    a->gamma = (const float *)snug_run_data(run, op->in[2]);
    a->partial = (float *)run->workspace;
    a->batch = cuda->batch;
    a->dropout = dropout_of(op);
    a->h = (int)snug_run_cols(run, op->in[0]);
    a->extent = run->program->tensors[op->in[0]].extent;
    a->fixed = a->rows = snug_cuda_rows(run, op->in[0]);
    a->eps = op->eps;
    const int64_t blocks = norm_backward_blocks(a->rows);
    bool done = true;
    if (blocks > 0)
        done = with_row_shape(a->h, [&](auto shape) {
            constexpr int W = decltype(shape)::w, V = decltype(shape)::v;
            const size_t shared = 2 * sizeof(float) * (size_t)a->h;
            with_type(snug_run_dtype(run, op->in[0]), [&](auto type) {
                norm_backward_kernel<decltype(type), W, V><<<(unsigned)blocks, 32 * ROW_WARPS, shared, cuda->stream>>>(*a);
            });
        });
    if (!done) return snug_cuda_refuse_row(run, op, a->h);
    snug_cuda_add_partials(run, dgamma, a->partial, blocks, 2 * a->h, a->h, overwrite);
    snug_cuda_add_partials(run, dbeta, a->partial + a->h, blocks, 2 * a->h, a->h, overwrite);
    return snug_cuda_done(run, op);
}

extern "C" int64_t snug_cuda_norm_workspace(const struct snug_program *program, const struct snug_op *op) {
    return 256 * 2 * program->tensors[op->in[0]].cols * (int64_t)sizeof(float);
}

extern "C" snug_status snug_cuda_norm_backward(struct snug_run *run, const struct snug_op *op) {
    struct norm_backward a = {.ds = snug_run_data(run, op->out[0]), .dz = snug_run_data(run, op->out[1])};
    return snug_cuda_norm_backward_rows(run, op, &a, (float *)snug_run_data(run, op->out[2]),
                                        (float *)snug_run_data(run, op->out[3]));
}
