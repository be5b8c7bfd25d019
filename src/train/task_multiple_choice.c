/* SPDX-License-Identifier: Apache-2.0 */
/* Multiple choice: the number of the best choice of each row, and of all of them in their order. */
#include <math.h>
#include <stdlib.h>

#include "data/dataset_impl.h"
#include "metrics/metrics_impl.h"
#include "train/predictions_impl.h"

struct state {
    int64_t row; /* the current one, -1: none */
    float *scores;
    size_t count, capacity;
    struct snug_candidates candidates;
    int64_t *order;      /* its choices by score */
    char (*numbers)[24]; /* the same as texts */
    size_t order_capacity, name_capacity;
};

static snug_status open_state(struct snug_predicting *p) {
    struct state *s = p->state;
    s->row = -1;
    s->count = 0;
    return SNUG_OK;
}

static void close_state(struct snug_predicting *p) {
    struct state *s = p->state;
    free(s->scores);
    free(s->order);
    free(s->numbers);
    snug_candidates_free(&s->candidates);
}

/* By score, the highest first, of equal ones the first. */
static void sort(struct state *s) {
    for (int64_t i = 0; i < (int64_t)s->count; i++) {
        int64_t at = i;
        for (; at > 0 && s->scores[i] > s->scores[s->order[at - 1]]; at--) s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

static snug_status end_row(struct snug_predicting *p) {
    struct state *s = p->state;
    snug_context *ctx = p->session->ctx;
    double sum = 0;
    if (s->row < 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_candidates_reserve(ctx, &s->candidates, s->count));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&s->order, &s->order_capacity, s->count, sizeof *s->order));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&s->numbers, &s->name_capacity, s->count, sizeof *s->numbers));
    sort(s);
    for (size_t i = 0; i < s->count; i++) {
        snprintf(s->numbers[i], sizeof s->numbers[i], "%lld", (long long)s->order[i]);
        s->candidates.names[i] = s->numbers[i];
        s->candidates.scores[i] = exp((double)s->scores[s->order[i]] - (double)s->scores[s->order[0]]);
        sum += s->candidates.scores[i];
    }
    for (size_t i = 0; i < s->count; i++) s->candidates.scores[i] /= sum;
    snug_prediction row = {.index = s->row,
                           .score = s->candidates.scores[0],
                           .logits_count = s->count,
                           .logits = s->scores,
                           .candidate_count = s->count,
                           .ranked = true,
                           .candidates = s->candidates.names,
                           .candidate_scores = s->candidates.scores};
    RETURN_IF_ERROR(snug_prediction_set_label(p, s->numbers[0]));
    s->count = 0;
    s->row = -1;
    return snug_prediction_give(p, &row, row.index);
}

static snug_status take_scores(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes) {
    struct state *s = p->state;
    (void)classes; /* 1 */
    for (int64_t i = 0; i < outputs->count; i++) {
        if (outputs->rows[i] != s->row) RETURN_IF_ERROR(end_row(p));
        s->row = outputs->rows[i];
        RETURN_IF_ERROR(snug_grow(p->session->ctx, (void **)&s->scores, &s->capacity, s->count + 1, sizeof *s->scores));
        s->scores[s->count++] = outputs->logits[i];
    }
    return SNUG_OK;
}

const struct snug_task_results snug_task_multiple_choice_results = {
    .metrics = {&snug_choice_metrics, &snug_choice_metrics, &snug_choice_metrics},
    .state_size = sizeof(struct state),
    .open = open_state,
    .close = close_state,
    .take = take_scores,
    .finish = end_row,
    .file = "predict_results.txt",
    .columns = "index\tprediction\n",
};
