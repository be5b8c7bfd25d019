/* SPDX-License-Identifier: Apache-2.0 */
/* Exact match and F1 of answers to questions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"
#include "metrics/metrics_impl.h"

/* In memory: what is known of each window, the scores of the current one, and its row of the data set. */
struct window_result {
    float best, null;    /* scores of the best answer and of none */
    uint32_t begin, end; /* the best answer; equal: none is possible */
};
_Static_assert(sizeof(struct window_result) == 2 * sizeof(uint64_t), "results are merged as words");

struct state {
    int64_t tokens;     /* of the current window, so far */
    snug_status status; /* of reading rows */
};

static struct window_result *results_of(const struct snug_metric_accumulator *a) { return a->memory; }
static float *logits_of(const struct snug_metric_accumulator *a) {
    return (float *)(void *)(results_of(a) + a->options.rows);
}
static int64_t logit_bytes(const struct snug_metric_accumulator_options *options) {
    return snug_dataset_longest(options->dataset) * 2 * (int64_t)sizeof(float);
}

static int64_t bytes(const struct snug_metric_accumulator_options *options) {
    return options->rows * (int64_t)sizeof(struct window_result) + logit_bytes(options) +
           snug_dataset_row_bytes(options->dataset);
}

/* Reads row number `row` of the data set. */
static bool read_window(struct snug_metric_accumulator *a, int64_t row, struct snug_answers *out) {
    const struct snug_metric_accumulator_options *options = &a->options;
    struct state *s = a->state;
    struct snug_row_buffer buffer = {(uint8_t *)logits_of(a) + logit_bytes(options),
                                     (size_t)snug_dataset_row_bytes(options->dataset)};
    struct snug_dataset_row text;
    if (s->status == SNUG_OK) s->status = snug_dataset_read(a->ctx, options->dataset, row, &buffer, &text);
    if (s->status != SNUG_OK) return false;
    snug_dataset_row_answers(&text, out);
    return true;
}

static void take_best(void *user, const struct snug_answer_span *span) {
    struct window_result *best = user;
    if (best->begin < best->end && span->score <= best->best) return;
    best->best = span->score;
    best->begin = span->begin;
    best->end = span->end;
}

static void end_window(struct snug_metric_accumulator *a, int64_t row) {
    struct state *s = a->state;
    struct snug_answers window;
    const float *logits = logits_of(a);
    const int64_t tokens = s->tokens;
    s->tokens = 0;
    if (a->rows == a->options.rows) a->misuse = "more rows than were announced";
    if (a->misuse || !read_window(a, row, &window)) return;
    struct window_result *result = &results_of(a)[a->rows++];
    *result = (struct window_result){.null = logits[0] + logits[1]};
    snug_answer_spans(&a->options.answers, &window, logits, tokens, take_best, result);
}

/* A window's scores may come in several chunks. */
static void add(struct snug_metric_accumulator *a, const struct snug_chunk *chunk, const struct snug_batch *batch) {
    struct state *s = a->state;
    for (int64_t i = 0; i < chunk->rows; i++) {
        const int64_t position = chunk->first + i, next = position + 1;
        memcpy(logits_of(a) + 2 * s->tokens++, chunk->logits + 2 * i, 2 * sizeof(float));
        if (next == batch->rows || batch->labels[next] & SNUG_SEGMENT_BEGINS)
            end_window(a, snug_batch_row(batch, position));
    }
}

static snug_status merge(struct snug_metric_accumulator *a, const struct snug_process_group *group, int64_t batch) {
    struct window_result *results = results_of(a);
    const struct state *s = a->state;
    uint64_t *words;
    RETURN_IF_ERROR(s->status);
    RETURN_IF_ERROR(snug_alloc(a->ctx, (size_t)a->options.rows, sizeof *words, (void **)&words));
    snug_status status = SNUG_OK;
    for (int half = 0; half < 2 && status == SNUG_OK; half++) {
        for (int64_t i = 0; i < a->rows; i++) memcpy(&words[i], (uint64_t *)(void *)&results[i] + half, sizeof *words);
        status = snug_metric_merge_words(a, group, batch, words);
        for (int64_t i = 0; i < a->options.rows; i++)
            memcpy((uint64_t *)(void *)&results[i] + half, &words[i], sizeof *words);
    }
    free(words);
    return status;
}

/* The windows of the question that begins with row `first`; adds its exact match and F1. Returns the row after them. */
static int64_t add_question(struct snug_metric_accumulator *a, int64_t first, double sums[2], int64_t *questions) {
    struct state *s = a->state;
    struct snug_answers window;
    struct window_result best = {.null = INFINITY};
    uint32_t example = 0;
    double exact, f1;
    int64_t row = first;
    for (; row < a->rows && read_window(a, row, &window); row++) {
        const struct window_result *its = &results_of(a)[row];
        if (row == first) example = window.example;
        if (window.example != example) break;
        best.null = fminf(best.null, its->null);
        if (its->begin < its->end)
            take_best(&best, &(struct snug_answer_span){.score = its->best, .begin = its->begin, .end = its->end});
    }
    if (!read_window(a, first, &window)) return a->rows;
    if (window.start == SNUG_NO_ANSWER) return row;
    const bool none = best.begin == best.end;
    const char *text = none ? SNUG_ANSWER_EMPTY : window.context + best.begin;
    size_t length = none ? strlen(text) : best.end - best.begin;
    if (snug_answer_is_none(&a->options.answers, (double)best.null, (double)best.best)) length = 0;
    s->status = snug_answer_compare(a->ctx, &window, text, length, a->options.answers.negative, &exact, &f1);
    if (s->status != SNUG_OK) return a->rows;
    sums[0] += exact;
    sums[1] += f1;
    ++*questions;
    return row;
}

static void result(struct snug_metric_accumulator *a, double *values) {
    double sums[2] = {0};
    int64_t questions = 0;
    for (int64_t row = 0; row < a->rows;) row = add_question(a, row, sums, &questions);
    for (int i = 0; i < 2; i++) values[1 + i] = questions ? 100 * sums[i] / (double)questions : NAN;
}

static snug_status more(struct snug_metric_accumulator *a, struct snug_metric_list *out) {
    (void)out;
    return ((const struct state *)a->state)->status;
}

const struct snug_metric_kind snug_answer_metrics = {
    .names = {"eval_loss", "eval_exact_match", "eval_f1"},
    .main = 2,
    .state_size = sizeof(struct state),
    .bytes = bytes,
    .add = add,
    .logits = true,
    .merge = merge,
    .result = result,
    .more = more,
};
