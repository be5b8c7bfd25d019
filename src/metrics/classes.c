/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of classes: single-label or multi-label; and of the tokens that a language model predicts. metrics_scores.c
 * has those of each class. */
#include <math.h>
#include <string.h>

#include "metrics/scores.h"

static struct snug_tally *tallies_of(const struct snug_metric_accumulator *accumulator) { return accumulator->memory; }

static int64_t bytes(const struct snug_metric_accumulator_options *options) {
    return options->classes * (int64_t)sizeof(struct snug_tally) + snug_scores_bytes(options);
}

static void reset(struct snug_metric_accumulator *accumulator) {
    memset(accumulator->memory, 0, (size_t)accumulator->options.classes * sizeof(struct snug_tally));
    snug_scores_reset(accumulator);
}

_Static_assert(sizeof(struct snug_tally) == 3 * sizeof(int64_t), "tallies are added up as whole numbers");

static int64_t counts(struct snug_metric_accumulator *accumulator, int64_t **out) {
    *out = accumulator->memory;
    return 3 * accumulator->options.classes + snug_scores_counts(&accumulator->options);
}

static void add_tokens(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                       const struct snug_batch *batch) {
    for (int64_t row = 0; row < chunk->rows; row++) {
        const int64_t label = batch->labels[chunk->first + row];
        if (!snug_metric_accumulator_takes(accumulator, label)) continue;
        accumulator->rows++;
        accumulator->correct += chunk->best[row] == label;
    }
}

static void add_single_label(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                             const struct snug_batch *batch) {
    const int64_t classes = accumulator->options.classes;
    struct snug_tally *tallies = tallies_of(accumulator);
    for (int64_t row = 0; row < chunk->rows; row++) {
        const int64_t label = batch->labels[chunk->first + row], predicted = chunk->best[row];
        if (!snug_metric_accumulator_takes(accumulator, label)) continue;
        snug_scores_add(accumulator, chunk->logits ? chunk->logits + row * classes : NULL, label, predicted, NULL);
        accumulator->rows++;
        accumulator->correct += predicted == label;
        tallies[label].truth++;
        tallies[predicted].predicted++;
        tallies[label].both += predicted == label;
    }
}

static void add_multi_label(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                            const struct snug_batch *batch) {
    const int64_t classes = accumulator->options.classes;
    struct snug_tally *tallies = tallies_of(accumulator);
    const float *logits = chunk->logits, *targets = batch->targets + chunk->first * classes;
    for (int64_t row = 0; row < chunk->rows; row++) {
        bool whole = true;
        snug_scores_add(accumulator, logits + row * classes, 0, chunk->best[row], targets + row * classes);
        for (int64_t label = 0; label < classes; label++) {
            const bool predicted = snug_is_predicted(logits[row * classes + label], accumulator->options.threshold),
                       truth = targets[row * classes + label] > 0.5f;
            tallies[label].truth += truth;
            tallies[label].predicted += predicted;
            tallies[label].both += truth && predicted;
            whole &= truth == predicted;
        }
        accumulator->rows++;
        accumulator->correct += whole;
    }
}

/* 0 without a denominator, as scikit-learn's zero_division=0. */
static double f1_of(int64_t both, int64_t predicted, int64_t truth) {
    return predicted + truth > 0 ? 2 * (double)both / (double)(predicted + truth) : 0;
}

/* F1 of class 1 if there are two, else the mean over the classes that occur. */
static double single_label_f1(const struct snug_metric_accumulator *accumulator) {
    const struct snug_tally *t = tallies_of(accumulator);
    if (accumulator->rows == 0) return NAN;
    if (accumulator->options.classes == 2) return f1_of(t[1].both, t[1].predicted, t[1].truth);
    double sum = 0;
    int64_t occurring = 0;
    for (int64_t i = 0; i < accumulator->options.classes; i++) {
        sum += f1_of(t[i].both, t[i].predicted, t[i].truth);
        occurring += t[i].predicted + t[i].truth > 0;
    }
    return sum / (double)occurring;
}

/* F1 over all classes' rows together. */
static double micro_f1(const struct snug_metric_accumulator *accumulator) {
    struct snug_tally sum = {0};
    for (int64_t i = 0; i < accumulator->options.classes; i++) {
        sum.truth += tallies_of(accumulator)[i].truth;
        sum.predicted += tallies_of(accumulator)[i].predicted;
        sum.both += tallies_of(accumulator)[i].both;
    }
    return accumulator->rows ? f1_of(sum.both, sum.predicted, sum.truth) : NAN;
}

/* Gorodkin's multi-class form (Computational Biology and Chemistry 28, 2004); 0 where one side has no variance, as in
   scikit-learn. */
static double matthews(const struct snug_metric_accumulator *accumulator) {
    double rows = (double)accumulator->rows, truth_predicted = 0, truth_truth = 0, predicted_predicted = 0;
    if (accumulator->rows == 0) return NAN;
    for (int64_t i = 0; i < accumulator->options.classes; i++) {
        double truth = (double)tallies_of(accumulator)[i].truth,
               predicted = (double)tallies_of(accumulator)[i].predicted;
        truth_predicted += truth * predicted;
        truth_truth += truth * truth;
        predicted_predicted += predicted * predicted;
    }
    double variance = (rows * rows - truth_truth) * (rows * rows - predicted_predicted);
    return variance > 0 ? ((double)accumulator->correct * rows - truth_predicted) / sqrt(variance) : 0;
}

static void single_label_result(struct snug_metric_accumulator *accumulator, double *values) {
    values[1] = snug_metric_accumulator_accuracy(accumulator);
    values[2] = single_label_f1(accumulator);
    values[3] = matthews(accumulator);
}

static void multi_label_result(struct snug_metric_accumulator *accumulator, double *values) {
    values[1] = snug_metric_accumulator_accuracy(accumulator);
    values[2] = micro_f1(accumulator);
}

static void tokens_result(struct snug_metric_accumulator *accumulator, double *values) {
    values[1] = snug_metric_accumulator_accuracy(accumulator);
    values[2] = exp(values[0]);
}

const struct snug_metric_kind snug_single_label_metrics = {
    .names = {"eval_loss", "eval_accuracy", "eval_f1", "eval_matthews_correlation"},
    .main = 1,
    .bytes = bytes,
    .reset = reset,
    .add = add_single_label,
    .counts = counts,
    .merge = snug_scores_merge,
    .result = single_label_result,
    .more = snug_scores_more,
};

const struct snug_metric_kind snug_multi_label_metrics = {
    .names = {"eval_loss", "eval_accuracy", "eval_f1"},
    .main = 2,
    .bytes = bytes,
    .reset = reset,
    .add = add_multi_label,
    .logits = true,
    .counts = counts,
    .merge = snug_scores_merge,
    .result = multi_label_result,
    .more = snug_scores_more,
};

const struct snug_metric_kind snug_language_model_metrics = {
    .names = {"eval_loss", "eval_accuracy", "perplexity"},
    .main = 2,
    .add = add_tokens,
    .result = tokens_result,
};
