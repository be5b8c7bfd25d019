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

/* As doubles, in blocks of WIDTH columns of a row-major matrix [depth, columns]: a block's rows follow each other. */
enum { WIDTH = 64 };
static double *unpack(const void *data, const struct emulated_layout *layout, bool is_column_major, int64_t depth,
                      int64_t columns) {
    double *values = malloc((size_t)(depth * columns + 1) * sizeof *values), *at = values;
    if (!values) abort();
    for (int64_t first = 0; first < columns; first += WIDTH)
        for (int64_t l = 0; l < depth; l++)
            for (int64_t i = first; i < columns && i < first + WIDTH; i++)
                *at++ = (double)value_of(data, is_column_major ? i * layout->stride + l : l * layout->stride + i,
                                         layout->type);
    return values;
}

static void write_value(const struct product *p, int64_t at, double sum) {
    const float value = (float)sum + (p->beta != 0 ? value_of(p->c, at, p->z.type) : 0);
    if (p->z.type == CUDA_R_32F)
        ((float *)p->d)[at] = value;
    else
        ((uint16_t *)p->d)[at] = p->z.type == CUDA_R_16BF ? snug_f32_to_bf16(value) : snug_f32_to_f16(value);
}

/* d [m, n] = (a b + bias) + beta c, all column-major. Sums in double, rounded to fp32 before c is added: as on a GPU,
   the sum of two products is that of each. */
static void multiply(const void *arguments) {
    const struct product *p = arguments;
    const struct emulated_layout *x = &p->x, *y = &p->y, *z = &p->z;
    const bool turn_a = p->description.turn_a == CUBLAS_OP_T, turn_b = p->description.turn_b == CUBLAS_OP_T;
    const int64_t m = (int64_t)z->rows, n = (int64_t)z->cols, k = (int64_t)(turn_a ? x->rows : x->cols);
    double *a = unpack(p->a, x, turn_a, k, m), *b = unpack(p->b, y, !turn_b, k, n);
    for (int64_t first_row = 0; first_row < m; first_row += WIDTH)
        for (int64_t j = 0; j < n; j++) {
            const int64_t first_column = j / WIDTH * WIDTH;
            const int64_t rows = m - first_row < WIDTH ? m - first_row : WIDTH;
            const int64_t columns = n - first_column < WIDTH ? n - first_column : WIDTH;
            const double *left = a + first_row * k, *right = b + first_column * k + j % WIDTH;
            double sums[WIDTH];
            for (int64_t i = 0; i < rows; i++)
                sums[i] = p->description.bias ? (double)value_of(p->description.bias, first_row + i, z->type) : 0;
            for (int64_t l = 0; l < k; l++)
                for (int64_t i = 0; i < rows; i++) sums[i] += left[l * rows + i] * right[l * columns];
            for (int64_t i = 0; i < rows; i++) write_value(p, j * z->stride + first_row + i, sums[i]);
        }
    free(a);
    free(b);
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
