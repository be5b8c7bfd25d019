/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary positions: channels c and c + d/2 of a head of q or k, at position i of its sequence, are rotated by the angle
 * i theta^(-2c/d). q and k are rotated in a copy of qkv that attention reads, and their gradients are rotated back in
 * place. A block has some rows, and computes their cosines and sines once for all heads: the angles in fp64, so that
 * even those of distant positions have fp32's precision.
 */
#include "backend/cuda/attention/attention_operands.cuh"

enum { THREADS = 256, ROWS = 8, MOST = SNUG_CUDA_HEAD_MOST / 2 }; /* rows of a block; angles of a row */

struct rotation {
    void *to;
    const void *from;
    const int32_t *offsets;
    int64_t row;     /* columns of a row */
    int heads, half; /* heads of q and k */
    double frequencies[MOST];
};

/* BACK: in place; v is not changed. */
template <typename T, int W, bool BACK>
static __global__ void __launch_bounds__(THREADS) rotate_kernel(const struct rotation a) {
    __shared__ float cosines[ROWS][MOST], sines[ROWS][MOST];
    const int begin = a.offsets[blockIdx.y], length = a.offsets[blockIdx.y + 1] - begin, row0 = blockIdx.x * ROWS;
    const int rows = length - row0 < ROWS ? length - row0 : ROWS;
    if (rows <= 0) return;
    for (int i = threadIdx.x; i < rows * a.half; i += THREADS) {
        const int r = i / a.half, c = i % a.half;
        const double turn = 6.283185307179586, angle = (row0 + r) * a.frequencies[c];
        float sine;
        sincosf((float)(angle - turn * rint(angle / turn)), &sine, &cosines[r][c]);
        sines[r][c] = BACK ? -sine : sine;
    }
    __syncthreads();
    const T *from = (const T *)a.from + (begin + row0) * a.row;
    T *to = (T *)a.to + (begin + row0) * a.row;
    const int rotated = a.heads * a.half / W, pieces = BACK ? rotated : (int)a.row / W - rotated;
    for (int i = threadIdx.x; i < rows * pieces; i += THREADS) {
        const int r = i / pieces, piece = i % pieces;
        float x[W], y[W], left[W], right[W];
        if (!BACK && piece >= rotated) {
            const int64_t at = r * a.row + (piece + rotated) * W;
            load<W>(x, from + at);
            store<W>(to + at, x);
            continue;
        }
        const int c = piece * W % a.half;
        const int64_t at = r * a.row + piece * W / a.half * 2 * a.half + c;
        load<W>(x, from + at);
        load<W>(y, from + at + a.half);
#pragma unroll
        for (int k = 0; k < W; k++) {
            left[k] = x[k] * cosines[r][c + k] - y[k] * sines[r][c + k];
            right[k] = y[k] * cosines[r][c + k] + x[k] * sines[r][c + k];
        }
        store<W>(to + at, left);
        store<W>(to + at + a.half, right);
    }
}

/* Heads with more channels than this supports are rejected afterwards, by attention itself. */
template <bool BACK>
static void launch(const struct snug_run *run, void *to, int32_t qkv, const struct snug_attention_form *form) {
    const int d = form->head_dim;
    struct rotation a = {.to = to,
                         .from = snug_run_data(run, qkv),
                         .offsets = snug_cuda_of(run)->batch.offsets,
                         .row = snug_run_cols(run, qkv),
                         .heads = form->heads + form->kv_heads,
                         .half = d / 2};
    if (a.half > MOST || run->batch->sequences == 0) return;
    for (int c = 0; c < a.half; c++) a.frequencies[c] = pow(form->rope_theta, -2.0 * c / (double)d);
    const dim3 blocks(blocks_for(run->program->longest, ROWS), (unsigned)run->batch->sequences);
    with_type(snug_run_dtype(run, qkv), [&](auto type) {
        typedef decltype(type) T;
        constexpr int W = 16 / (int)sizeof(T);
        if (a.half % W == 0)
            rotate_kernel<T, W, BACK><<<blocks, THREADS, 0, snug_cuda_of(run)->stream>>>(a);
        else
            rotate_kernel<T, 1, BACK><<<blocks, THREADS, 0, snug_cuda_of(run)->stream>>>(a);
    });
}

void snug_cuda_rotate(const struct snug_run *run, void *to, int32_t qkv, const struct snug_attention_form *form) {
    launch<false>(run, to, qkv, form);
}

void snug_cuda_rotate_back(const struct snug_run *run, int32_t dqkv, const struct snug_attention_form *form) {
    launch<true>(run, snug_run_data(run, dqkv), dqkv, form);
}
