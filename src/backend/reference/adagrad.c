/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Adagrad (Duchi, Hazan, Singer, JMLR 12, 2011). */
#include "backend/reference/update.h"

snug_status snug_reference_adagrad(struct snug_run *run, const struct snug_op *op) {
    if (is_skipped(run)) return SNUG_OK;
    const struct snug_optimizer *o = run->optimizer;
    struct snug_matrix p = snug_matrix_of(run, op->update.weight), sums = snug_matrix_of(run, op->update.states[0]);
    double decay = op->update.decay ? o->weight_decay : 0,
           lr = run->learning_rate / (1 + updates_done(run) * o->lr_decay);
    double start = updates_done(run) == 0 ? o->initial_accumulator_value : 0;

    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t c = 0; c < p.cols; c++) {
            double value = load(p, row, c), gradient = clipped_gradient(run, op, row, c) + decay * value;
            double sum = load(sums, row, c) + start + gradient * gradient;
            store(sums, row, c, sum);
            store_parameter(run, op, row, c, value - lr * gradient / (sqrt(sum) + o->epsilon));
        }
    return SNUG_OK;
}
