/* SPDX-License-Identifier: Apache-2.0 */
/* The matmuls of linear.c: of F32 tensors, with oneDNN, and of BF16 tensors, with micro-kernels. */
#ifndef SNUG_BACKEND_CPU_LINEAR_H
#define SNUG_BACKEND_CPU_LINEAR_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/vec.h"

/* With more rows oneDNN is as fast as matmul_few_rows(), or faster: on MiniLM's shapes, with AVX-512 and AVX2. */
enum { SNUG_CPU_FEW_ROWS = 8 * VEC_LANES };
/* With more rows matmul_bf16() is as fast as they are, or faster, although it packs the weights: SmolLM2-135M, AMX. */
enum { SNUG_CPU_FEW_LOW_ROWS = 8 };

/* y [m,n] = a [m,k] b + bias, or += if add. b is stored as [n,k] if transpose_b, else as [k,n]; bias may be NULL. */
struct snug_matmul {
    void *y;
    enum snug_dtype y_dtype, b_dtype;
    const void *a, *b;
    const float *bias;
    int64_t m, n, k;
    int64_t lda, ldy; /* elements from a row to the next one */
    bool transpose_b, add;
};

/* The weight-gradient GEMM: dw [n,k] = or += dy [t,n]^T x [t,k]; db [n], if not NULL, = or += the column sums of dy. */
struct snug_weight_gradient {
    float *dw, *db;
    const void *dy, *x;
    int64_t t, n, k;
    int64_t ldx, lddy; /* elements from a row to the next one */
    bool add;
    /* With add: the product is completed before it is added (of bf16, that of the first 1024 rows), so that gradients
     * have the bits of a sum over ranks with a micro-batch each. It needs scratch. */
    bool apart;
};

/* f32: a and y are F32; b is F32, or BF16 and then widened. */
snug_status SNUG_KERNEL(matmul_f32)(struct snug_run *run, const struct snug_matmul *p);
/* What matmul_f32 does with few rows of a; for transpose_b. The other one is for generation, without transpose_b. A y
   in BF16, with weights in BF16, has at most SNUG_CPU_FEW_LOW_ROWS rows. */
snug_status SNUG_KERNEL(matmul_few_rows)(struct snug_run *run, const struct snug_matmul *p);
snug_status SNUG_KERNEL(matmul_few_rows_across)(struct snug_run *run, const struct snug_matmul *p);
snug_status SNUG_KERNEL(matmul_bf16)(struct snug_run *run, const struct snug_matmul *p);
snug_status SNUG_KERNEL(weight_gradient_f32)(struct snug_run *run, const struct snug_weight_gradient *p);
snug_status SNUG_KERNEL(weight_gradient_bf16)(struct snug_run *run, const struct snug_weight_gradient *p);

/* Bytes of scratch; weight_gradient_f32 needs it for `apart` alone. */
int64_t SNUG_KERNEL(weight_gradient_f32_workspace)(int64_t n, int64_t k, int threads);
int64_t SNUG_KERNEL(matmul_f32_workspace)(int64_t n, int64_t k, bool transpose_b, enum snug_dtype b, int threads);
int64_t SNUG_KERNEL(matmul_bf16_workspace)(int64_t n, int64_t k);
int64_t SNUG_KERNEL(weight_gradient_bf16_workspace)(int64_t t, int64_t n, int64_t k);

#endif
