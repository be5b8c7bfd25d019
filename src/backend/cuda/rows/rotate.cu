/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: see struct snug_rotation. A block has some rows, and computes their cosines and sines once for all
   heads. */
#include "backend/cuda/rows/rotation.cuh"

enum { THREADS = 256, ROWS = 8 }; /* rows of a block */

struct rotate {
    const void *from;
    void *to;
    struct snug_cuda_batch batch;
    int64_t cols, fixed;
    int heads, head_dim;
    struct row_tokens tokens;
    bool back;
    struct snug_rotation rotation;
};

/* W: neighbours are rotated one pair at a time. */
template <typename T, int W> static __global__ void __launch_bounds__(THREADS) rotate_kernel(const struct rotate a) {
    __shared__ float cosines[ROWS * SNUG_ROTATION_PAIRS_MOST],
        sines[ROWS * SNUG_ROTATION_PAIRS_MOST]; /* [ROWS,pairs] */
    const int pairs = a.rotation.pairs;
    const int64_t first = (int64_t)blockIdx.x * ROWS, left = live_rows(a.batch.step, a.tokens.extent, a.fixed) - first;
    const int rows = left < ROWS ? (int)left : ROWS;
    for (int i = threadIdx.x; i < rows * pairs; i += THREADS) {
        const int position = a.batch.positions[token_of_row(a.batch, a.tokens, first + i / pairs)];
        const float growth = rotation_growth(a.rotation, position);
        rotation_turn(a.rotation, position, i % pairs, cosines + i, sines + i);
        cosines[i] *= growth;
        sines[i] *= a.back ? -growth : growth;
    }
    __syncthreads();
    const T *from = (const T *)a.from + first * a.cols;
    T *to = (T *)a.to + first * a.cols;
    const int pieces = a.heads * pairs / W;
    for (int i = threadIdx.x; i < rows * pieces; i += THREADS) {
        const int r = i / pieces;
        const struct rotation_piece piece = rotation_piece_of<W>(a.rotation, a.head_dim, i % pieces);
        rotate_piece<W>(to + r * a.cols, from + r * a.cols, piece, cosines + r * pairs, sines + r * pairs, 1);
    }
    for (int64_t i = threadIdx.x; a.to != a.from && i < ROWS * a.cols; i += THREADS) {
        const int64_t c = i % a.cols;
        const bool live = i / a.cols < rows;
        if (live && c < (int64_t)a.heads * a.head_dim && c % a.head_dim < 2 * pairs) continue;
        to[i] = live ? from[i] : from_float<T>(0);
    }
}

extern "C" snug_status snug_cuda_rotate(struct snug_run *run, const struct snug_op *op) {
    const struct snug_rotate &o = op->rotate;
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t rows = snug_cuda_rows(run, o.x);
    const struct rotate a = {.from = snug_run_data(run, o.x),
                             .to = snug_run_data(run, o.y),
                             .batch = cuda->batch,
                             .cols = snug_run_cols(run, o.x),
                             .fixed = rows,
                             .heads = o.heads,
                             .head_dim = o.head_dim,
                             .tokens = row_tokens_of(run, o.x),
                             .back = o.back,
                             .rotation = run->program->rotations[o.rotation]};
    if (rows == 0) return SNUG_OK;
    const unsigned blocks = blocks_for(rows, ROWS);
    with_type(snug_run_dtype(run, o.x), [&](auto type) {
        typedef decltype(type) T;
        constexpr int W = 16 / (int)sizeof(T);
        if (!a.rotation.neighbours && a.rotation.pairs % W == 0 && a.head_dim % W == 0 && a.cols % W == 0)
            rotate_kernel<T, W><<<blocks, THREADS, 0, cuda->stream>>>(a);
        else
            rotate_kernel<T, 1><<<blocks, THREADS, 0, cuda->stream>>>(a);
    });
    return snug_cuda_done(run, op);
}
