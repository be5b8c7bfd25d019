/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a task makes of a model's outputs: its metrics, its predictions and how they are written. A task has one
 * train/task_NAME.c with its struct snug_task_results; the table follows from the list in data/tasks.h.
 */
#ifndef SNUG_METRICS_TASK_RESULTS_H
#define SNUG_METRICS_TASK_RESULTS_H

#include "metrics/metrics.h"

struct snug_predicting; /* train/predictions_impl.h */
struct snug_output;     /* train/output.h */

/* Outputs of loss positions, and the row of the data set that each belongs to. */
struct snug_outputs {
    int64_t count;
    float *logits; /* [count, classes], read only */
    int64_t *rows; /* [count], ascending */
};

struct snug_task_results {
    const struct snug_metric_kind *metrics[SNUG_PROBLEM_COUNT];

    /* The state of predictions: its size, zero at the beginning; how it is prepared, also for another data set, and
       freed. open may be NULL. */
    size_t state_size;
    snug_status (*open)(struct snug_predicting *p);
    void (*close)(struct snug_predicting *p);
    /* Converts outputs to rows; calls follow each other in the order of the rows. */
    snug_status (*take)(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes);
    snug_status (*finish)(struct snug_predicting *p); /* after all batches; NULL: nothing to do */
    const char *nothing;                              /* logged if no row has a result; NULL: every row has one */

    const char *file;          /* in --output_dir, a line for each row; NULL: none */
    const char *more_files[4]; /* instead of it; up to NULL */
    snug_status (*write)(struct snug_predicting *p, struct snug_output *output); /* writes those, after finish */
    const char *columns; /* its first line, and then each line begins with the row's index; NULL: neither */
    /* A row's text in the file; NULL: its label. */
    const char *(*text)(struct snug_predicting *p, const snug_prediction *row);
};

#define SNUG_DECLARE_RESULTS(NAME, name, others) extern const struct snug_task_results snug_task_##name##_results;
SNUG_TASKS(SNUG_DECLARE_RESULTS)
#undef SNUG_DECLARE_RESULTS

const struct snug_task_results *snug_task_results(enum snug_task task);

#endif
