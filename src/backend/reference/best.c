/* SPDX-License-Identifier: Apache-2.0 */
/* The best class of each row of logits. */
#include "backend/reference/reference.h"

snug_status snug_reference_best(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix logits = snug_matrix_of(run, op->best.logits);
    int32_t *best = snug_run_data(run, op->best.best);
    for (int64_t row = 0; row < logits.rows; row++) {
        bool infinite = false, nan = false;
        best[row] = 0;
        for (int64_t c = 0; c < logits.cols; c++) {
            infinite |= isinf(load(logits, row, c)) != 0;
            nan |= isnan(load(logits, row, c)) != 0;
            if (load(logits, row, c) > load(logits, row, best[row])) best[row] = (int32_t)c;
        }
        if (infinite) best[row] = SNUG_BEST_INFINITE;
        if (nan) best[row] = SNUG_BEST_NAN;
    }
    return SNUG_OK;
}
