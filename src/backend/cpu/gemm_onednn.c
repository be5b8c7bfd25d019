/* SPDX-License-Identifier: Apache-2.0 */
/* fp32 matmuls by oneDNN. */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/gemm.h"
#include "core/process.h"

void snug_gemm_one_thread(void) { omp_set_num_threads(1); }

bool snug_gemm_f32(float *c, int64_t ldc, const float *a, int64_t lda, bool transpose_a, const float *b, int64_t ldb,
                   bool transpose_b, int64_t m, int64_t n, int64_t k, float beta) {
    return dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc) ==
           dnnl_success;
}

snug_status snug_gemm_result(snug_context *ctx, bool refused) {
    return refused ? snug_fail(ctx, SNUG_E_INTERNAL, "oneDNN rejected a matmul (dnnl_sgemm)") : SNUG_OK;
}

/* Calls each form of GEMM once in each thread: in the first call oneDNN generates its fp32 kernel and allocates the
   thread's packing buffer. */
snug_status snug_gemm_prepare(snug_context *ctx, int threads) {
    enum { SIDE = 64, DEPTH = 64 }; /* the kernel does not depend on the size */
    float *zeros;
    bool refused = false;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(threads + 1) * SIDE * DEPTH, sizeof *zeros, (void **)&zeros));
#pragma omp parallel num_threads(threads) reduction(|| : refused)
    {
        float *c = zeros + (size_t)(omp_get_thread_num() + 1) * SIDE * DEPTH;
        snug_gemm_one_thread();
        for (int form = 0; form < 6; form++)
            refused = refused ||
                      !snug_gemm_f32(c, SIDE, zeros, form % 3 == 2 ? SIDE : DEPTH, form % 3 == 2, zeros,
                                     form % 3 == 1 ? DEPTH : SIDE, form % 3 == 1, SIDE, SIDE, DEPTH, form < 3 ? 0 : 1);
    }
    free(zeros);
    snug_operations_end_at_exit();
    return snug_gemm_result(ctx, refused);
}

/* Measured on MiniLM and BERT-base, the kernels with AVX-512. */
int64_t snug_gemm_library(int threads, bool prepared) {
    enum { PACKED = 3 << 20, GENERATED = 7 << 20 };
    return (int64_t)threads * PACKED + (prepared ? 0 : GENERATED);
}

void snug_gemm_describe(char *text, size_t size) {
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, size, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}
