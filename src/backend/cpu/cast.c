/* SPDX-License-Identifier: Apache-2.0 */
/* CAST. */
#include "backend/cpu/kernels.h"

snug_status SNUG_KERNEL(cast)(struct snug_run *run, const struct snug_op *op) {
    const float *restrict p = snug_run_data(run, op->cast.p);
    uint16_t *restrict q = snug_run_data(run, op->cast.q);
    int64_t n = snug_run_rows(run, op->cast.p) * snug_run_cols(run, op->cast.p);
#pragma omp parallel for simd num_threads(run->threads) if (parallel : n > 1 << 14)
    for (int64_t i = 0; i < n; i++) q[i] = snug_f32_to_bf16(p[i]);
    return SNUG_OK;
}
