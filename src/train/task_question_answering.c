/* SPDX-License-Identifier: Apache-2.0 */
/* Question answering: the answer of each question, and its n best ones, from all windows of its context. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"
#include "io/json.h"
#include "metrics/metrics_impl.h"
#include "train/predictions_impl.h"

struct state {
    int64_t row;   /* of the current window, -1: none; and its scores so far */
    float *logits; /* [tokens, 2] */
    size_t tokens, logit_capacity;
    struct snug_row_buffer buffer;
    /* Of the current question: */
    int64_t example, last; /* -1: none; its last window */
    char *id, *context;
    struct snug_answer_span *spans;
    size_t span_count, span_capacity;
    struct snug_answer_span null; /* the least score of no answer */
    char *text;                   /* of the answers, one after another */
    size_t text_capacity;
    struct snug_candidates candidates;
    json_t *answers, *best, *odds; /* of all questions, for the files */
    snug_status status;            /* of take_span() */
    snug_context *ctx;
};

static void free_question(struct state *s) {
    free(s->id);
    free(s->context);
    s->id = s->context = NULL;
    s->span_count = 0;
    s->example = -1;
}

static void free_documents(struct state *s) {
    json_decref(s->answers);
    json_decref(s->best);
    json_decref(s->odds);
    s->answers = s->best = s->odds = NULL;
}

static snug_status open_state(struct snug_predicting *p) {
    struct state *s = p->state;
    free_question(s);
    free_documents(s);
    s->ctx = p->session->ctx;
    s->row = -1;
    s->tokens = 0;
    s->answers = json_object();
    s->best = json_object();
    s->odds = json_object();
    return SNUG_OK;
}

static void close_state(struct snug_predicting *p) {
    struct state *s = p->state;
    free_question(s);
    free_documents(s);
    free(s->logits);
    free(s->buffer.data);
    free(s->spans);
    free(s->text);
    snug_candidates_free(&s->candidates);
}

static struct snug_answer_rules rules_of(const struct snug_predicting *p) {
    return snug_setup_metrics(&p->session->job.setup).answers;
}

/* ---- a question ---- */

static void take_span(void *user, const struct snug_answer_span *span) {
    struct state *s = user;
    if (s->status == SNUG_OK)
        s->status = snug_grow(s->ctx, (void **)&s->spans, &s->span_capacity, s->span_count + 1, sizeof *s->spans);
    if (s->status == SNUG_OK) s->spans[s->span_count++] = *span;
}

/* By score, the highest first; of equal ones the one that came first, which has a lower address. */
static int compare_spans(const void *a, const void *b) {
    const struct snug_answer_span *x = *(struct snug_answer_span *const *)a, *y = *(struct snug_answer_span *const *)b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x > y) - (x < y);
}

/* The texts and probabilities of the best answers. */
static snug_status list_answers(struct state *s, struct snug_answer_span *const *order, size_t count) {
    size_t size = 0, used = 0;
    double sum = 0;
    RETURN_IF_ERROR(snug_candidates_reserve(s->ctx, &s->candidates, count));
    for (size_t i = 0; i < count; i++) size += order[i]->end - order[i]->begin + 1;
    RETURN_IF_ERROR(snug_grow(s->ctx, (void **)&s->text, &s->text_capacity, size, 1));
    for (size_t i = 0; i < count; i++) {
        const size_t length = order[i]->end - order[i]->begin;
        memcpy(s->text + used, s->context + order[i]->begin, length);
        s->text[used + length] = '\0';
        s->candidates.names[i] = s->text + used;
        s->candidates.scores[i] = exp((double)order[i]->score - (double)order[0]->score);
        sum += s->candidates.scores[i];
        used += length + 1;
    }
    for (size_t i = 0; i < count; i++) s->candidates.scores[i] /= sum;
    return SNUG_OK;
}

static json_t *best_json(const struct state *s, struct snug_answer_span *const *order, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        snug_json_append(&list, json_pack("{s:s,s:f,s:f,s:f}", "text", s->candidates.names[i], "probability",
                                          s->candidates.scores[i], "start_logit", (double)order[i]->start, "end_logit",
                                          (double)order[i]->stop));
    return list;
}

/* Sorts the answers, of which null is the one that there is none (NULL: there must be one), into order, which has room
   for one more; returns how many remain. Without any, empty is the first. */
static size_t order_answers(struct state *s, const struct snug_answer_rules *rules, const struct snug_answer_span *null,
                            struct snug_answer_span *empty, struct snug_answer_span **order) {
    size_t count = s->span_count;
    bool has_null = false;
    for (size_t i = 0; i < count; i++) order[i] = &s->spans[i];
    qsort(order, count, sizeof *order, compare_spans);
    if (count > (size_t)rules->n_best) count = (size_t)rules->n_best;
    for (size_t i = 0; i < count; i++) has_null |= order[i] == null;
    if (null && !has_null) order[count++] = &s->spans[s->span_count - 1];
    if (count > (null != NULL)) return count;
    memmove(order + 1, order, count * sizeof *order);
    order[0] = empty;
    return count + 1;
}

/* Gives the answer of the current question. */
static snug_status choose_answer(struct snug_predicting *p, const struct snug_answer_rules *rules,
                                 const struct snug_answer_span *null, struct snug_answer_span **order) {
    struct state *s = p->state;
    struct snug_answer_span empty = {0};
    const size_t count = order_answers(s, rules, null, &empty, order);
    const size_t best = order[0] == null;
    const double score = (double)order[best]->score;
    const bool none = snug_answer_is_none(rules, (double)s->null.score, score);
    RETURN_IF_ERROR(list_answers(s, order, count));
    if (order[best] == &empty) s->candidates.names[best] = SNUG_ANSWER_EMPTY;
    size_t chosen = best;
    if (none)
        for (chosen = 0; order[chosen] != null;) chosen++;
    const char *answer = s->candidates.names[chosen];
    RETURN_IF_ERROR(snug_prediction_set_label(p, answer));
    snug_json_add(&s->answers, s->id, snug_json_from_text(answer));
    snug_json_add(&s->best, s->id, best_json(s, order, count));
    if (null) snug_json_add(&s->odds, s->id, snug_json_number((double)s->null.score - score));
    snug_prediction row = {.index = s->example,
                           .score = s->candidates.scores[chosen],
                           .candidate_count = count,
                           .ranked = true,
                           .candidates = s->candidates.names,
                           .candidate_scores = s->candidates.scores};
    return snug_prediction_give(p, &row, s->last);
}

static snug_status end_question(struct snug_predicting *p) {
    struct state *s = p->state;
    const struct snug_answer_rules rules = rules_of(p);
    struct snug_answer_span **order;
    if (s->example < 0) return SNUG_OK;
    if (rules.negative) take_span(s, &s->null);
    RETURN_IF_ERROR(s->status);
    RETURN_IF_ERROR(snug_alloc(s->ctx, s->span_count + 1, sizeof *order, (void **)&order));
    const struct snug_answer_span *null = rules.negative ? &s->spans[s->span_count - 1] : NULL;
    const snug_status status = choose_answer(p, &rules, null, order);
    free(order);
    free_question(s);
    return status;
}

/* ---- windows ---- */

static snug_status begin_question(struct state *s, const struct snug_answers *window) {
    char number[16];
    snprintf(number, sizeof number, "%u", (unsigned)window->example);
    RETURN_IF_ERROR(snug_strdup(s->ctx, *window->id ? window->id : number, &s->id));
    RETURN_IF_ERROR(snug_strdup(s->ctx, window->context, &s->context));
    s->example = window->example;
    s->null = (struct snug_answer_span){.score = INFINITY};
    return SNUG_OK;
}

static snug_status end_window(struct snug_predicting *p) {
    struct state *s = p->state;
    const struct snug_answer_rules rules = rules_of(p);
    struct snug_dataset_row text;
    struct snug_answers window;
    if (s->row < 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_dataset_read(s->ctx, p->session->job.setup.eval.dataset, s->row, &s->buffer, &text));
    snug_dataset_row_answers(&text, &window);
    if (window.example != s->example) {
        RETURN_IF_ERROR(end_question(p));
        RETURN_IF_ERROR(begin_question(s, &window));
    }
    const float null = s->logits[0] + s->logits[1];
    if (null < s->null.score)
        s->null = (struct snug_answer_span){.score = null, .start = s->logits[0], .stop = s->logits[1]};
    s->status = SNUG_OK;
    snug_answer_spans(&rules, &window, s->logits, (int64_t)s->tokens, take_span, s);
    s->last = s->row;
    s->tokens = 0;
    return s->status;
}

static snug_status take_scores(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes) {
    struct state *s = p->state;
    for (int64_t i = 0; i < outputs->count; i++) {
        if (outputs->rows[i] != s->row) RETURN_IF_ERROR(end_window(p));
        s->row = outputs->rows[i];
        RETURN_IF_ERROR(
            snug_grow(s->ctx, (void **)&s->logits, &s->logit_capacity, 2 * (s->tokens + 1), sizeof *s->logits));
        memcpy(s->logits + 2 * s->tokens++, outputs->logits + i * classes, 2 * sizeof *s->logits);
    }
    return SNUG_OK;
}

static snug_status finish(struct snug_predicting *p) {
    RETURN_IF_ERROR(end_window(p));
    return end_question(p);
}

/* run_qa.py's names. */
static snug_status write_documents(struct snug_predicting *p, struct snug_output *output) {
    const struct state *s = p->state;
    if (!s->answers || !s->best || !s->odds)
        return snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while collecting answers");
    const struct snug_answer_rules rules = rules_of(p);
    const struct snug_folder *in = &output->folder;
    RETURN_IF_ERROR(snug_json_write(s->ctx, in, "predict_predictions.json", s->answers));
    RETURN_IF_ERROR(snug_json_write(s->ctx, in, "predict_nbest_predictions.json", s->best));
    return rules.negative ? snug_json_write(s->ctx, in, "predict_null_odds.json", s->odds) : SNUG_OK;
}

const struct snug_task_results snug_task_question_answering_results = {
    .metrics = {&snug_answer_metrics, &snug_answer_metrics, &snug_answer_metrics},
    .state_size = sizeof(struct state),
    .open = open_state,
    .close = close_state,
    .take = take_scores,
    .finish = finish,
    .more_files = {"predict_predictions.json", "predict_nbest_predictions.json", "predict_null_odds.json"},
    .write = write_documents,
};
