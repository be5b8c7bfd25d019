/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmuls by cuBLASLt. It is column-major, where a row-major c = a b is c^T = b^T a^T: so its A is our b, and its rows
 * are our columns, as its bias epilogue requires. The algorithm of a shape is the heuristic's first, queried with the
 * real alignment (every operand is aligned to 64 bytes), or the autotuned one, and never changes, so that the same
 * matmul always gives the same bits.
 */
#include "backend/cuda/matmul/matmul_plan.h"

#include <stdlib.h>
#include <string.h>

static cudaDataType_t type_of(enum snug_dtype type) {
    return type == SNUG_BF16 ? CUDA_R_16BF : type == SNUG_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void free_plan(struct snug_cuda_matmul_plan *plan) {
    if (plan->description) cublasLtMatmulDescDestroy(plan->description);
    if (plan->a) cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->c) cublasLtMatrixLayoutDestroy(plan->c);
}

void snug_cuda_free_matmul_plans(struct snug_cuda *cuda) {
    for (size_t i = 0; i < cuda->plan_count; i++) free_plan(&cuda->plans[i]);
    free(cuda->plans);
    cuda->plans = NULL;
    cuda->plan_count = cuda->plan_capacity = 0;
}

static snug_status fail_matmul(snug_context *ctx, const struct snug_cuda_matmul_shape *s, cublasStatus_t status) {
    return snug_fail(ctx, SNUG_E_INTERNAL, "cuBLASLt failed in a %s matmul of %lld x %lld x %lld: %s",
                     snug_dtype_name(s->type), (long long)s->m, (long long)s->n, (long long)s->k,
                     cublasLtGetStatusString(status));
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if (status == CUBLAS_STATUS_SUCCESS) status = (call);                                                          \
    } while (0)

static cublasStatus_t describe(struct snug_cuda_matmul_plan *p, const void *bias) {
    const struct snug_cuda_matmul_shape *s = &p->shape;
    const cublasOperation_t a = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            b = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
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
    TRY(cublasLtMatrixLayoutCreate(&p->a, type, (uint64_t)(s->transpose_b ? s->k : s->n),
                                   (uint64_t)(s->transpose_b ? s->n : s->k), s->b_stride));
    TRY(cublasLtMatrixLayoutCreate(&p->b, type, (uint64_t)(s->transpose_a ? s->m : s->k),
                                   (uint64_t)(s->transpose_a ? s->k : s->m), s->a_stride));
    TRY(cublasLtMatrixLayoutCreate(&p->c, c_type, (uint64_t)s->n, (uint64_t)s->m, s->c_stride));
    return status;
}

static uint8_t alignment_of(const struct snug_cuda_matmul *p) {
    const uintptr_t bits = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c | (uintptr_t)p->bias | 256;
    return (uint8_t)__builtin_ctzll(bits);
}

static snug_status find(struct snug_run *run, const struct snug_cuda_matmul *m, void *workspace,
                        struct snug_cuda_matmul_plan **out) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_matmul_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.m = m->m, shape.n = m->n, shape.k = m->k;
    shape.a_stride = m->a_stride ? m->a_stride : m->transpose_a ? m->m : m->k;
    shape.b_stride = m->b_stride ? m->b_stride : m->transpose_b ? m->k : m->n;
    shape.c_stride = m->c_stride ? m->c_stride : m->n;
    shape.type = (int32_t)m->type, shape.c_type = (int32_t)m->c_type;
    shape.transpose_a = m->transpose_a, shape.transpose_b = m->transpose_b, shape.bias = m->bias != NULL;
    shape.tf32 = cuda->tf32 && m->type == SNUG_F32;
    shape.alignment = alignment_of(m);
    for (size_t i = 0; i < cuda->plan_count; i++) {
        *out = &cuda->plans[i];
        if (memcmp(&(*out)->shape, &shape, sizeof shape) == 0) return SNUG_OK;
    }
    RETURN_IF_ERROR(
        snug_grow(run->ctx, (void **)&cuda->plans, &cuda->plan_capacity, cuda->plan_count + 1, sizeof *cuda->plans));
    struct snug_cuda_matmul_plan plan = {.shape = shape};
    cublasStatus_t status = describe(&plan, m->bias);
    TRY(snug_cuda_choose_algorithm(run, &plan, m, workspace));
    if (status != CUBLAS_STATUS_SUCCESS) {
        free_plan(&plan);
        return fail_matmul(run->ctx, &shape, status);
    }
    *out = &cuda->plans[cuda->plan_count++];
    **out = plan;
    return SNUG_OK;
}

cublasStatus_t snug_cuda_launch_matmul(const struct snug_cuda *cuda, struct snug_cuda_matmul_plan *p,
                                       const struct snug_cuda_matmul *m, const cublasLtMatmulAlgo_t *algorithm,
                                       size_t bytes, void *workspace) {
    static const float one = 1, zero = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (m->bias)
        TRY(cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &m->bias,
                                           sizeof m->bias));
    TRY(cublasLtMatmul(cuda->lt, p->description, &one, m->b, p->a, m->a, p->b, m->add ? &one : &zero, m->c, p->c, m->c,
                       p->c, algorithm, workspace, bytes, cuda->stream));
    return status;
}

/* Two matrices of one type. */
static snug_status multiply(struct snug_run *run, const struct snug_cuda_matmul *m, void *workspace) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_matmul_plan *p = NULL;
    RETURN_IF_ERROR(find(run, m, workspace, &p));
    if (cuda->autotuning) return SNUG_OK;
    if (p->workspace > 0 && cuda->stream == cuda->side) cuda->side_workspace = true;
    if (p->workspace > 0 && cuda->stream != cuda->side && cuda->side_workspace) RETURN_IF_ERROR(snug_cuda_join(run));
    const cublasStatus_t status = snug_cuda_launch_matmul(cuda, p, m, &p->algorithm, p->workspace, workspace);
    return status == CUBLAS_STATUS_SUCCESS ? SNUG_OK : fail_matmul(run->ctx, &p->shape, status);
}

/* A weight in BF16 and a matrix of another type, to which a tile of the weight's rows at a time is converted: rows are
   outputs if the weight is transposed, else the inner dimension. */
static snug_status multiply_converted(struct snug_run *run, const struct snug_cuda_matmul *m, void *workspace) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t rows = m->transpose_b ? m->n : m->k, cols = m->transpose_b ? m->k : m->n;
    const int64_t size = snug_dtype_size(m->type), c_size = snug_dtype_size(m->c_type);
    int64_t tile = SNUG_CUDA_CONVERTED / cols;
    if (tile > SNUG_ROW_TILE) tile = tile / SNUG_ROW_TILE * SNUG_ROW_TILE;
    for (int64_t row = 0; row < rows; row += tile) {
        const int64_t count = rows - row < tile ? rows - row : tile;
        struct snug_cuda_matmul part = *m;
        void *converted = (uint8_t *)workspace + SNUG_CUDA_MATMUL_WORKSPACE + snug_cuda_bias_bytes(m->n);
        part.b = converted;
        part.b_type = m->type;
        if (!cuda->autotuning)
            snug_cuda_convert(cuda, converted, m->type, (const uint16_t *)m->b + row * cols, count * cols);
        if (m->transpose_b) {
            part.n = count;
            part.c = (uint8_t *)m->c + row * c_size;
            part.c_stride = m->c_stride ? m->c_stride : m->n;
            if (m->bias) part.bias = (const uint8_t *)m->bias + row * c_size;
        } else {
            part.k = count;
            part.a = (const uint8_t *)m->a + row * size;
            part.a_stride = m->a_stride ? m->a_stride : m->k;
            part.add = m->add || row > 0;
        }
        RETURN_IF_ERROR(multiply(run, &part, workspace));
    }
    return SNUG_OK;
}

snug_status snug_cuda_run_matmul(struct snug_run *run, const struct snug_cuda_matmul *m, void *workspace) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    if (m->m == 0 || m->n == 0) return SNUG_OK;
    if (m->k == 0) {
        if (!m->add) cudaMemsetAsync(m->c, 0, (size_t)(m->m * m->n * snug_dtype_size(m->c_type)), cuda->stream);
        return SNUG_OK;
    }
    if (m->b_type == m->type) return multiply(run, m, workspace);
    if (m->b_type == SNUG_BF16 && !m->transpose_a) return multiply_converted(run, m, workspace);
    return snug_fail(run->ctx, SNUG_E_UNSUPPORTED, "the CUDA backend has no matmul of %s and %s",
                     snug_dtype_name(m->type), snug_dtype_name(m->b_type));
}
