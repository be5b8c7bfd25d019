/* SPDX-License-Identifier: Apache-2.0 */
/* Lion (Chen et al., arXiv:2302.06675), with decoupled weight decay. */
#include "backend/reference/update.h"

snug_status snug_reference_lion(struct snug_run *run, const struct snug_op *op) {
    if (is_skipped(run)) return SNUG_OK;
    const struct snug_optimizer *o = run->optimizer;
    struct snug_matrix p = snug_matrix_of(run, op->update.weight), m = snug_matrix_of(run, op->update.states[0]);
    double lr = run->learning_rate, decay = op->update.decay ? o->weight_decay : 0;

    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t c = 0; c < p.cols; c++) {
            double gradient = clipped_gradient(run, op, row, c), mean = load(m, row, c);
            double direction = o->beta1 * mean + (1 - o->beta1) * gradient;
            double sign = direction > 0 ? 1 : direction < 0 ? -1 : direction; /* sign(0) is 0, sign(NaN) is NaN */
            store(m, row, c, o->beta2 * mean + (1 - o->beta2) * gradient);
            store_parameter(run, op, row, c, load(p, row, c) * (1 - lr * decay) - lr * sign);
        }
    return SNUG_OK;
}
