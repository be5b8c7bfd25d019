/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.AdamW (Loshchilov and Hutter, arXiv:1711.05101) and Adam (Kingma and Ba, arXiv:1412.6980). */
#include "backend/reference/update.h"

snug_status snug_reference_adam(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    struct snug_matrix p = snug_matrix_of(run, op->out[0]), m = snug_matrix_of(run, op->out[2]),
                       v = snug_matrix_of(run, op->out[3]);
    double lr = run->learning_rate, b1 = o->beta1, b2 = o->beta2, t = (double)run->step + 1;
    double correction1 = 1 - pow(b1, t), correction2 = 1 - pow(b2, t), decay = op->decay ? o->weight_decay : 0;

    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t c = 0; c < p.cols; c++) {
            double value = load(p, row, c), gradient = clipped_gradient(run, op, row, c);
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
    return SNUG_OK;
}
