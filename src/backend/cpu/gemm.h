/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner kernels of matmuls: the fp32 GEMM of one tile, by oneDNN or our own (gemm_vec.c), and the bf16
 * micro-kernels, which compute a block of 32 x 32 with the processor's matrix instructions. They start no threads, and
 * allocate nothing for a new number of tokens.
 */
#ifndef SNUG_BACKEND_CPU_GEMM_H
#define SNUG_BACKEND_CPU_GEMM_H

#include "core/context.h"

/* ---- fp32 -------------------------------------------------------------------------------------------------------- */

/* Calls what a first matmul would otherwise initialise: oneDNN generates kernels, and allocates each thread's buffer.
 */
snug_status snug_gemm_prepare(snug_context *ctx, int threads);

/* Each thread of a team calls this before snug_gemm_f32(): oneDNN then uses the calling thread only. Without it, oneDNN
   would start threads in a team of one, which is not an active parallel region. */
void snug_gemm_one_thread(void);

/* c [m,n] = a b + beta c, beta 0 or 1, row-major; transpose_a: a is stored as [k,m], transpose_b: b is stored as [n,k];
   ld*: leading dimensions in elements; k > 0. False if oneDNN rejected the call. */
bool snug_gemm_f32(float *c, int64_t ldc, const float *a, int64_t lda, bool transpose_a, const float *b, int64_t ldb,
                   bool transpose_b, int64_t m, int64_t n, int64_t k, float beta);

/* The error, if a call was rejected. */
snug_status snug_gemm_result(snug_context *ctx, bool refused);

/* Bytes of the buffers into which each thread packs operands, and of what is generated later unless prepared. */
int64_t snug_gemm_library(int threads, bool prepared);

/* "oneDNN 3.1.1" */
void snug_gemm_describe(char *text, size_t size);

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

#define SNUG_BLOCK 32
#define SNUG_BLOCK_SIZE (SNUG_BLOCK * SNUG_BLOCK)

/*
 * c [32,32] F32 = a b, or += if add, summed over steps of 32. a: row r of step s begins at a + s * a_step + r * lda.
 * b: step s is packed at b + s * SNUG_BLOCK_SIZE as [2 halves of the columns][16 pairs of rows][16 columns][2 rows],
 * the order that AMX, AVX512-BF16 and BFDOT multiply in.
 */
typedef void snug_microkernel_fn(float *c, int64_t ldc, const uint16_t *a, int64_t lda, int64_t a_step,
                                 const uint16_t *b, int64_t steps, bool add);

/* That of aarch64, in a file of its own for the compiler's sake (gemm_bfdot.c). */
snug_microkernel_fn snug_bfdot_block;

struct snug_microkernel {
    const char *name; /* "amx", "avx512bf16", "bfdot" */
    snug_microkernel_fn *run;
    void (*begin)(void), (*end)(void); /* each thread calls them around its blocks */
};

/* The micro-kernel number index of those that this machine can run, fastest first; NULL after the last. */
const struct snug_microkernel *snug_microkernel(size_t index);

#endif
