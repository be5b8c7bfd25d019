/* SPDX-License-Identifier: Apache-2.0 */
/* The confusion matrix; and metrics of each class, and those that need the scores of all rows: these need memory, so
   they are asked for. */
#ifndef SNUG_METRICS_SCORES_H
#define SNUG_METRICS_SCORES_H

#include "metrics/metrics_impl.h"

/* Counts of one class: rows that have it, rows predicted to have it, and both. They are at the beginning of the
   accumulator's memory, [classes]. */
struct snug_tally {
    int64_t truth, predicted, both;
};

/* Bytes after them: the confusion matrix, and the scores with each_class. */
int64_t snug_scores_bytes(const struct snug_metric_accumulator_options *options);
void snug_scores_reset(struct snug_metric_accumulator *accumulator);
/* How many counts follow the tallies, which several ranks add up. */
int64_t snug_scores_counts(const struct snug_metric_accumulator_options *options);
/* Merges the scores of several ranks. */
snug_status snug_scores_merge(struct snug_metric_accumulator *accumulator, const struct snug_process_group *group,
                              int64_t batch);
/* A row: its logits [classes], which are not needed without each_class, its label (for multi-label 0, and its targets
   [classes]) and the best class. Call it before the row is counted. */
void snug_scores_add(struct snug_metric_accumulator *accumulator, const float *logits, int64_t label, int64_t predicted,
                     const float *targets);
/* Appends the metrics. */
snug_status snug_scores_more(struct snug_metric_accumulator *accumulator, struct snug_metric_list *out);

#endif
