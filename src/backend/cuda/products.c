/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by cuBLASLt. It is column-major, where a row-major c = a b is c^T = b^T a^T: so its A is our b, and its rows
 * are our columns, as its bias epilogue wants it. The algorithm of a shape is the heuristic's first for it, asked for
 * with the real alignment (every operand lies on 64 bytes), and then stays, so that the same product always gives the
 * same bits.
 */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

struct shape {
    int64_t m, n, k;
    enum snug_dtype type, c_type;
    bool turn_a, turn_b, bias, tf32;
    uint8_t alignment; /* log2 of the bytes that divide all addresses */
};

struct snug_cuda_product {
    struct shape shape;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
};

static cudaDataType_t type_of(enum snug_dtype type) {
    return type == SNUG_BF16 ? CUDA_R_16BF : type == SNUG_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void free_product(struct snug_cuda_product *product) {
    if (product->description) cublasLtMatmulDescDestroy(product->description);
    if (product->a) cublasLtMatrixLayoutDestroy(product->a);
    if (product->b) cublasLtMatrixLayoutDestroy(product->b);
    if (product->c) cublasLtMatrixLayoutDestroy(product->c);
}

void snug_cuda_free_products(struct snug_cuda *cuda) {
    for (size_t i = 0; i < cuda->product_count; i++) free_product(&cuda->products[i]);
    free(cuda->products);
    cuda->products = NULL;
    cuda->product_count = cuda->product_capacity = 0;
}

static snug_status refuse(snug_context *ctx, const struct shape *s, cublasStatus_t status) {
    return snug_fail(ctx, SNUG_E_INTERNAL, "cuBLASLt refused a %s product of %lld x %lld x %lld: %s",
                     snug_dtype_name(s->type), (long long)s->m, (long long)s->n, (long long)s->k,
                     cublasLtGetStatusString(status));
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if (status == CUBLAS_STATUS_SUCCESS) status = (call);                                                          \
    } while (0)

static cublasStatus_t describe(struct snug_cuda_product *p, const void *bias) {
    const struct shape *s = &p->shape;
    const cublasOperation_t a = s->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N, b = s->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t type = type_of(s->type), c_type = type_of(s->c_type);
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasStatus_t status = cublasLtMatmulDescCreate(
        &p->description, s->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    TRY(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    TRY(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    if (s->bias) {
        TRY(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        TRY(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &c_type,
                                           sizeof c_type));
        TRY(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    TRY(cublasLtMatrixLayoutCreate(&p->a, type, (uint64_t)(s->turn_b ? s->k : s->n),
                                   (uint64_t)(s->turn_b ? s->n : s->k), s->turn_b ? s->k : s->n));
    TRY(cublasLtMatrixLayoutCreate(&p->b, type, (uint64_t)(s->turn_a ? s->m : s->k),
                                   (uint64_t)(s->turn_a ? s->k : s->m), s->turn_a ? s->m : s->k));
    TRY(cublasLtMatrixLayoutCreate(&p->c, c_type, (uint64_t)s->n, (uint64_t)s->m, s->n));
    return status;
}

static cublasStatus_t choose(struct snug_cuda *cuda, struct snug_cuda_product *p) {
    const uint64_t workspace = SNUG_CUDA_PRODUCT_WORKSPACE;
    const uint32_t alignment = 1u << p->shape.alignment;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&wish);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    TRY(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace));
    static const cublasLtMatmulPreferenceAttributes_t bytes[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (size_t i = 0; i < 4; i++)
        TRY(cublasLtMatmulPreferenceSetAttribute(wish, bytes[i], &alignment, sizeof alignment));
    TRY(cublasLtMatmulAlgoGetHeuristic(cuda->lt, p->description, p->a, p->b, p->c, p->c, wish, 1, &found, &count));
    cublasLtMatmulPreferenceDestroy(wish);
    if (status == CUBLAS_STATUS_SUCCESS && count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    p->algorithm = found.algo;
    p->workspace = found.workspaceSize;
    return status;
}

static uint8_t alignment_of(const struct snug_cuda_matrices *p) {
    const uintptr_t bits = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c | (uintptr_t)p->bias | 256;
    return (uint8_t)__builtin_ctzll(bits);
}

static snug_status find(struct snug_run *run, const struct snug_cuda_matrices *m, struct snug_cuda_product **out) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct shape shape;
    memset(&shape, 0, sizeof shape); /* compared byte by byte */
    shape.m = m->m, shape.n = m->n, shape.k = m->k;
    shape.type = m->type, shape.c_type = m->c_type;
    shape.turn_a = m->turn_a, shape.turn_b = m->turn_b, shape.bias = m->bias != NULL;
    shape.tf32 = cuda->tf32 && m->type == SNUG_F32;
    shape.alignment = alignment_of(m);
    for (size_t i = 0; i < cuda->product_count; i++) {
        *out = &cuda->products[i];
        if (memcmp(&(*out)->shape, &shape, sizeof shape) == 0) return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&cuda->products, &cuda->product_capacity, cuda->product_count + 1,
                              sizeof *cuda->products));
    struct snug_cuda_product product = {.shape = shape};
    cublasStatus_t status = describe(&product, m->bias);
    TRY(choose(cuda, &product));
    if (status != CUBLAS_STATUS_SUCCESS) {
        free_product(&product);
        return refuse(run->ctx, &shape, status);
    }
    *out = &cuda->products[cuda->product_count++];
    **out = product;
    return SNUG_OK;
}

snug_status snug_cuda_multiply(struct snug_run *run, const struct snug_cuda_matrices *m, void *workspace) {
    if (m->b_type != m->type)
        return snug_fail(run->ctx, SNUG_E_UNSUPPORTED,
                         "the CUDA backend has no product of %s and %s: weights in bfloat16 need --bf16",
                         snug_dtype_name(m->type), snug_dtype_name(m->b_type));
    const struct snug_cuda *cuda = snug_cuda_of(run);
    static const float one = 1, zero = 0;
    struct snug_cuda_product *p = NULL;
    if (m->m == 0 || m->n == 0) return SNUG_OK;
    if (m->k == 0) {
        if (!m->add) cudaMemsetAsync(m->c, 0, (size_t)(m->m * m->n * snug_dtype_size(m->c_type)), cuda->stream);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(find(run, m, &p));
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (m->bias)
        TRY(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &m->bias,
                                           sizeof m->bias));
    TRY(cublasLtMatmul(cuda->lt, p->description, &one, m->b, p->a, m->a, p->b, m->add ? &one : &zero, m->c, p->c, m->c,
                       p->c, &p->algorithm, workspace, p->workspace, cuda->stream));
    return status == CUBLAS_STATUS_SUCCESS ? SNUG_OK : refuse(run->ctx, &p->shape, status);
}
