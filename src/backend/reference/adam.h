/* SPDX-License-Identifier: Apache-2.0 */
/* One row's step of Adam, for updates of whole tensors and for lazy updates of rows. */
#ifndef SNUG_BACKEND_REFERENCE_ADAM_H
#define SNUG_BACKEND_REFERENCE_ADAM_H

#include "backend/reference/update.h"

/* The step of a row, with row slot of g; without a gradient where g has no data. */
static inline void adam_row(const struct snug_run *run, const struct snug_op *op, int64_t row, struct snug_matrix g,
                            int64_t slot, double clip) {
    const struct snug_optimizer *o = run->optimizer;
    struct snug_matrix p = snug_matrix_of(run, op->update.weight), m = snug_matrix_of(run, op->update.states[0]),
                       v = snug_matrix_of(run, op->update.states[1]);
    double lr = run->learning_rate, b1 = o->beta1, b2 = o->beta2, t = updates_done(run) + 1;
    double correction1 = 1 - pow(b1, t), correction2 = 1 - pow(b2, t), decay = op->update.decay ? o->weight_decay : 0;

    for (int64_t c = 0; c < p.cols; c++) {
        double value = load(p, row, c), gradient = (g.data ? load(g, slot, c) : 0) * clip;
        if (o->decoupled)
            value *= 1 - lr * decay;
        else
            gradient += decay * value;
        double mean = b1 * load(m, row, c) + (1 - b1) * gradient;
        double square = b2 * load(v, row, c) + (1 - b2) * gradient * gradient;
        store(m, row, c, mean);
        store(v, row, c, square);
        value -= lr / correction1 * mean / (sqrt(square) / sqrt(correction2) + o->epsilon);
        store_parameter(run, op, row, c, value);
    }
}

#endif
