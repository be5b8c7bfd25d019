/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of h values. The threads of a block share a row, and process R rows at a time. Per-column values (gamma, sums
 * over rows) and the rows themselves stay in registers, so a row is read once. A thread holds V pieces of W consecutive
 * values, piece i being number threadIdx.x + i * blockDim.x of the row.
 */
#ifndef SNUG_BACKEND_CUDA_ROWS_ROWS_CUH
#define SNUG_BACKEND_CUDA_ROWS_ROWS_CUH

#include "backend/cuda/device.cuh"

/* Threads of a block, at most; and values that each holds of a row that is not whole vectors of 16 bytes. */
enum { ROW_THREADS = 256, ROW_VALUES = 8 };

/* Values of the widest row that a block's registers hold; half as many where a row is not whole vectors. */
#ifndef SNUG_CUDA_ROW_MOST /* the emulator's is smaller: its rows are also wider */
#define SNUG_CUDA_ROW_MOST 4096
#endif

template <int W, int V> struct row { float v[V][W]; };

template <int W, int V, typename F> static __device__ __forceinline__ void each_piece(int h, F f) {
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int column = (int)(threadIdx.x + i * blockDim.x) * W;
        if (column < h) f(i, column);
    }
}

template <int W, int V> static __device__ __forceinline__ void clear_row(row<W, V> &r) {
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int k = 0; k < W; k++) r.v[i][k] = 0;
}

/* A row as stored, while it is loaded. */
template <typename T, int W, int V> struct raw_row { typename packed<T, W>::type v[V]; };

/* Starts to load a row; zeros if it does not exist, and after its end. */
template <typename T, int W, int V>
static __device__ __forceinline__ void fetch_row(raw_row<T, W, V> &r, const T *from, int h, bool there) {
#pragma unroll
    for (int i = 0; i < V; i++) r.v[i] = {};
    if (!there) return;
    each_piece<W, V>(h, [&](int i, int column) { r.v[i] = packed<T, W>::load(from + column); });
}

template <typename T, int W, int V>
static __device__ __forceinline__ void open_row(row<W, V> &r, const raw_row<T, W, V> &raw) {
#pragma unroll
    for (int i = 0; i < V; i++) packed<T, W>::open(r.v[i], raw.v[i]);
}

/* Zeros after the end of the row. */
template <int W, int V, typename T>
static __device__ __forceinline__ void load_row(row<W, V> &r, const T *from, int h) {
    clear_row(r);
    each_piece<W, V>(h, [&](int i, int column) { load<W>(r.v[i], from + column); });
}

/* load_row(), or zeros if from is NULL. */
template <int W, int V, typename T>
static __device__ __forceinline__ void load_row_or_zeros(row<W, V> &r, const T *from, int h) {
    if (from)
        load_row(r, from, h);
    else
        clear_row(r);
}

template <int W, int V, typename T> static __device__ __forceinline__ void store_row(T *to, const row<W, V> &r, int h) {
    each_piece<W, V>(h, [&](int i, int column) { store<W>(to + column, r.v[i]); });
}

/* Rounds a row to the type that is stored, and stores it unless to is NULL. */
template <int W, int V, typename T> static __device__ __forceinline__ void round_row(T *to, row<W, V> &r, int h) {
    each_piece<W, V>(h, [&](int i, int column) {
        const typename packed<T, W>::type rounded = packed<T, W>::close(r.v[i]);
        if (to) packed<T, W>::store(to + column, rounded);
        packed<T, W>::open(r.v[i], rounded);
    });
}

template <int W, int V>
static __device__ __forceinline__ void drop_row(row<W, V> &r, const struct dropout &d, const struct dropout_row &mask,
                                                int h) {
    each_piece<W, V>(h, [&](int i, int column) { drop<W>(r.v[i], d, mask, column); });
}

/* ---- sums over a block ---- */

/* One sum of each warp. */
struct warp_sums {
    float4 of[ROW_THREADS / 128];
};

static __device__ __forceinline__ void clear_sums(struct warp_sums *sums, int count) {
    for (int i = (int)threadIdx.x; i < count * ROW_THREADS / 32; i += (int)blockDim.x)
        reinterpret_cast<float *>(sums)[i] = 0;
    __syncthreads();
}

/* N sums over a warp; lane gets sum number lane * N / 32. In every step a lane exchanges half of its values and keeps
   the other half, so this takes little longer than one sum. N is a power of 2. */
template <int N> static __device__ __forceinline__ float warp_sums_of(float (&value)[N]) {
    const int lane = threadIdx.x % 32;
    int step = 16;
#pragma unroll
    for (int left = N; left > 1; left /= 2, step /= 2) {
        const bool upper = lane & step;
#pragma unroll
        for (int k = 0; k < left / 2; k++) {
            const float keep = upper ? value[k + left / 2] : value[k], give = upper ? value[k] : value[k + left / 2];
            value[k] = keep + __shfl_xor_sync(FULL_WARP, give, step);
        }
    }
#pragma unroll
    for (int rest = 16 / N; rest > 0; rest /= 2) value[0] += __shfl_xor_sync(FULL_WARP, value[0], rest);
    return value[0];
}

/* N sums over the block, in a fixed order; every thread receives them. The next call must use another buffer, so that
   one barrier is enough. */
template <int N> static __device__ __forceinline__ void block_sums(float (&value)[N], struct warp_sums *buffer) {
    constexpr int M = N <= 1 ? 1 : N <= 2 ? 2 : N <= 4 ? 4 : 8, LANES = 32 / M;
    const int lane = threadIdx.x % 32;
    float all[M] = {};
#pragma unroll
    for (int k = 0; k < N; k++) all[k] = value[k];
    const float own = warp_sums_of<M>(all);
    if (lane % LANES == 0 && lane / LANES < N)
        reinterpret_cast<float *>(buffer[lane / LANES].of)[threadIdx.x / 32] = own;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float4 a = buffer[k].of[0];
        value[k] = (a.x + a.y) + (a.z + a.w);
    }
    if (blockDim.x <= 128) return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float4 b = buffer[k].of[1];
        value[k] += (b.x + b.y) + (b.z + b.w);
    }
}

/* Subtracts the means from rows of h values; RMSNorm's are 0. There must be a barrier in any case, since the caller
   uses another buffer, which the threads read until here. */
template <int W, int V, int R>
static __device__ __forceinline__ void centre_rows(row<W, V> (&x)[R], int h, const struct snug_norm_form &form,
                                                   struct warp_sums *buffer) {
    if (form.rms) {
        __syncthreads();
        return;
    }
    float sum[R] = {};
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int i = 0; i < V; i++)
#pragma unroll
            for (int k = 0; k < W; k++) sum[r] += x[r].v[i][k];
    block_sums(sum, buffer);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float mean = sum[r] / (float)h;
        each_piece<W, V>(h, [&](int i, int) {
#pragma unroll
            for (int k = 0; k < W; k++) x[r].v[i][k] -= mean;
        });
    }
}

/* x becomes norm(x). Written with explicit rounding, so that the compiler cannot contract it in one kernel only: a
   recomputed norm has the same bits. buffer has 2 R sums. */
template <int W, int V, int R>
static __device__ __forceinline__ void normalise_rows(row<W, V> (&x)[R], const row<W, V> &gamma, const row<W, V> &beta,
                                                      int h, const struct snug_norm_form &form,
                                                      struct warp_sums *buffer) {
    float squares[R] = {};
    centre_rows<W, V, R>(x, h, form, buffer);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int i = 0; i < V; i++)
#pragma unroll
            for (int k = 0; k < W; k++) squares[r] = fmaf(x[r].v[i][k], x[r].v[i][k], squares[r]);
    block_sums(squares, buffer + R);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float rstd = rsqrtf(squares[r] / (float)h + form.eps);
#pragma unroll
        for (int i = 0; i < V; i++)
#pragma unroll
            for (int k = 0; k < W; k++) x[r].v[i][k] = fmaf(x[r].v[i][k] * rstd, gamma.v[i][k], beta.v[i][k]);
    }
}

/* ---- launches ---- */

/* W, V, and rows that a block processes at a time. */
template <int W, int V> struct row_shape { static constexpr int w = W, v = V, r = V == 1 && W > 1 ? 2 : 1; };

static inline unsigned row_threads(int64_t h, int w, int v) {
    return (unsigned)((h + w * v * 32 - 1) / (w * v * 32) * 32);
}

/* Calls launch with the shape for a row of h values of type T, with loads of 16 bytes if possible; false if no shape is
   large enough. */
template <typename T, typename F> static bool with_row_shape(int64_t h, F launch) {
    constexpr int W = 16 / (int)sizeof(T);
    if (h > (h % W == 0 ? SNUG_CUDA_ROW_MOST : SNUG_CUDA_ROW_MOST / 2)) return false;
    if (h % W != 0) {
        h <= ROW_THREADS ? launch(row_shape<1, 1>()) : launch(row_shape<1, ROW_VALUES>());
    } else if (h <= ROW_THREADS * W) {
        launch(row_shape<W, 1>());
    } else if (h <= 2 * ROW_THREADS * W) {
        launch(row_shape<W, 2>());
    } else {
        launch(row_shape < W, sizeof(T) == 4 ? 4 : 2 > ());
    }
    return true;
}

/* Blocks for `rows` rows, of which a block processes `each` at a time: as many as run at once, given the blocks of
   ROW_THREADS threads per multiprocessor, with the same number of rows each. */
static inline unsigned row_blocks(const struct snug_cuda *cuda, int64_t rows, int each, unsigned threads,
                                  int resident) {
    const int64_t turns = (rows + each - 1) / each;
    const int64_t most = (int64_t)cuda->multiprocessors * (resident * ROW_THREADS / (int)threads);
    return turns > 0 ? blocks_for(turns, (turns + most - 1) / most) : 0;
}

#endif
