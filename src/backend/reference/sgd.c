/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.SGD: momentum after Polyak, or after Nesterov as Sutskever et al. (ICML 2013) write it. */
#include "backend/reference/update.h"

snug_status snug_reference_sgd(struct snug_run *run, const struct snug_op *op) {
    if (is_skipped(run)) return SNUG_OK;
    const struct snug_optimizer *o = run->optimizer;
    struct snug_matrix p = snug_matrix_of(run, op->update.weight), buffer = snug_matrix_of(run, op->update.states[0]);
    double lr = run->learning_rate, decay = op->update.decay ? o->weight_decay : 0;

    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t c = 0; c < p.cols; c++) {
            double value = load(p, row, c), gradient = clipped_gradient(run, op, row, c) + decay * value;
            double direction = gradient;
            if (o->momentum != 0) {
                double momentum = gradient; /* the buffer begins as the first gradient, undamped */
                if (updates_done(run) > 0)
                    momentum = o->momentum * load(buffer, row, c) + (1 - o->dampening) * gradient;
                store(buffer, row, c, momentum);
                direction = o->nesterov ? gradient + o->momentum * momentum : momentum;
            }
            store_parameter(run, op, row, c, value - lr * direction);
        }
    return SNUG_OK;
}
