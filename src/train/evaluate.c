/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation and prediction: the evaluation program over a data set, batch by batch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json.h"
#include "train/results.h"
#include "train/session.h"

/* ---- running -------------------------------------------------------------------------------------------------- */

/* The sequence that a token belongs to. */
static int64_t sequence_of(const struct snug_batch *batch, int32_t token) {
    int64_t low = 0, high = batch->sequences - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (batch->offsets[middle] <= token)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Row of the data set that head row number row of the batch belongs to. */
static int64_t row_of(const struct snug_batch *batch, int64_t row) {
    return batch->first_row + sequence_of(batch, batch->head_rows[row]);
}

static bool all_finite(const float *values, int64_t count) {
    int infinite = 0;
    for (int64_t i = 0; i < count; i++) infinite |= !isfinite(values[i]);
    return !infinite;
}

/* Predictions and metrics would be made of NaN or infinite outputs too, and would look like any others. */
static snug_status check_finite(const struct snug_session *s, const float *logits, const struct snug_run *run,
                                int64_t cols) {
    if (all_finite(logits, run->rows * cols)) return SNUG_OK;
    int64_t i = 0;
    while (isfinite(logits[i])) i++;
    return snug_fail(s->ctx, SNUG_E_NUMERIC,
                     "%s: row %lld: the model's outputs are %s: its numbers are too large for %s",
                     snug_dataset_path(s->job.eval.dataset), (long long)row_of(run->batch, run->first_row + i / cols),
                     isnan(logits[i]) ? "NaN" : "infinite", snug_dtype_name(s->job.evaluation->compute));
}

/* Lets on_chunk see the chunk's logits. */
static snug_status show_chunk(struct snug_session *s, snug_logits_fn *on_chunk, void *user) {
    const struct snug_run *run = &s->eval_run;
    const int32_t logits = s->job.evaluation->logits;
    const int64_t cols = snug_run_cols(run, logits), bytes = run->rows * cols * (int64_t)sizeof(float);
    void *view, *place = snug_run_data(run, logits);
    RETURN_IF_ERROR(snug_view_open(s->ctx, &s->arena, place, bytes, SNUG_VIEW_READ, &view));
    snug_status status = check_finite(s, view, run, cols);
    if (status == SNUG_OK) status = on_chunk(user, view, run->first_row, run->rows, run->batch);
    const snug_status closed = snug_view_close(s->ctx, &s->arena, place, bytes, SNUG_VIEW_READ, view);
    return status != SNUG_OK ? status : closed;
}

snug_status snug_session_infer(struct snug_session *s, const snug_callbacks *callbacks, snug_logits_fn *on_chunk,
                               void *user) {
    struct snug_run *run = &s->eval_run;
    const int64_t batches = snug_loader_batches(s->job.eval.rows, &s->job.eval.options);
    s->batch = NULL; /* its activations, and the backend's copy of it, are overwritten */
    RETURN_IF_ERROR(snug_session_settle(s));
    RETURN_IF_ERROR(snug_loader_begin_epoch(s->eval_loader, 0, 0));
    for (int64_t done = 0;; done++) {
        if (callbacks && callbacks->on_event)
            callbacks->on_event(callbacks->user,
                                &(snug_event){.kind = SNUG_EVENT_PROGRESS, .step = done, .max_steps = batches});
        snug_status status = snug_loader_next(s->eval_loader, &run->batch);
        if (status == SNUG_END) return SNUG_OK;
        if (status != SNUG_OK) return status;
        if (callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user))
            return snug_fail(s->ctx, SNUG_E_INTERRUPTED, "interrupted after %lld of %lld batches", (long long)done,
                             (long long)batches);
        run->loss_scale = 1;
        RETURN_IF_ERROR(snug_session_load(s, run));
        RETURN_IF_ERROR(snug_run_phase(run, s->job.backend, SNUG_PHASE_FORWARD, NULL));
        for (int64_t chunk = 0; chunk < snug_head_chunks(run); chunk++) {
            RETURN_IF_ERROR(snug_run_head_chunk(run, s->job.backend, chunk, NULL));
            RETURN_IF_ERROR(show_chunk(s, on_chunk, user));
        }
    }
}

/* ---- evaluating ----------------------------------------------------------------------------------------------- */

static snug_status measure(void *user, const float *logits, int64_t first_row, int64_t rows,
                           const struct snug_batch *batch) {
    struct snug_session *s = user;
    const int64_t classes = s->job.config.task == SNUG_TASK_MLM ? 1 : s->job.config.labels.count;
    const bool wide = s->job.config.labels.problem == SNUG_PROBLEM_MULTI_LABEL;
    snug_meter_add(s->meter, logits, batch->labels + first_row,
                   batch->targets ? batch->targets + first_row * (wide ? classes : 1) : NULL, rows);
    /* The loss tensor adds up over the chunks of a batch. */
    if (first_row + rows < batch->rows) return SNUG_OK;
    float loss;
    RETURN_IF_ERROR(snug_session_read(s, &s->eval_run, s->job.evaluation->loss, &loss, sizeof loss));
    snug_meter_add_loss(s->meter, loss, batch->items);
    return SNUG_OK;
}

static void add_metric(snug_metrics *metrics, const char *name, double value) {
    metrics->items[metrics->count++] = (snug_metric){name, value};
}

snug_status snug_session_evaluate_with(struct snug_session *s, const snug_callbacks *callbacks, snug_metrics *metrics) {
    if (!s->job.evaluation)
        return snug_fail(s->ctx, SNUG_E_USAGE, "there is nothing to evaluate on: give --validation_file");
    const double begin = snug_seconds();
    snug_meter_reset(s->meter);
    RETURN_IF_ERROR(snug_session_infer(s, callbacks, measure, s));
    RETURN_IF_ERROR(snug_meter_result(s->meter, metrics));
    const double seconds = snug_seconds() - begin;
    const double batches = (double)snug_loader_batches(s->job.eval.rows, &s->job.eval.options);
    add_metric(metrics, "eval_runtime", seconds);
    add_metric(metrics, "eval_samples", (double)s->job.eval.rows);
    add_metric(metrics, "eval_samples_per_second", (double)s->job.eval.rows / seconds);
    add_metric(metrics, "eval_steps_per_second", batches / seconds);
    return SNUG_OK;
}

snug_status snug_session_evaluate(snug_session *s, snug_metrics *metrics) {
    snug_clear_error(s->ctx);
    return snug_session_evaluate_with(s, NULL, metrics);
}

snug_status snug_evaluate(snug_args *args, const snug_callbacks *callbacks, snug_metrics *metrics) {
    struct snug_session *s;
    snug_clear_error(args->ctx);
    const bool writes = snug_args_is_set(args, "output_dir") && args->output_dir; /* not what a training chose */
    struct snug_output output = {0};
    if (writes) RETURN_IF_ERROR(snug_folder_check(args->ctx, args->output_dir));
    if (writes)
        RETURN_IF_ERROR(snug_output_open(args->ctx, args->output_dir, false, args->overwrite_output_dir, &output));
    snug_status status = snug_session_open(args, SNUG_COMMAND_EVAL, callbacks, &s);
    if (status == SNUG_OK) status = snug_session_evaluate_with(s, callbacks, metrics);
    if (status == SNUG_OK && writes)
        status = snug_output_make(s->ctx, args->output_dir, false, args->overwrite_output_dir, s->job.mode, &output);
    if (status == SNUG_OK && writes) status = snug_results_write(&output, "eval", metrics, NULL);
    snug_output_close(&output);
    snug_session_destroy(s);
    return status;
}

/* ---- predicting ----------------------------------------------------------------------------------------------- */

struct predicting {
    struct snug_session *session;
    snug_status (*on_row)(void *user, const snug_prediction *row);
    void *user;
    char *label;
    size_t label_capacity;
    int64_t rows;
};

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static snug_status set_label(struct predicting *p, const char *text) {
    const size_t size = strlen(text) + 1;
    RETURN_IF_ERROR(snug_grow(p->session->ctx, (void **)&p->label, &p->label_capacity, size, 1));
    memcpy(p->label, text, size);
    return SNUG_OK;
}

static snug_status append_label(struct predicting *p, const char *text) {
    const size_t length = strlen(p->label);
    RETURN_IF_ERROR(snug_grow(p->session->ctx, (void **)&p->label, &p->label_capacity, length + strlen(text) + 2, 1));
    snprintf(p->label + length, p->label_capacity - length, "%s%s", length ? "|" : "", text);
    return SNUG_OK;
}

/* The likeliest class, and its softmax probability. */
static int64_t best_class(const float *logits, int64_t count, double *probability) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    for (int64_t i = 0; i < count; i++) sum += exp((double)logits[i] - (double)logits[best]);
    *probability = 1 / sum;
    return best;
}

static snug_status name_row(struct predicting *p, const float *logits, int64_t classes, double *score) {
    const struct snug_config *config = &p->session->job.config;
    const struct snug_labels *labels = &config->labels;
    if (config->task == SNUG_TASK_MLM) {
        const int64_t token = best_class(logits, classes, score);
        return set_label(p, snug_tokenizer_token(p->session->job.tokenizer, (int32_t)token));
    }
    if (labels->problem == SNUG_PROBLEM_SINGLE_LABEL)
        return set_label(p, labels->names[best_class(logits, classes, score)]);
    if (labels->problem == SNUG_PROBLEM_REGRESSION) {
        char text[32];
        snprintf(text, sizeof text, "%.9g", (double)logits[0]);
        *score = logits[0];
        return set_label(p, text);
    }
    RETURN_IF_ERROR(set_label(p, ""));
    *score = 1;
    for (int64_t i = 0; i < classes; i++) {
        if (!(logits[i] > 0)) continue; /* a probability above one half */
        RETURN_IF_ERROR(append_label(p, labels->names[i]));
        *score = fmin(*score, sigmoid(logits[i]));
    }
    return SNUG_OK;
}

static snug_status predict_chunk(void *user, const float *logits, int64_t first_row, int64_t rows,
                                 const struct snug_batch *batch) {
    struct predicting *p = user;
    const struct snug_program *program = p->session->job.evaluation;
    const int64_t classes = program->tensors[program->logits].cols;
    for (int64_t i = 0; i < rows; i++) {
        snug_prediction row = {
            .index = row_of(batch, first_row + i), .logits_count = (size_t)classes, .logits = logits + i * classes};
        RETURN_IF_ERROR(name_row(p, row.logits, classes, &row.score));
        row.label = p->label;
        p->rows++;
        RETURN_IF_ERROR(p->on_row(p->user, &row));
    }
    return SNUG_OK;
}

snug_status snug_predict(snug_args *args, const snug_callbacks *callbacks,
                         snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    struct predicting p = {.on_row = on_row, .user = user};
    RETURN_IF_ERROR(snug_session_open(args, SNUG_COMMAND_PREDICT, callbacks, &p.session));
    snug_status status = snug_session_infer(p.session, callbacks, predict_chunk, &p);
    if (status == SNUG_OK && p.rows == 0) /* classification has an output for every row */
        snug_log(args->ctx, SNUG_LOG_WARNING, "%s: no row has a mask token, and masked LM fills in nothing else",
                 args->test_file);
    free(p.label);
    snug_session_destroy(p.session);
    return status;
}
