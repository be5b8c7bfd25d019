/* SPDX-License-Identifier: Apache-2.0 */
/* Small matmuls of attention, in scratch. An element of the result has the same bits whatever the number of rows and
   columns. */
#ifndef SNUG_BACKEND_CPU_TILES_H
#define SNUG_BACKEND_CPU_TILES_H

#include "backend/cpu/vec.h"

enum { TILE_ROWS = VEC_LANES == 16 ? 8 : 4, TILE_VECS = 2, SNUG_CPU_TILE_ROWS = 8 };

/* Tile of c, rows x (vecs vectors): c = a b, or += . */
static inline __attribute__((always_inline)) void tile(float *c, int64_t c_row, const float *a, int64_t a_row,
                                                       int64_t a_col, const float *b, int64_t b_row, int64_t depth,
                                                       bool add, const int vecs) {
    vec sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) sum[i][v] = add ? vec_read(c + i * c_row + v * VEC_LANES) : vec_all(0);
    for (int64_t k = 0; k < depth; k++) {
        vec right[TILE_VECS];
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) right[v] = vec_read(b + k * b_row + v * VEC_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < TILE_ROWS; i++) {
            vec left = vec_all(a[i * a_row + k * a_col]);
#pragma GCC unroll 2
            for (int v = 0; v < vecs; v++) sum[i][v] = vec_fma(left, right[v], sum[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) vec_write(c + i * c_row + v * VEC_LANES, sum[i][v]);
}

/* c [m, n] = a b, or += : a [m, depth] has element (i, k) at a[i * a_row + k * a_col]; b [depth, n]. m is rounded up to
   a multiple of SNUG_CPU_TILE_ROWS, n is one of VEC_LANES. */
static inline void matmul(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_col, const float *b,
                          int64_t b_row, int64_t m, int64_t n, int64_t depth, bool add) {
    int64_t j = 0;
    for (; j + TILE_VECS * VEC_LANES <= n; j += TILE_VECS * VEC_LANES)
        for (int64_t i = 0; i < m; i += TILE_ROWS)
            tile(c + i * c_row + j, c_row, a + i * a_row, a_row, a_col, b + j, b_row, depth, add, TILE_VECS);
    for (; j < n; j += VEC_LANES)
        for (int64_t i = 0; i < m; i += TILE_ROWS)
            tile(c + i * c_row + j, c_row, a + i * a_row, a_row, a_col, b + j, b_row, depth, add, 1);
}

#endif
