/* SPDX-License-Identifier: Apache-2.0 */
#include <cublasLt.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"

struct emulated_description {
    cublasOperation_t turn_a, turn_b;
    const void *bias;
};

struct emulated_layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t stride;
};

enum { ALGORITHMS = 3 };

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = NULL;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) { return 1; }
const char *cublasLtGetStatusString(cublasStatus_t status) { return status ? "failed" : ""; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, int compute, cudaDataType_t scale) {
    (void)compute, (void)scale;
    *out = calloc(1, sizeof **out);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
    free(description);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size) {
    if (which == CUBLASLT_MATMUL_DESC_TRANSA) memcpy(&description->turn_a, value, size);
    if (which == CUBLASLT_MATMUL_DESC_TRANSB) memcpy(&description->turn_b, value, size);
    if (which == CUBLASLT_MATMUL_DESC_BIAS_POINTER) memcpy(&description->bias, value, size);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t stride) {
    *out = malloc(sizeof **out);
    if (!*out) return CUBLAS_STATUS_ALLOC_FAILED;
    **out = (struct emulated_layout){type, rows, cols, stride};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    *out = NULL;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    (void)preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t size) {
    (void)preference, (void)which, (void)value, (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *found, int *count) {
    (void)handle, (void)description, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *count = wanted < ALGORITHMS ? wanted : ALGORITHMS;
    for (int i = 0; i < *count; i++)
        found[i] = (cublasLtMatmulHeuristicResult_t){.algo = {{(uint64_t)i + 1}}, .workspaceSize = 256};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *found) {
    (void)handle, (void)description, (void)a, (void)b, (void)c, (void)d;
    *found = (cublasLtMatmulHeuristicResult_t){.algo = *algorithm, .workspaceSize = 256};
    return algorithm->data[0] - 1 < ALGORITHMS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static float value_of(const void *data, int64_t i, cudaDataType_t type) {
    const uint16_t *half = data;
    return type == CUDA_R_32F    ? ((const float *)data)[i]
           : type == CUDA_R_16BF ? snug_bf16_to_f32(half[i])
                                 : snug_f16_to_f32(half[i]);
}

struct product {
    struct emulated_description description;
    struct emulated_layout x, y, z;
    const void *a, *b, *c;
    void *d;
    float beta;
};

/* d [m, n] = (a b + bias) + beta c, all column-major. Sums in double, rounded to fp32 before c is added: as on a GPU,
   the sum of two products is that of each. */
static void multiply(const void *arguments) {
    const struct product *p = arguments;
    const struct emulated_layout *x = &p->x, *y = &p->y, *z = &p->z;
    const bool turn_a = p->description.turn_a == CUBLAS_OP_T, turn_b = p->description.turn_b == CUBLAS_OP_T;
    const int64_t m = (int64_t)z->rows, n = (int64_t)z->cols, k = (int64_t)(turn_a ? x->rows : x->cols);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = j * z->stride + i;
            double sum = p->description.bias ? value_of(p->description.bias, i, z->type) : 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)value_of(p->a, turn_a ? i * x->stride + l : l * x->stride + i, x->type) *
                       value_of(p->b, turn_b ? l * y->stride + j : j * y->stride + l, y->type);
            const float value = (float)sum + (p->beta != 0 ? value_of(p->c, at, z->type) : 0);
            if (z->type == CUDA_R_32F)
                ((float *)p->d)[at] = value;
            else
                ((uint16_t *)p->d)[at] = z->type == CUDA_R_16BF ? snug_f32_to_bf16(value) : snug_f32_to_f16(value);
        }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t size,
                              cudaStream_t stream) {
    (void)handle, (void)alpha, (void)workspace, (void)size, (void)stream;
    const struct product p = {*description, *a_layout, *b_layout, *d_layout, a, b, c, d, *(const float *)beta};
    if (algorithm->data[0] - 1 >= ALGORITHMS || c_layout->type != p.z.type || p.x.type != p.y.type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    emulate_submit_call(multiply, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}
