/* SPDX-License-Identifier: Apache-2.0 */
/* The most probable columns of each row of logits. */
#include "backend/cpu/rows.h"
#include "core/log_sum.h"

/* Keeps the columns of the `most` largest values, in order. */
static void choose(const float *x, int64_t n, int32_t *ids, int64_t most) {
    int64_t count = 0;
    for (int64_t c = 0; c < n; c++) {
        if (count == most && !(x[c] > x[ids[count - 1]])) continue;
        int64_t at = count < most ? count++ : count - 1;
        for (; at > 0 && x[c] > x[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)c;
    }
}

snug_status SNUG_KERNEL(top)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix logits = snug_matrix_of(run, op->top.logits);
    const int64_t most = snug_run_cols(run, op->top.ids);
    int32_t *ids = snug_run_data(run, op->top.ids);
    float *out = snug_run_data(run, op->top.log_probabilities);
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < logits.rows; row++) {
        const float *x = matrix_at(logits, row, 0);
        choose(x, logits.cols, ids + row * most, most);
        const double sum = snug_log_sum(x, logits.cols);
        for (int64_t i = row * most; i < (row + 1) * most; i++) out[i] = (float)((double)x[ids[i]] - sum);
    }
    return SNUG_OK;
}
