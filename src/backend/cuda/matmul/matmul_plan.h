/* SPDX-License-Identifier: Apache-2.0 */
/* A matmul as cuBLASLt describes it, and the choice of its algorithm. */
#ifndef SNUG_BACKEND_CUDA_MATMUL_MATMUL_PLAN_H
#define SNUG_BACKEND_CUDA_MATMUL_MATMUL_PLAN_H

#include <cublasLt.h>

#include "backend/cuda/matmul/matmul.h"

/* The key of a choice of algorithm. Compared byte by byte. */
struct snug_cuda_matmul_shape {
    int64_t m, n, k, a_stride, b_stride, c_stride;
    int32_t type, c_type; /* enum snug_dtype */
    uint8_t transpose_a, transpose_b, bias, tf32;
    uint8_t alignment; /* log2 of the alignment of all addresses, in bytes */
    uint8_t unused[3];
};

struct snug_cuda_matmul_plan {
    struct snug_cuda_matmul_shape shape;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
};

/* One launch of p. */
cublasStatus_t snug_cuda_launch_matmul(const struct snug_cuda *cuda, struct snug_cuda_matmul_plan *p,
                                       const struct snug_cuda_matmul *m, const cublasLtMatmulAlgo_t *algorithm,
                                       size_t bytes, void *workspace);

/* An algorithm that was the fastest, in this run or in an earlier one. */
struct snug_cuda_algorithm {
    struct snug_cuda_matmul_shape shape;
    cublasLtMatmulAlgo_t algorithm;
    int64_t workspace;
};

/* The heuristic's first choice for p; while the backend autotunes, the stored choice, or the fastest by measurement. */
cublasStatus_t snug_cuda_choose_algorithm(struct snug_run *run, struct snug_cuda_matmul_plan *p,
                                          const struct snug_cuda_matmul *m, void *workspace);

#endif
