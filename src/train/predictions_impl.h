/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions, for the files of the tasks (metrics/task_results.h). */
#ifndef SNUG_TRAIN_PREDICTIONS_IMPL_H
#define SNUG_TRAIN_PREDICTIONS_IMPL_H

#include "metrics/task_results.h"
#include "train/kept_columns.h"
#include "train/predict_files.h"
#include "train/predictions.h"

/* A rank's report after a round. */
struct snug_prediction_report {
    int64_t count; /* loss positions of its batch */
    int64_t stop;  /* not 0: it received a stop request */
};

struct snug_predicting {
    enum snug_command command; /* of a file */
    struct snug_session *session;
    const struct snug_task_results *task;
    void *state; /* the task's */
    snug_status (*on_row)(void *user, const snug_prediction *row);
    void *user;
    char *label;
    size_t label_length, label_capacity;
    int64_t rows;  /* given to on_row */
    int64_t first; /* index of the data set's first row, in results */
    bool measured; /* every row has a label */
    struct snug_measurement measurement;
    struct snug_kept_columns kept;
    struct snug_row_buffer kept_buffer;
    struct snug_predict_files files;

    /* In planned memory: of this rank's current batch; on rank 0 of several also of all ranks, one after the other. */
    struct snug_outputs batch, all;
    struct snug_prediction_report *reports;
};

/* The row's label: text, or text after those before it and a separator. */
snug_status snug_prediction_set_label(struct snug_predicting *p, const char *text);
snug_status snug_prediction_append_label(struct snug_predicting *p, const char *separator, const char *text);
/* Passes a row to on_row and writes it, with its label. from: the row of the data set. */
snug_status snug_prediction_give(struct snug_predicting *p, snug_prediction *row, int64_t from);
/* The most probable class, and its softmax probability. */
int64_t snug_best_class(const float *logits, int64_t count, double *probability);

/* Candidates of a row: classes or tokens. The classes' names are the config's. */
struct snug_candidates {
    const char **names; /* [name_capacity] */
    double *scores;
    size_t name_capacity, score_capacity;
};
snug_status snug_candidates_reserve(snug_context *ctx, struct snug_candidates *candidates, size_t count);
void snug_candidates_free(struct snug_candidates *candidates);

/* Each loss position is a row of its own: name sets its label and score, list its candidates. */
snug_status snug_predictions_take_each(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes,
                                       snug_status (*name)(struct snug_predicting *, const float *, int64_t, double *),
                                       snug_status (*list)(struct snug_predicting *, snug_prediction *));

#endif
