/* SPDX-License-Identifier: Apache-2.0 */
/* The loss summed over items, and its gradient times loss_scale, which makes it the step's mean. */
#include "backend/reference/reference.h"

/* The weight of a class; 1 without weights. */
static double weight_of(const float *weights, int64_t class) { return weights ? (double)weights[class] : 1; }

/* t_c = w_c ((1 - e) [c = label] + e / C); 0 without a label. */
static double target_of(const float *weights, int64_t classes, int64_t class, int32_t label, double smoothing) {
    if (label == SNUG_IGNORE_LABEL) return 0;
    return weight_of(weights, class) * ((class == label ? 1 - smoothing : 0) + smoothing / (double)classes);
}

/*
 * -sum_c t_c log softmax(x)_c; its gradient is softmax(x) sum_c t_c - t. d may be the logits' own tensor: each value is
 * read before it is overwritten.
 */
static double cross_entropy(struct snug_matrix logits, struct snug_matrix d, int64_t row, int32_t label,
                            const float *weights, double smoothing, double scale) {
    double max = -INFINITY, sum = 0, targets = 0, loss = 0;
    for (int64_t c = 0; c < logits.cols; c++) max = fmax(max, load(logits, row, c));
    for (int64_t c = 0; c < logits.cols; c++) sum += exp(load(logits, row, c) - max);
    for (int64_t c = 0; c < logits.cols; c++) targets += target_of(weights, logits.cols, c, label, smoothing);
    for (int64_t c = 0; c < logits.cols; c++) {
        double log_p = load(logits, row, c) - max - log(sum);
        double target = target_of(weights, logits.cols, c, label, smoothing);
        loss -= target * log_p;
        if (d.data) store(d, row, c, (exp(log_p) * targets - target) * scale);
    }
    return loss;
}

/*
 * -w t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)). -log sigmoid(x) = max(-x, 0) + log(1 + exp(-|x|)), which cannot
 * overflow.
 */
static double binary_cross_entropy(struct snug_matrix logits, struct snug_matrix d, int64_t row, const float *target,
                                   const float *weights, double scale) {
    double loss = 0;
    for (int64_t c = 0; c < logits.cols; c++) {
        double x = load(logits, row, c), t = target[c], weight = weight_of(weights, c);
        double rest = log1p(exp(-fabs(x)));
        loss += weight * t * (fmax(-x, 0) + rest) + (1 - t) * (fmax(x, 0) + rest);
        if (d.data) store(d, row, c, ((1 - t) / (1 + exp(-x)) - weight * t / (1 + exp(x))) * scale);
    }
    return loss;
}

static double squared_error(struct snug_matrix logits, struct snug_matrix d, int64_t row, double target, double scale) {
    double difference = load(logits, row, 0) - target;
    if (d.data) store(d, row, 0, 2 * difference * scale);
    return difference * difference;
}

/* Rows of the segment that begins at row. */
static int64_t segment_rows(const int32_t *labels, int64_t row, int64_t rows) {
    int64_t end = row + 1;
    while (end < rows && !(labels[end] & SNUG_SEGMENT_BEGINS)) end++;
    return end - row;
}

/* The mean over columns of -log softmax over the rows from `row` on, of the column's target. */
static double segment_cross_entropy(struct snug_matrix logits, struct snug_matrix d, int64_t row, int64_t rows,
                                    const int32_t *labels, double scale) {
    double loss = 0;
    for (int64_t c = 0; c < logits.cols; c++) {
        double max = -INFINITY, sum = 0;
        int64_t target = -1;
        for (int64_t i = row; i < row + rows; i++) max = fmax(max, load(logits, i, c));
        for (int64_t i = row; i < row + rows; i++) sum += exp(load(logits, i, c) - max);
        for (int64_t i = row; i < row + rows; i++)
            if (labels[i] >> c & 1) target = i;
        if (target >= 0) loss -= (load(logits, target, c) - max - log(sum)) / (double)logits.cols;
        for (int64_t i = row; i < row + rows && d.data; i++) {
            const double p = exp(load(logits, i, c) - max) / sum;
            store(d, i, c, target < 0 ? 0 : (p - (i == target)) / (double)logits.cols * scale);
        }
    }
    return loss;
}

/* A row of preferences: cross entropy, and its gradient times the scale of the row's sequence. */
static void preference_row(const struct snug_run *run, const struct snug_op *op, int64_t row, double scale) {
    struct snug_matrix logits = snug_matrix_of(run, op->loss.logits), d = snug_matrix_of(run, op->loss.d);
    struct snug_matrix rows = snug_matrix_of(run, op->loss.rows), scales = snug_matrix_of(run, op->loss.scales);
    const int64_t item = run->first_row + row,
                  sequence = snug_batch_sequence(run->batch, run->batch->loss_positions[item]);
    const double own = scales.data ? scale * load(scales, 0, sequence) : scale;
    if (run->pass == SNUG_PASS_SCORES) d.data = NULL;
    store(rows, row, 0, cross_entropy(logits, d, row, run->batch->labels[item], NULL, 0, own));
}

/* -sum t log softmax over the rows of the segment, of targets whose sum is 1, or 0 where they are not known. */
static double segment_distribution(struct snug_matrix logits, struct snug_matrix d, int64_t row, int64_t rows,
                                   const float *targets, double scale) {
    double max = -INFINITY, sum = 0, known = 0, loss = 0;
    for (int64_t i = row; i < row + rows; i++) max = fmax(max, load(logits, i, 0));
    for (int64_t i = row; i < row + rows; i++) sum += exp(load(logits, i, 0) - max);
    for (int64_t i = row; i < row + rows; i++) known += (double)targets[i];
    for (int64_t i = row; i < row + rows; i++) {
        const double log_p = load(logits, i, 0) - max - log(sum), target = (double)targets[i];
        loss -= target * log_p;
        if (d.data) store(d, i, 0, (exp(log_p) * known - target) * scale);
    }
    return loss;
}

/* The sum of (x_0 - x_i - t_i)^2 over the rows of the segment but the first, whose target is 0 where the others are not
   known, else 1. */
static double segment_margin(struct snug_matrix logits, struct snug_matrix d, int64_t row, int64_t rows,
                             const float *targets, double scale) {
    const double known = (double)targets[row], first = load(logits, row, 0);
    double loss = 0, sum = 0;
    for (int64_t i = row + 1; i < row + rows; i++) {
        const double difference = (first - load(logits, i, 0) - (double)targets[i]) * known;
        loss += difference * difference;
        sum += difference;
        if (d.data) store(d, i, 0, -2 * difference * scale);
    }
    if (d.data) store(d, row, 0, 2 * sum * scale);
    return loss;
}

snug_status snug_reference_loss(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix logits = snug_matrix_of(run, op->loss.logits);
    struct snug_matrix loss = snug_matrix_of(run, op->loss.loss), d = snug_matrix_of(run, op->loss.d);
    double scale = run->loss_scale;
    const float *scaler = scaler_of(run), *weights = op->loss.weighted ? run->batch->class_weights : NULL;
    if (scaler) scale *= scaler[SNUG_SCALE];
    double sum = 0;

    for (int64_t row = 0; row < logits.rows; row++) {
        int64_t item = run->first_row + row;
        switch (op->loss.function) {
        case SNUG_CROSS_ENTROPY:
            sum += cross_entropy(logits, d, row, run->batch->labels[item], weights, op->loss.label_smoothing, scale);
            break;
        case SNUG_BINARY_CROSS_ENTROPY:
            sum += binary_cross_entropy(logits, d, row, run->batch->targets + item * logits.cols, weights, scale);
            break;
        case SNUG_MEAN_SQUARED_ERROR: sum += squared_error(logits, d, row, run->batch->targets[item], scale); break;
        case SNUG_SEGMENT_CROSS_ENTROPY: {
            const int32_t *labels = run->batch->labels + run->first_row;
            if (!(labels[row] & SNUG_SEGMENT_BEGINS)) break;
            sum += segment_cross_entropy(logits, d, row, segment_rows(labels, row, logits.rows), labels, scale);
            break;
        }
        case SNUG_PREFERENCE_CROSS_ENTROPY: preference_row(run, op, row, scale); break;
        case SNUG_SEGMENT_DISTRIBUTION:
        case SNUG_SEGMENT_MARGIN: {
            const int32_t *labels = run->batch->labels + run->first_row;
            if (!(labels[row] & SNUG_SEGMENT_BEGINS)) break;
            sum += (op->loss.function == SNUG_SEGMENT_MARGIN ? segment_margin : segment_distribution)(
                logits, d, row, segment_rows(labels, row, logits.rows), run->batch->targets + run->first_row, scale);
            break;
        }
        }
    }
    if (!loss.data) return SNUG_OK; /* of preferences, whose losses are in rows */
    store(loss, 0, 0, run->chunk ? load(loss, 0, 0) + sum : sum);
    return SNUG_OK;
}
