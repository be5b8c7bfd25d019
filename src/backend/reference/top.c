/* SPDX-License-Identifier: Apache-2.0 */
/* The most probable columns of each row of logits. */
#include "backend/reference/reference.h"
#include "core/log_sum.h"

/* The column with the largest value below that of column `last`, or an equal value and after it; last -1: any. */
static int64_t next_of(struct snug_matrix x, int64_t row, int64_t last) {
    int64_t best = -1;
    for (int64_t c = 0; c < x.cols; c++) {
        const double value = load(x, row, c), before = last < 0 ? INFINITY : load(x, row, last);
        if ((value < before || (value == before && c > last)) && (best < 0 || value > load(x, row, best))) best = c;
    }
    return best;
}

snug_status snug_reference_top(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix logits = snug_matrix_of(run, op->top.logits), ids = snug_matrix_of(run, op->top.ids),
                             out = snug_matrix_of(run, op->top.log_probabilities);
    for (int64_t row = 0; row < logits.rows; row++) {
        const double sum = snug_log_sum((const float *)logits.data + row * logits.cols, logits.cols);
        int64_t last = -1;
        for (int64_t i = 0; i < ids.cols; i++) {
            last = next_of(logits, row, last);
            ((int32_t *)ids.data)[row * ids.cols + i] = (int32_t)last;
            store(out, row, i, load(logits, row, last) - sum);
        }
    }
    return SNUG_OK;
}
