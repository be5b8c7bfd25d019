/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of h values, one warp each, held in registers: V pieces of W consecutive values a lane, piece i of a lane being
 * number lane + 32 i of the row. What a row needs from memory is read once.
 */
#ifndef SNUG_BACKEND_CUDA_ROWS_CUH
#define SNUG_BACKEND_CUDA_ROWS_CUH

#include "backend/cuda/device.cuh"

enum { ROW_WARPS = 8 };

template <int W, int V> struct row {
    float v[V][W];
};

template <int W, int V, typename F> static __device__ __forceinline__ void each_piece(int h, F f) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int column = (lane + 32 * i) * W;
        if (column < h) f(i, column);
    }
}

template <int W, int V, typename T>
static __device__ __forceinline__ void load_row(row<W, V> &r, const T *from, int h) {
    each_piece<W, V>(h, [&](int i, int column) { load<W>(r.v[i], from + column); });
}

template <int W, int V, typename T>
static __device__ __forceinline__ void store_row(T *to, const row<W, V> &r, int h) {
    each_piece<W, V>(h, [&](int i, int column) { store<W>(to + column, r.v[i]); });
}

template <int W, int V, typename T> static __device__ __forceinline__ void zero_row(T *to, int h) {
    const float zeros[W] = {};
    each_piece<W, V>(h, [&](int, int column) { store<W>(to + column, zeros); });
}

/* As the value will be read again. */
template <int W, int V, typename T> static __device__ __forceinline__ void round_row(row<W, V> &r) {
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int k = 0; k < W; k++) r.v[i][k] = to_float(from_float<T>(r.v[i][k]));
}

struct statistics {
    float mean, rstd;
};

template <int W, int V>
static __device__ __forceinline__ struct statistics statistics_of(const row<W, V> &r, int h, float eps) {
    float sum = 0, squares = 0;
    each_piece<W, V>(h, [&](int i, int) {
#pragma unroll
        for (int k = 0; k < W; k++) sum += r.v[i][k];
    });
    const float mean = warp_sum(sum) / (float)h;
    each_piece<W, V>(h, [&](int i, int) {
#pragma unroll
        for (int k = 0; k < W; k++) squares += (r.v[i][k] - mean) * (r.v[i][k] - mean);
    });
    return {mean, 1 / sqrtf(warp_sum(squares) / (float)h + eps)};
}

template <int W, int V> struct row_shape {
    static constexpr int w = W, v = V;
};

/* Calls launch with the shape that holds a row of h values; false if none does. */
template <typename F> static bool with_row_shape(int64_t h, F launch) {
    if (h % 8 == 0) {
        if (h <= 256) return launch(row_shape<8, 1>()), true;
        if (h <= 512) return launch(row_shape<8, 2>()), true;
        if (h <= 1024) return launch(row_shape<8, 4>()), true;
        if (h <= 2048) return launch(row_shape<8, 8>()), true;
        if (h <= 4096) return launch(row_shape<8, 16>()), true;
        return false;
    }
    if (h <= 256) return launch(row_shape<1, 8>()), true;
    if (h <= 2048) return launch(row_shape<1, 64>()), true;
    return false;
}

snug_status snug_cuda_refuse_row(const struct snug_run *run, const struct snug_op *op, int64_t h);

/* ---- backward, shared by NORM_BACKWARD and EMBED_BACKWARD: partial sums of dgamma and dbeta, one row a block ---- */

/* Their number depends on the rows alone. */
static inline int64_t norm_backward_blocks(int64_t rows) {
    const int64_t blocks = (rows + ROW_WARPS - 1) / ROW_WARPS;
    return blocks < 256 ? blocks : 256;
}

struct norm_backward {
    const void *dy, *s;
    void *ds, *dz;
    const float *gamma;
    float *partial; /* [blocks, 2, h]: dgamma, dbeta */
    struct snug_cuda_batch batch;
    struct dropout dropout;
    bool on_dy; /* dropout's mask is on dy (the embeddings'), not between ds and dz */
    int h, extent;
    int64_t rows, fixed;
    float eps;
};

/* Launches it, and adds the partial sums to dgamma and dbeta. */
snug_status snug_cuda_norm_backward_rows(const struct snug_run *run, const struct snug_op *op,
                                         struct norm_backward *args, float *dgamma, float *dbeta);

#endif
