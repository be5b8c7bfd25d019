/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a step: the gradients' norm, clipping, and torch.optim.AdamW (Loshchilov and Hutter, arXiv:1711.05101). */
#include "backend/reference/reference.h"

snug_status snug_reference_squared_norm(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix g = snug_matrix_of(run, op->in[0]), sums = snug_matrix_of(run, op->out[0]);
    double sum = 0;
    for (int64_t row = 0; row < g.rows; row++)
        for (int64_t c = 0; c < g.cols; c++) sum += load(g, row, c) * load(g, row, c);
    store(sums, 0, op->slot, sum);
    return SNUG_OK;
}

/* clip = {norm, what to multiply gradients by}, as torch.nn.utils.clip_grad_norm_ does */
snug_status snug_reference_clip(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix sums = snug_matrix_of(run, op->in[0]), clip = snug_matrix_of(run, op->out[0]);
    double squares = 0;
    for (int64_t slot = 0; slot < sums.rows * sums.cols; slot++) squares += load(sums, 0, slot);
    double norm = sqrt(squares), scale = run->max_grad_norm / (norm + 1e-6);
    store(clip, 0, 0, norm);
    store(clip, 0, 1, run->max_grad_norm > 0 && !(scale >= 1) ? scale : 1); /* a NaN norm is passed on */
    return SNUG_OK;
}

snug_status snug_reference_adamw(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix g = snug_matrix_of(run, op->in[0]), clip = snug_matrix_of(run, op->in[1]);
    struct snug_matrix p = snug_matrix_of(run, op->out[0]), m = snug_matrix_of(run, op->out[1]),
                       v = snug_matrix_of(run, op->out[2]);
    struct snug_matrix p16 = snug_matrix_of(run, op->out[3]);
    double lr = run->learning_rate, b1 = run->beta1, b2 = run->beta2, t = (double)run->step + 1;
    double correction1 = 1 - pow(b1, t), correction2 = 1 - pow(b2, t);
    double kept = op->decay ? 1 - lr * run->weight_decay : 1;

    for (int64_t row = 0; row < p.rows; row++)
        for (int64_t c = 0; c < p.cols; c++) {
            double gradient = load(g, row, c) * load(clip, 0, 1);
            double mean = b1 * load(m, row, c) + (1 - b1) * gradient;
            double square = b2 * load(v, row, c) + (1 - b2) * gradient * gradient;
            double step = lr / correction1 * mean / (sqrt(square) / sqrt(correction2) + run->epsilon);
            store(m, row, c, mean);
            store(v, row, c, square);
            store(p, row, c, kept * load(p, row, c) - step);
            if (p16.data) store(p16, row, c, load(p, row, c));
        }
    return SNUG_OK;
}
