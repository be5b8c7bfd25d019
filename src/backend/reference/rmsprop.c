/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.RMSprop (Tieleman and Hinton; centered: Graves, arXiv:1308.0850). */
#include "backend/reference/update.h"

snug_status snug_reference_rmsprop(struct snug_run *run, const struct snug_op *op) {
    if (is_skipped(run)) return SNUG_OK;
    const struct snug_optimizer *o = run->optimizer;
    const bool momentum = o->momentum != 0;
    struct snug_matrix p = snug_matrix_of(run, op->update.weight), squares = snug_matrix_of(run, op->update.states[0]);
    struct snug_matrix buffer = snug_matrix_of(run, momentum ? op->update.states[1] : -1);
    struct snug_matrix means = snug_matrix_of(run, o->centered ? op->update.states[momentum ? 2 : 1] : 0);
    double lr = run->learning_rate, alpha = o->alpha, decay = op->update.decay ? o->weight_decay : 0;

    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t c = 0; c < p.cols; c++) {
            double value = load(p, row, c), gradient = clipped_gradient(run, op, row, c) + decay * value;
            double square = alpha * load(squares, row, c) + (1 - alpha) * gradient * gradient;
            store(squares, row, c, square);
            if (o->centered) {
                double mean = alpha * load(means, row, c) + (1 - alpha) * gradient;
                store(means, row, c, mean);
                square = fmax(0, square - mean * mean);
            }
            double step = gradient / (sqrt(square) + o->epsilon);
            if (momentum) {
                step += o->momentum * load(buffer, row, c);
                store(buffer, row, c, step);
            }
            store_parameter(run, op, row, c, value - lr * step);
        }
    return SNUG_OK;
}
