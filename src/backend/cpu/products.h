/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What products are made of: oneDNN's fp32 product of one tile, and the bf16 product of one 32 x 32 block in the
 * processor's own instructions. Neither starts threads, and neither builds anything for a new number of tokens.
 */
#ifndef SNUG_BACKEND_CPU_PRODUCTS_H
#define SNUG_BACKEND_CPU_PRODUCTS_H

#include "core/context.h"

/* ---- fp32 -------------------------------------------------------------------------------------------------------- */

/* To be called first by each thread of a team that calls snug_product_f32(): oneDNN then works in that thread alone,
   in a team of one too, which it would not take for a parallel region. */
void snug_products_alone(void);

/* c [m,n] = a b + beta c, row-major; turn_a: a lies as [k,m], turn_b: b lies as [n,k]; ld*: elements from row to row.
   False if oneDNN refused. */
bool snug_product_f32(float *c, int64_t ldc, const float *a, int64_t lda, bool turn_a, const float *b, int64_t ldb,
                      bool turn_b, int64_t m, int64_t n, int64_t k, float beta);

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

#define SNUG_BLOCK 32
#define SNUG_BLOCK_SIZE (SNUG_BLOCK * SNUG_BLOCK)

/*
 * c [32,32] F32 = a b, or += if add, summed over steps of 32. a: row r of step s begins at a + s * a_step + r * lda.
 * b: step s lies packed at b + s * SNUG_BLOCK_SIZE as [2 halves of the columns][16 pairs of rows][16 columns][2 rows],
 * the order that AMX and AVX512-BF16 multiply in.
 */
typedef void snug_block_fn(float *c, int64_t ldc, const uint16_t *a, int64_t lda, int64_t a_step, const uint16_t *b,
                           int64_t steps, bool add);

struct snug_block_kernel {
    const char *name; /* "amx", "avx512bf16" */
    snug_block_fn *run;
    void (*begin)(void), (*end)(void); /* around the blocks that one thread runs */
};

/* Kernel number index of those that this machine can run, best first; NULL past the last. */
const struct snug_block_kernel *snug_block_kernel(size_t index);

#endif
