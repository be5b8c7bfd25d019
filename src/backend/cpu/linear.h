/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of linear.c: products of F32 tensors, by oneDNN, and of BF16 ones, by blocks. */
#ifndef SNUG_BACKEND_CPU_LINEAR_H
#define SNUG_BACKEND_CPU_LINEAR_H

#include "backend/cpu/kernels.h"

/* y [m,n] = a [m,k] b + bias, or += if add. b lies as [n,k] if turn_b, else as [k,n]; bias may be NULL. */
struct snug_rows_product {
    void *y;
    enum snug_dtype y_dtype, b_dtype;
    const void *a, *b;
    const float *bias;
    int64_t m, n, k;
    bool turn_b, add;
};

/* dw [n,k] = or += dy [t,n]^T x [t,k]; db [n], if not NULL, the column sums of dy likewise. */
struct snug_weight_product {
    float *dw, *db;
    const void *dy, *x;
    int64_t t, n, k;
    bool add;
};

/* a and y are F32; b is F32, or BF16 and then widened. */
snug_status SNUG_KERNEL(rows_product_f32)(struct snug_run *run, const struct snug_rows_product *p);
snug_status SNUG_KERNEL(rows_product_bf16)(struct snug_run *run, const struct snug_rows_product *p);
snug_status SNUG_KERNEL(weight_product_f32)(struct snug_run *run, const struct snug_weight_product *p);
snug_status SNUG_KERNEL(weight_product_bf16)(struct snug_run *run, const struct snug_weight_product *p);

/* Bytes of scratch; weight_product_f32 needs none. */
int64_t SNUG_KERNEL(rows_product_f32_workspace)(int64_t n, int64_t k, bool turn_b, enum snug_dtype b, int threads);
int64_t SNUG_KERNEL(rows_product_bf16_workspace)(int64_t n, int64_t k);
int64_t SNUG_KERNEL(weight_product_bf16_workspace)(int64_t t, int64_t n, int64_t k);

#endif
