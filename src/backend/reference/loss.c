/* SPDX-License-Identifier: Apache-2.0 */
/* The loss summed over items, and its gradient times loss_scale, which makes it the step's mean. */
#include "backend/reference/reference.h"

/*
 * -sum_c t_c log softmax(x)_c, where t is 1 - e for the label and e / C is added for every class; its gradient is
 * softmax(x) - t. d may be the logits' own tensor: each value is read before it is overwritten.
 */
static double cross_entropy(struct snug_matrix logits, struct snug_matrix d, int64_t row, int32_t label,
                            double smoothing, double scale) {
    double max = -INFINITY, sum = 0, loss = 0;
    for (int64_t c = 0; c < logits.cols; c++) max = fmax(max, load(logits, row, c));
    for (int64_t c = 0; c < logits.cols; c++) sum += exp(load(logits, row, c) - max);
    for (int64_t c = 0; c < logits.cols; c++) {
        double log_p = load(logits, row, c) - max - log(sum);
        double target = (c == label ? 1 - smoothing : 0) + smoothing / (double)logits.cols;
        if (label == SNUG_IGNORE_LABEL) target = 0;
        loss -= target * log_p;
        if (d.data) store(d, row, c, label == SNUG_IGNORE_LABEL ? 0 : (exp(log_p) - target) * scale);
    }
    return loss;
}

/* -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) = max(x, 0) - x t + log(1 + exp(-|x|)), which cannot overflow. */
static double binary_cross_entropy(struct snug_matrix logits, struct snug_matrix d, int64_t row, const float *target,
                                   double scale) {
    double loss = 0;
    for (int64_t c = 0; c < logits.cols; c++) {
        double x = load(logits, row, c);
        loss += fmax(x, 0) - x * target[c] + log1p(exp(-fabs(x)));
        /* untested: the reference backend only trains these tasks */
        if (d.data) store(d, row, c, (1 / (1 + exp(-x)) - target[c]) * scale);
    }
    return loss;
}

static double squared_error(struct snug_matrix logits, struct snug_matrix d, int64_t row, double target, double scale) {
    double difference = load(logits, row, 0) - target;
    if (d.data) store(d, row, 0, 2 * difference * scale); /* untested: the reference backend only trains these tasks */
    return difference * difference;
}

snug_status snug_reference_loss(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix logits = snug_matrix_of(run, op->loss.logits);
    struct snug_matrix loss = snug_matrix_of(run, op->loss.loss), d = snug_matrix_of(run, op->loss.d);
    double sum = run->chunk == 0 ? 0 : load(loss, 0, 0), scale = run->loss_scale;
    const float *scaler = scaler_of(run);
    if (scaler) scale *= scaler[SNUG_SCALE];

    for (int64_t row = 0; row < logits.rows; row++) {
        int64_t item = run->first_row + row;
        switch (op->loss.function) {
        case SNUG_CROSS_ENTROPY:
            sum += cross_entropy(logits, d, row, run->batch->labels[item], op->loss.label_smoothing, scale);
            break;
        case SNUG_BINARY_CROSS_ENTROPY:
            sum += binary_cross_entropy(logits, d, row, run->batch->targets + item * logits.cols, scale);
            break;
        case SNUG_MEAN_SQUARED_ERROR: sum += squared_error(logits, d, row, run->batch->targets[item], scale); break;
        }
    }
    store(loss, 0, 0, sum);
    return SNUG_OK;
}
