/* SPDX-License-Identifier: Apache-2.0 */
/* Reranking: the score of each row's document, or its documents by their scores; with --query all rows' documents. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"
#include "metrics/metrics_impl.h"
#include "train/predictions_impl.h"

struct scored {
    int64_t row, member;
    float logit;
};

struct state {
    struct scored *documents; /* of the current row, or with --query of all */
    size_t count, capacity;
    struct snug_candidates candidates;
    struct snug_row_buffer buffer;
};

static snug_status open_state(struct snug_predicting *p) {
    const struct snug_args *args = p->session->job.setup.args;
    ((struct state *)p->state)->count = 0;
    if (!args->query || !args->keep_columns) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE,
                     "--keep_columns reads the file in its order, and --query sorts its rows: leave one out");
}

static void close_state(struct snug_predicting *p) {
    struct state *s = p->state;
    free(s->documents);
    free(s->buffer.data);
    snug_candidates_free(&s->candidates);
}

/* As CrossEncoder.predict(). */
static double score_of(const struct snug_predicting *p, float logit) {
    return snug_config_has_sigmoid(&p->session->job.setup.config) ? 1 / (1 + exp(-(double)logit)) : (double)logit;
}

static int compare(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    const int rows = (x->row > y->row) - (x->row < y->row);
    return rows ? rows : (x->member > y->member) - (x->member < y->member);
}

static snug_status read_group(struct snug_predicting *p, int64_t row, struct snug_group *out) {
    struct state *s = p->state;
    struct snug_dataset_row text;
    RETURN_IF_ERROR(snug_dataset_read(p->session->ctx, p->session->job.setup.eval.dataset, row, &s->buffer, &text));
    snug_dataset_row_group(&text, out);
    return SNUG_OK;
}

static const char *text_of(const struct snug_group *group, int64_t member) {
    const char *at = group->texts;
    for (; at && member > 0; member--) at += strlen(at) + 1;
    return at ? at : ""; /* synthetic data has none */
}

static snug_status give(struct snug_predicting *p, const char *label, const struct scored *document,
                        size_t candidates) {
    struct state *s = p->state;
    snug_prediction row = {.index = document->row,
                           .score = score_of(p, document->logit),
                           .logits_count = 1,
                           .logits = &document->logit,
                           .candidate_count = candidates,
                           .ranked = candidates > 0,
                           .candidates = s->candidates.names,
                           .candidate_scores = s->candidates.scores};
    RETURN_IF_ERROR(snug_prediction_set_label(p, label));
    return snug_prediction_give(p, &row, row.index);
}

/* The documents of the current row, the best one first; of one its score. */
static snug_status end_row(struct snug_predicting *p) {
    struct state *s = p->state;
    struct snug_group group;
    char number[32];
    if (!s->count) return SNUG_OK;
    RETURN_IF_ERROR(read_group(p, s->documents->row, &group));
    qsort(s->documents, s->count, sizeof *s->documents, compare);
    RETURN_IF_ERROR(snug_candidates_reserve(p->session->ctx, &s->candidates, s->count));
    for (size_t i = 0; i < s->count; i++) {
        s->candidates.names[i] = text_of(&group, s->documents[i].member);
        s->candidates.scores[i] = score_of(p, s->documents[i].logit);
    }
    snprintf(number, sizeof number, "%.9g", s->candidates.scores[0]);
    const bool several = s->count > 1;
    const snug_status status = give(p, several ? s->candidates.names[0] : number, s->documents, several ? s->count : 0);
    s->count = 0;
    return status;
}

static snug_status take_scores(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes) {
    struct state *s = p->state;
    const bool all = p->session->job.setup.args->query;
    (void)classes; /* 1 */
    for (int64_t i = 0; i < outputs->count; i++) {
        const struct scored *last = s->count ? &s->documents[s->count - 1] : NULL;
        const bool same = last && last->row == outputs->rows[i];
        const int64_t member = same ? last->member + 1 : 0;
        if (!same && !all) RETURN_IF_ERROR(end_row(p));
        RETURN_IF_ERROR(
            snug_grow(p->session->ctx, (void **)&s->documents, &s->capacity, s->count + 1, sizeof *s->documents));
        s->documents[s->count++] = (struct scored){outputs->rows[i], member, outputs->logits[i]};
    }
    return SNUG_OK;
}

static snug_status finish(struct snug_predicting *p) {
    struct state *s = p->state;
    struct snug_group group;
    if (!p->session->job.setup.args->query) return end_row(p);
    qsort(s->documents, s->count, sizeof *s->documents, compare);
    for (size_t i = 0; i < s->count; i++) {
        RETURN_IF_ERROR(read_group(p, s->documents[i].row, &group));
        RETURN_IF_ERROR(give(p, text_of(&group, s->documents[i].member), &s->documents[i], 0));
    }
    return SNUG_OK;
}

const struct snug_task_results snug_task_reranking_results = {
    .metrics = {&snug_ranking_metrics, &snug_ranking_metrics, &snug_ranking_metrics},
    .state_size = sizeof(struct state),
    .open = open_state,
    .close = close_state,
    .take = take_scores,
    .finish = finish,
    .file = "predict_results.txt",
    .columns = "index\tprediction\n",
};
