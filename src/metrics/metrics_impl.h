/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a metric accumulator; a task names its own (metrics/task_results.h). */
#ifndef SNUG_METRICS_METRICS_IMPL_H
#define SNUG_METRICS_METRICS_IMPL_H

#include "metrics/metrics.h"
#include "program/op.h"

enum {
    SNUG_METRIC_VALUES = 16,
    SNUG_METRICS_OF_TASK = SNUG_METRICS_MOST - 8, /* the others are common to all evaluations */
};

struct snug_metric_kind {
    const char *names[SNUG_METRIC_VALUES]; /* of its values; the first is eval_loss */
    int main;                              /* index of the one that says most about the task */
    size_t state_size;                     /* of accumulator->state, zero at each reset */
    int64_t (*bytes)(const struct snug_metric_accumulator_options *options); /* of accumulator->memory; NULL: none */
    /* Checks the options and prepares memory, and state for all resets; NULL: nothing to do. */
    snug_status (*open)(struct snug_metric_accumulator *accumulator);
    void (*reset)(struct snug_metric_accumulator *accumulator);
    void (*add)(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                const struct snug_batch *batch);
    bool logits; /* add needs them, also without each_class */
    /* After a round of batches, on all ranks: shares what their batches gave; NULL: nothing. */
    snug_status (*share)(struct snug_metric_accumulator *accumulator, const struct snug_process_group *group);
    /* Counts that several ranks add up, in memory: how many int64_t; NULL: none. */
    int64_t (*counts)(struct snug_metric_accumulator *accumulator, int64_t **out);
    /* Merges what cannot be added up; NULL: nothing. */
    snug_status (*merge)(struct snug_metric_accumulator *accumulator, const struct snug_process_group *group,
                         int64_t batch_size);
    /* values[0] is the loss; sets the others, in the order of names. */
    void (*result)(struct snug_metric_accumulator *accumulator, double *values);
    /* Appends metrics without fixed names; NULL: none. */
    snug_status (*more)(struct snug_metric_accumulator *accumulator, struct snug_metric_list *out);
};

extern const struct snug_metric_kind snug_single_label_metrics, snug_multi_label_metrics, snug_regression_metrics,
    snug_language_model_metrics, snug_entity_metrics, snug_embedding_metrics, snug_answer_metrics, snug_choice_metrics,
    snug_preference_metrics, snug_ranking_metrics;

/* Of a retrieval (metrics/retrieval.c), by its function of similarity. */
extern const struct snug_metric_kind snug_retrieval_metrics[SNUG_SIMILARITY_COUNT];

struct snug_metric_accumulator {
    snug_context *ctx;
    struct snug_metric_accumulator_options options;
    const struct snug_metric_kind *kind;
    void *memory, *state;
    int64_t rows, correct;
    double loss_sum, loss_weight;
    double results[SNUG_PREFERENCE_RESULTS]; /* of preferences: sums over the pairs */
    const char *misuse;
};

/* For merge: puts the words of all ranks' rows into their order. words: [options.rows], of which this rank has those of
   its accumulator->rows rows; batch: those of a batch. */
snug_status snug_metric_merge_words(const struct snug_metric_accumulator *accumulator,
                                    const struct snug_process_group *group, int64_t batch, uint64_t *words);
/* A metric without a fixed name, eval_CLASS_WHAT. */
snug_status snug_metric_add(struct snug_metric_accumulator *accumulator, const char *of, const char *what, double value,
                            struct snug_metric_list *out);
/* A ratio; 0 without a denominator, as scikit-learn's zero_division=0. */
static inline double snug_metric_ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

/* Whether a label is a class; any other value except SNUG_IGNORE_LABEL is a caller's error. */
static inline bool snug_metric_accumulator_takes(struct snug_metric_accumulator *accumulator, int64_t label) {
    if (label == SNUG_IGNORE_LABEL) return false;
    if (label < 0 || label >= accumulator->options.classes)
        accumulator->misuse = "a label is not one of the model's classes";
    return !accumulator->misuse;
}
static inline double snug_metric_accumulator_accuracy(const struct snug_metric_accumulator *accumulator) {
    return (double)accumulator->correct / (double)accumulator->rows; /* NaN without rows */
}

#endif
