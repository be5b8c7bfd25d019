/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions (struct snug_rotation) of pieces of W values of a head and as many of their pairs. */
#ifndef SNUG_BACKEND_CUDA_ROWS_ROTATION_CUH
#define SNUG_BACKEND_CUDA_ROWS_ROTATION_CUH

#include "backend/cuda/rows/rows.cuh"

/* What the factor grows by at a position. */
static __device__ __forceinline__ float rotation_growth(const struct snug_rotation &r, int position) {
    const float grown = r.growth == 0 ? 0 : logf((float)(1 + position / r.growth_from));
    return 1 + (float)r.growth * grown;
}

/* The cosine and sine of pair c, times the factor: the angle in fp64, so that even those of distant positions have
   fp32's precision. */
static __device__ __forceinline__ void rotation_turn(const struct snug_rotation &r, int position, int c, float *cosine,
                                                     float *sine) {
    const double turn = 6.283185307179586, angle = position * r.frequencies[c];
    const float factor = (float)r.factor;
    float s, t;
    sincosf((float)(angle - turn * rint(angle / turn)), &s, &t);
    *cosine = t * factor;
    *sine = s * factor;
}

/* Where a piece and its pairs are in a row, from the first head on, and its first pair. W > 1: pairs are halves. */
struct rotation_piece {
    int64_t first, second;
    int pair;
};

template <int W>
static __device__ __forceinline__ struct rotation_piece rotation_piece_of(const struct snug_rotation &r, int head_dim,
                                                                          int number) {
    const int c = number * W % r.pairs, head = number * W / r.pairs;
    const bool neighbours = W == 1 && r.neighbours;
    const int64_t first = (int64_t)head * head_dim + (neighbours ? 2 * c : c);
    return {first, first + (neighbours ? 1 : r.pairs), c};
}

/* cosines, sines: of the row's position; both times grown. */
template <int W, typename T>
static __device__ __forceinline__ void rotate_piece(T *to, const T *from, const struct rotation_piece &piece,
                                                    const float *cosines, const float *sines, float grown) {
    float x[W], y[W], lower[W], upper[W];
    load<W>(x, from + piece.first);
    load<W>(y, from + piece.second);
#pragma unroll
    for (int k = 0; k < W; k++) {
        const float cosine = cosines[piece.pair + k] * grown, sine = sines[piece.pair + k] * grown;
        lower[k] = x[k] * cosine - y[k] * sine;
        upper[k] = y[k] * cosine + x[k] * sine;
    }
    store<W>(to + piece.first, lower);
    store<W>(to + piece.second, upper);
}

#endif
