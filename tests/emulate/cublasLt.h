/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c opens and closes cuBLASLt; the products themselves are runtime.c's here. */
#ifndef SNUG_TESTS_EMULATE_CUBLASLT_H
#define SNUG_TESTS_EMULATE_CUBLASLT_H

typedef void *cublasLtHandle_t;
typedef int cublasStatus_t;
enum { CUBLAS_STATUS_SUCCESS };

static inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = (void *)0;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}
static inline const char *cublasLtGetStatusString(cublasStatus_t status) { return status ? "failed" : ""; }

#endif
