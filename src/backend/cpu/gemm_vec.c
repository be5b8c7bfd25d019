/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp32 matmuls of our own, for processors on which oneDNN has no fast one: Debian's oneDNN for aarch64 is built without
 * the Arm Compute Library, and its own kernels there need SVE or are plain C++.
 *
 * Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", doi:10.1145/1356052.1356053: a block of a
 * is packed for the L2 cache, a panel of b for the L1 cache, and the micro-kernel keeps ROWS x COLUMNS sums in
 * registers: with 32 registers of four lanes, 24 sums, 3 vectors of b, 2 of a. Every element of c is summed over the
 * inner dimension in order, DEPTH at a time, whatever its place.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cpu/gemm.h"
#include "backend/cpu/vec.h"
#include "core/min_max.h"

enum { ROWS = 2 * VEC_LANES, VECS = 3, COLUMNS = VECS * VEC_LANES, BLOCK_ROWS = 256, DEPTH = 256 };

/* On the stack of the thread: DEPTH rows of panels of ROWS or COLUMNS elements. */
struct packed {
    float a[BLOCK_ROWS * DEPTH], b[COLUMNS * DEPTH];
};

/* to [depth][width] = count rows of from along the inner dimension, and zeros: element (row, k) is at from[row * ld +
   k] if along, else at from[k * ld + row]. */
static inline __attribute__((always_inline)) void pack(float *to, const float *from, int64_t ld, bool along,
                                                       int64_t count, const int width, int64_t depth) {
    for (int64_t row = 0; row < width; row += VEC_LANES) {
        for (int64_t k = 0; along && k < depth; k += VEC_LANES) {
            vec square[VEC_LANES];
            for (int i = 0; i < VEC_LANES; i++) {
                square[i] = vec_all(0);
                if (row + i < count) square[i] = vec_load(from + (row + i) * ld, SNUG_F32, k, depth);
            }
            vec_transpose(square);
            for (int i = 0; i < VEC_LANES; i++) vec_write(to + (k + i) * width + row, square[i]);
        }
        for (int64_t k = 0; !along && k < depth; k++)
            vec_write(to + k * width + row, row < count ? vec_load(from + k * ld, SNUG_F32, row, count) : vec_all(0));
    }
}

/* c [ROWS, COLUMNS] = a b, or +=, of packed panels. */
static void multiply_panels(float *c, int64_t ldc, const float *a, const float *b, int64_t depth, bool add) {
    vec sum[ROWS][VECS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
        for (int v = 0; v < VECS; v++) sum[i][v] = vec_all(0);
    for (int64_t k = 0; k < depth; k++, a += ROWS, b += COLUMNS) {
        vec left[ROWS / VEC_LANES], right[VECS];
#pragma GCC unroll 2
        for (int i = 0; i < ROWS / VEC_LANES; i++) left[i] = vec_read(a + i * VEC_LANES);
#pragma GCC unroll 3
        for (int v = 0; v < VECS; v++) right[v] = vec_read(b + v * VEC_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
            for (int v = 0; v < VECS; v++)
                sum[i][v] = vec_fma(vec_all(left[i / VEC_LANES][i % VEC_LANES]), right[v], sum[i][v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
        for (int v = 0; v < VECS; v++) {
            float *to = c + i * ldc + v * VEC_LANES;
            vec_write(to, add ? vec_read(to) + sum[i][v] : sum[i][v]);
        }
}

/* A tile at c's end, of fewer rows or columns. */
static void multiply_edge(float *c, int64_t ldc, const float *a, const float *b, int64_t depth, bool add, int64_t rows,
                          int64_t columns) {
    float whole[ROWS * COLUMNS];
    multiply_panels(whole, COLUMNS, a, b, depth, false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const float before = add ? c[i * ldc + j] : 0;
            c[i * ldc + j] = add ? before + whole[i * COLUMNS + j] : whole[i * COLUMNS + j];
        }
}

/* c [m,n] = or += the packed block of a times n columns of b. */
static void multiply_block(struct packed *packed, float *c, int64_t ldc, const float *b, int64_t ldb, bool transpose_b,
                           int64_t m, int64_t n, int64_t depth, bool add) {
    for (int64_t j = 0; j < n; j += COLUMNS) {
        const int64_t columns = snug_min(COLUMNS, n - j);
        if (transpose_b)
            pack(packed->b, b + j * ldb, ldb, true, columns, COLUMNS, depth);
        else
            pack(packed->b, b + j, ldb, false, columns, COLUMNS, depth);
        for (int64_t i = 0; i < m; i += ROWS) {
            const int64_t rows = snug_min(ROWS, m - i);
            const float *a = packed->a + i * DEPTH;
            float *to = c + i * ldc + j;
            if (rows == ROWS && columns == COLUMNS)
                multiply_panels(to, ldc, a, packed->b, depth, add);
            else
                multiply_edge(to, ldc, a, packed->b, depth, add, rows, columns);
        }
    }
}

bool snug_gemm_f32(float *c, int64_t ldc, const float *a, int64_t lda, bool transpose_a, const float *b, int64_t ldb,
                   bool transpose_b, int64_t m, int64_t n, int64_t k, float beta) {
    struct packed packed;
    for (int64_t first = 0; first < m; first += BLOCK_ROWS)
        for (int64_t inner = 0; inner < k; inner += DEPTH) {
            const int64_t rows = snug_min(BLOCK_ROWS, m - first), depth = snug_min(DEPTH, k - inner);
            for (int64_t i = 0; i < rows; i += ROWS) {
                const int64_t at = first + i;
                float *to = packed.a + i * DEPTH;
                if (transpose_a)
                    pack(to, a + inner * lda + at, lda, false, snug_min(ROWS, rows - i), ROWS, depth);
                else
                    pack(to, a + at * lda + inner, lda, true, snug_min(ROWS, rows - i), ROWS, depth);
            }
            multiply_block(&packed, c + first * ldc, ldc, transpose_b ? b + inner : b + inner * ldb, ldb, transpose_b,
                           rows, n, depth, beta != 0 || inner > 0);
        }
    return true;
}

void snug_gemm_one_thread(void) {}

snug_status snug_gemm_result(snug_context *ctx, bool refused) {
    (void)ctx, (void)refused;
    return SNUG_OK;
}

snug_status snug_gemm_prepare(snug_context *ctx, int threads) {
    (void)ctx, (void)threads;
    return SNUG_OK;
}

int64_t snug_gemm_library(int threads, bool prepared) {
    (void)prepared;
    return threads * (int64_t)sizeof(struct packed);
}

void snug_gemm_describe(char *text, size_t size) {
#ifdef VEC_NEON
    snprintf(text, size, "snug's own, with NEON");
#else
    snprintf(text, size, "snug's own, in portable C");
#endif
}
