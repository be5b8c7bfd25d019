/* SPDX-License-Identifier: Apache-2.0 */
/* A product as cuBLASLt sees it, and the choice of its algorithm. */
#ifndef SNUG_BACKEND_CUDA_PRODUCTS_H
#define SNUG_BACKEND_CUDA_PRODUCTS_H

#include <cublasLt.h>

#include "backend/cuda/cuda.h"

/* What an algorithm is chosen for. Compared byte by byte. */
struct snug_cuda_shape {
    int64_t m, n, k, a_stride, c_stride;
    int32_t type, c_type; /* enum snug_dtype */
    uint8_t turn_a, turn_b, bias, tf32;
    uint8_t alignment; /* log2 of the bytes that divide all addresses */
    uint8_t unused[3];
};

struct snug_cuda_product {
    struct snug_cuda_shape shape;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
};

/* One launch of p. */
cublasStatus_t snug_cuda_launch(const struct snug_cuda *cuda, struct snug_cuda_product *p,
                                const struct snug_cuda_matrices *m, const cublasLtMatmulAlgo_t *algorithm, size_t bytes,
                                void *workspace);

/* The choices that were made by trying, of this run and of those before it. */
struct snug_cuda_choice {
    struct snug_cuda_shape shape;
    cublasLtMatmulAlgo_t algorithm;
    int64_t workspace;
};

/* The heuristic's first choice for p; while the backend warms up what was chosen before, or what is fastest by trial.
 */
cublasStatus_t snug_cuda_choose(struct snug_run *run, struct snug_cuda_product *p, const struct snug_cuda_matrices *m,
                                void *workspace);

#endif
