/* SPDX-License-Identifier: Apache-2.0 */
/* Sequence classification and regression: the class of each row, its classes, or its value. */
#include <math.h>
#include <stdio.h>

#include "metrics/metrics_impl.h"
#include "train/predictions_impl.h"

struct state {
    struct snug_candidates candidates;
    char value[64]; /* regression: in the file */
};

static bool predicts_value(const struct snug_predicting *p) {
    return p->session->job.setup.config.labels.problem == SNUG_PROBLEM_REGRESSION;
}

static snug_status open_state(struct snug_predicting *p) {
    const struct snug_setup *setup = &p->session->job.setup;
    if (predicts_value(p) && setup->args->return_all_scores)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "--return_all_scores is for classes; this model predicts a value");
    return SNUG_OK;
}

static void close_state(struct snug_predicting *p) { snug_candidates_free(&((struct state *)p->state)->candidates); }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static snug_status name_classes(struct snug_predicting *p, const float *logits, int64_t classes, double *score) {
    const struct snug_labels *labels = &p->session->job.setup.config.labels;
    if (labels->problem == SNUG_PROBLEM_SINGLE_LABEL)
        return snug_prediction_set_label(p, labels->names[snug_best_class(logits, classes, score)]);
    if (labels->problem == SNUG_PROBLEM_REGRESSION) {
        char text[32];
        snprintf(text, sizeof text, "%.9g", (double)logits[0]);
        *score = logits[0];
        return snug_prediction_set_label(p, text);
    }
    RETURN_IF_ERROR(snug_prediction_set_label(p, ""));
    *score = 1;
    for (int64_t i = 0; i < classes; i++) {
        if (!snug_is_predicted(logits[i], p->session->job.setup.args->threshold)) continue;
        RETURN_IF_ERROR(snug_prediction_append_label(p, "|", labels->names[i]));
        *score = fmin(*score, sigmoid(logits[i]));
    }
    return SNUG_OK;
}

/* All classes with their probabilities. */
static snug_status list_classes(struct snug_predicting *p, snug_prediction *row) {
    const struct snug_labels *labels = &p->session->job.setup.config.labels;
    const int64_t classes = (int64_t)row->logits_count;
    struct state *state = p->state;
    double best;
    if (!p->session->job.setup.args->return_all_scores) return SNUG_OK;
    RETURN_IF_ERROR(snug_candidates_reserve(p->session->ctx, &state->candidates, row->logits_count));
    const float most = row->logits[snug_best_class(row->logits, classes, &best)];
    for (int64_t i = 0; i < classes; i++)
        state->candidates.scores[i] = labels->problem == SNUG_PROBLEM_MULTI_LABEL
                                          ? sigmoid(row->logits[i])
                                          : best * exp((double)row->logits[i] - (double)most);
    row->candidate_count = row->logits_count;
    row->candidates = (const char *const *)labels->names;
    row->candidate_scores = state->candidates.scores;
    return SNUG_OK;
}

static snug_status take_classes(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes) {
    return snug_predictions_take_each(p, outputs, classes, name_classes, list_classes);
}

/* A value as the scripts write it. */
static const char *text(struct snug_predicting *p, const snug_prediction *row) {
    struct state *state = p->state;
    if (!predicts_value(p)) return row->label;
    snprintf(state->value, sizeof state->value, "%3.3f", row->score);
    return state->value;
}

const struct snug_task_results snug_task_classification_results = {
    .metrics = {&snug_single_label_metrics, &snug_multi_label_metrics, &snug_regression_metrics},
    .state_size = sizeof(struct state),
    .open = open_state,
    .close = close_state,
    .take = take_classes,
    .file = "predict_results.txt",
    .columns = "index\tprediction\n",
    .text = text,
};
