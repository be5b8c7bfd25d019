/* SPDX-License-Identifier: Apache-2.0 */
/* The loss summed over items, and its gradient times loss_scale, which makes it the step's mean. */
#include "backend/cpu/rows.h"

/* The weights of classes c … c + VEC_LANES - 1 of n. */
static vec weights_at(const float *weights, int64_t c, int64_t n) {
    return weights ? vec_load(weights, SNUG_F32, c, n) : vec_all(1);
}

/*
 * -sum_c t_c log softmax(x)_c, where t_c is the class's weight times 1 - e for the label, and e / C is added for every
 * class; its gradient is softmax(x) sum_c t_c - t. d may be the logits' own tensor: the label's logit is read before
 * anything is written.
 */
static double cross_entropy(struct snug_matrix logits, struct snug_matrix d, int64_t row, int32_t label,
                            const float *weights, double smoothing, float scale) {
    const int64_t n = logits.cols;
    const float *x = matrix_at(logits, row, 0);
    void *out = d.data ? matrix_at(d, row, 0) : NULL;
    if (label == SNUG_IGNORE_LABEL) {
        if (out) memset(out, 0, (size_t)(n * snug_dtype_size(d.dtype)));
        return 0;
    }

    vec lanes[4], total = {0}, weight = {0};
    for (int k = 0; k < 4; k++) lanes[k] = vec_all(-INFINITY);
    for (int64_t c = 0; c < n; c += VEC_LANES) {
        vec a = vec_load(x, SNUG_F32, c, n);
        if (smoothing > 0) total += a * weights_at(weights, c, n);
        if (smoothing > 0) weight += weights_at(weights, c, n);
        if (n - c < VEC_LANES) a = vec_select(vec_below(n - c), a, vec_all(-INFINITY));
        lanes[0] = vec_max(lanes[0], a);
    }
    const float max = vec_largest(lanes[0]);
    for (int k = 0; k < 4; k++) lanes[k] = vec_all(0);
    for (int64_t c = 0, k = 0; c < n; c += VEC_LANES, k = (k + 1) % 4) {
        vec e = vec_exp(vec_load(x, SNUG_F32, c, n) - max);
        lanes[k] += n - c < VEC_LANES ? vec_select(vec_below(n - c), e, vec_all(0)) : e;
    }
    const float sum = vec_sum((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
    const double log_sum = max + log((double)sum), own = weights ? (double)weights[label] : 1;
    double targets = own; /* their sum */
    if (weights && smoothing > 0) targets = (1 - smoothing) * own + smoothing * vec_sum(weight) / (double)n;
    double loss = targets * log_sum - (1 - smoothing) * own * x[label];
    if (smoothing > 0) loss -= smoothing * vec_sum(total) / (double)n;
    if (!out) return loss;

    const float p_label = expf(x[label] - max) / sum, even = (float)(smoothing / (double)n), all = (float)targets;
    for (int64_t c = 0; c < n; c += VEC_LANES) {
        vec p = vec_exp(vec_load(x, SNUG_F32, c, n) - max) * (1 / sum);
        vec_store(out, d.dtype, c, n, (p * all - even * weights_at(weights, c, n)) * scale);
    }
    float d_label = (p_label * all - even * (float)own - (float)((1 - smoothing) * own)) * scale;
    if (d.dtype == SNUG_F32) {
        ((float *)out)[label] = d_label;
    } else {
        ((uint16_t *)out)[label] = snug_f32_to_bf16(d_label);
    }
    return loss;
}

static void put(struct snug_matrix d, int64_t row, int64_t c, double value) {
    if (!d.data) return;
    if (d.dtype == SNUG_F32) {
        *(float *)matrix_at(d, row, c) = (float)value;
    } else {
        *(uint16_t *)matrix_at(d, row, c) = snug_f32_to_bf16((float)value);
    }
}

/* -w t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)); with w = 1 it is max(x, 0) - x t + log(1 + exp(-|x|)), which
   cannot overflow. */
static double binary_cross_entropy(struct snug_matrix logits, struct snug_matrix d, int64_t row, const float *target,
                                   const float *weights, double scale) {
    double loss = 0;
    for (int64_t c = 0; c < logits.cols; c++) {
        double x = *(const float *)matrix_at(logits, row, c), rest = log1p(exp(-fabs(x)));
        double more = weights ? (weights[c] - 1.0) * target[c] : 0, p = 1 / (1 + exp(-x));
        loss += fmax(x, 0) - x * target[c] + rest + more * (fmax(-x, 0) + rest);
        put(d, row, c, (p - target[c] + more * (p - 1)) * scale);
    }
    return loss;
}

static double squared_error(struct snug_matrix logits, struct snug_matrix d, int64_t row, double target, double scale) {
    double difference = *(const float *)matrix_at(logits, row, 0) - target;
    put(d, row, 0, 2 * difference * scale);
    return difference * difference;
}

/* Rows of the segment that begins at row. */
static int64_t segment_rows(const int32_t *labels, int64_t row, int64_t rows) {
    int64_t end = row + 1;
    while (end < rows && !(labels[end] & SNUG_SEGMENT_BEGINS)) end++;
    return end - row;
}

/* The mean over columns of -log softmax over the rows from `row` to the end of its segment, of the column's target. */
static double segment_cross_entropy(struct snug_matrix logits, struct snug_matrix d, int64_t row, const int32_t *labels,
                                    double scale) {
    const int64_t end = row + segment_rows(labels, row, logits.rows);
    double loss = 0;
    for (int64_t c = 0; c < logits.cols; c++) {
        float max = -INFINITY;
        double sum = 0, of_target = 0;
        int64_t target = -1;
        for (int64_t i = row; i < end; i++) {
            const float x = *(const float *)matrix_at(logits, i, c);
            max = fmaxf(max, x);
            if (!(labels[i] >> c & 1)) continue;
            target = i;
            of_target = x;
        }
        for (int64_t i = row; i < end; i++) sum += (double)expf(*(const float *)matrix_at(logits, i, c) - max);
        const double each = target < 0 ? 0 : 1 / (double)logits.cols;
        loss += each * ((double)max + log(sum) - of_target);
        for (int64_t i = row; i < end; i++) {
            const double p = (double)expf(*(const float *)matrix_at(logits, i, c) - max) / sum;
            put(d, i, c, (p - (i == target)) * each * scale);
        }
    }
    return loss;
}

/* Cross entropy, with a gradient that is also multiplied by the scale of the row's sequence. */
static void preference_row(const struct snug_run *run, const struct snug_op *op, struct snug_matrix logits,
                           struct snug_matrix d, int64_t row) {
    const int64_t item = run->first_row + row;
    const float *scales = snug_run_data(run, op->loss.scales);
    float *rows = snug_run_data(run, op->loss.rows), scale = run->loss_scale;
    if (run->pass == SNUG_PASS_SCORES) d.data = NULL;
    if (scales) scale *= scales[snug_batch_sequence(run->batch, run->batch->loss_positions[item])];
    rows[row] = (float)cross_entropy(logits, d, row, run->batch->labels[item], NULL, 0, scale);
}

static double value_at(struct snug_matrix logits, int64_t row) { return *(const float *)matrix_at(logits, row, 0); }

/* -sum t log softmax over the rows of the segment, of targets whose sum is 1, or 0 where they are not known. */
static double segment_distribution(struct snug_matrix logits, struct snug_matrix d, int64_t row, int64_t rows,
                                   const float *targets, double scale) {
    double max = -INFINITY, sum = 0, known = 0, loss = 0;
    for (int64_t i = row; i < row + rows; i++) max = fmax(max, value_at(logits, i));
    for (int64_t i = row; i < row + rows; i++) sum += exp(value_at(logits, i) - max);
    for (int64_t i = row; i < row + rows; i++) known += (double)targets[i];
    for (int64_t i = row; i < row + rows; i++) {
        const double log_p = value_at(logits, i) - max - log(sum), target = (double)targets[i];
        loss -= target * log_p;
        put(d, i, 0, (exp(log_p) * known - target) * scale);
    }
    return loss;
}

/* The sum of (x_0 - x_i - t_i)^2 over the rows of the segment but the first, whose target is 0 where the others are not
   known, else 1. */
static double segment_margin(struct snug_matrix logits, struct snug_matrix d, int64_t row, int64_t rows,
                             const float *targets, double scale) {
    const double known = (double)targets[row], first = value_at(logits, row);
    double loss = 0, sum = 0;
    for (int64_t i = row + 1; i < row + rows; i++) {
        const double difference = (first - value_at(logits, i) - (double)targets[i]) * known;
        loss += difference * difference;
        sum += difference;
        put(d, i, 0, -2 * difference * scale);
    }
    put(d, row, 0, 2 * sum * scale);
    return loss;
}

snug_status SNUG_KERNEL(loss)(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix logits = snug_matrix_of(run, op->loss.logits), d = snug_matrix_of(run, op->loss.d);
    float *loss = snug_run_data(run, op->loss.loss);
    double *row_loss = run->workspace;
    const float *weights = op->loss.weighted ? run->batch->class_weights : NULL;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < logits.rows; row++) {
        int64_t item = run->first_row + row;
        switch (op->loss.function) {
        case SNUG_CROSS_ENTROPY:
            row_loss[row] = cross_entropy(logits, d, row, run->batch->labels[item], weights, op->loss.label_smoothing,
                                          run->loss_scale);
            break;
        case SNUG_BINARY_CROSS_ENTROPY:
            row_loss[row] = binary_cross_entropy(logits, d, row, run->batch->targets + item * logits.cols, weights,
                                                 run->loss_scale);
            break;
        case SNUG_MEAN_SQUARED_ERROR:
            row_loss[row] = squared_error(logits, d, row, run->batch->targets[item], run->loss_scale);
            break;
        case SNUG_SEGMENT_CROSS_ENTROPY:
            row_loss[row] = 0;
            if (run->batch->labels[item] & SNUG_SEGMENT_BEGINS)
                row_loss[row] =
                    segment_cross_entropy(logits, d, row, run->batch->labels + run->first_row, run->loss_scale);
            break;
        case SNUG_PREFERENCE_CROSS_ENTROPY: preference_row(run, op, logits, d, row); break;
        case SNUG_SEGMENT_DISTRIBUTION:
        case SNUG_SEGMENT_MARGIN:
            row_loss[row] = 0;
            if (run->batch->labels[item] & SNUG_SEGMENT_BEGINS)
                row_loss[row] = (op->loss.function == SNUG_SEGMENT_MARGIN ? segment_margin : segment_distribution)(
                    logits, d, row, segment_rows(run->batch->labels + run->first_row, row, logits.rows),
                    run->batch->targets + run->first_row, run->loss_scale);
            break;
        }
    }
    if (!loss) return SNUG_OK; /* of preferences, whose losses are in rows */
    double sum = run->chunk == 0 ? 0 : *loss;
    for (int64_t row = 0; row < logits.rows; row++) sum += row_loss[row];
    *loss = (float)sum;
    return SNUG_OK;
}
