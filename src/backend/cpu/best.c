/* SPDX-License-Identifier: Apache-2.0 */
/* The best class of each row of logits. */
#include "backend/cpu/rows.h"

static int32_t best_of(const float *x, int64_t n) {
    vec largest = vec_all(-INFINITY), zeros = vec_all(0);
    for (int64_t c = 0; c < n; c += VEC_LANES) {
        vec a = vec_load(x, SNUG_F32, c, n);
        zeros += a * 0; /* NaN where a is not finite */
        if (n - c < VEC_LANES) a = vec_select(vec_below(n - c), a, vec_all(-INFINITY));
        largest = vec_max(largest, a);
    }
    int32_t best = 0;
    if (isnan(vec_sum(zeros))) {
        while (best < n && !isnan(x[best])) best++;
        return best < n ? SNUG_BEST_NAN : SNUG_BEST_INFINITE;
    }
    for (const float value = vec_largest(largest); x[best] != value;) best++;
    return best;
}

snug_status SNUG_KERNEL(best)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix logits = snug_matrix_of(run, op->best.logits);
    int32_t *best = snug_run_data(run, op->best.best);
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < logits.rows; row++) best[row] = best_of(matrix_at(logits, row, 0), logits.cols);
    return SNUG_OK;
}
