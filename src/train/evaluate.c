/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: the evaluation program over a data set, batch by batch. */
#include <math.h>
#include <stdio.h>

#include "io/file.h"
#include "io/json.h"
#include "train/results.h"
#include "train/session.h"

/* ---- running -------------------------------------------------------------------------------------------------- */

static bool all_finite(const float *values, int64_t count) {
    int infinite = 0;
    for (int64_t i = 0; i < count; i++) infinite |= !isfinite(values[i]);
    return !infinite;
}

/* Predictions and metrics of NaN or infinite outputs would look like valid ones. */
static snug_status check_finite(const struct snug_session *s, const float *logits, const struct snug_run *run,
                                int64_t cols) {
    if (all_finite(logits, run->rows * cols)) return SNUG_OK;
    int64_t i = 0;
    while (isfinite(logits[i])) i++;
    return snug_fail(
        s->ctx, SNUG_E_NUMERIC, "%s: row %lld: the model's outputs are %s: its values are too large for %s",
        snug_dataset_path(s->job.setup.eval.dataset), (long long)snug_batch_row(run->batch, run->first_row + i / cols),
        isnan(logits[i]) ? "NaN" : "infinite", snug_dtype_name(s->evaluation->program.compute));
}

/* Passes the chunk's logits to on_chunk. */
static snug_status show_chunk(struct snug_session *s, snug_logits_fn *on_chunk, void *user) {
    const struct snug_run *run = &s->eval_run;
    const int32_t logits = s->evaluation->program.logits;
    const int64_t cols = snug_run_cols(run, logits), bytes = run->rows * cols * (int64_t)sizeof(float);
    void *view, *place = snug_run_data(run, logits);
    RETURN_IF_ERROR(snug_view_open(s->ctx, &s->job.runner.arena, place, bytes, SNUG_VIEW_READ, &view));
    snug_status status = check_finite(s, view, run, cols);
    if (status == SNUG_OK) status = on_chunk(user, view, run->first_row, run->rows, run->batch);
    const snug_status closed = snug_view_close(s->ctx, &s->job.runner.arena, place, bytes, SNUG_VIEW_READ, view);
    return status != SNUG_OK ? status : closed;
}

snug_status snug_session_infer(struct snug_session *s, const snug_callbacks *callbacks, snug_logits_fn *on_chunk,
                               void *user) {
    struct snug_run *run = &s->eval_run;
    const int64_t batches = snug_loader_batches(s->job.setup.eval.rows, &s->evaluation->pipeline.options);
    s->batch = NULL; /* its activations, and the backend's copy of the batch, are overwritten */
    RETURN_IF_ERROR(snug_session_flush(s));
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
        RETURN_IF_ERROR(snug_run_phase(run, s->job.setup.backend, SNUG_PHASE_FORWARD, NULL));
        for (int64_t chunk = 0; chunk < snug_head_chunks(run); chunk++) {
            RETURN_IF_ERROR(snug_run_head_chunk(run, s->job.setup.backend, chunk, NULL));
            RETURN_IF_ERROR(show_chunk(s, on_chunk, user));
        }
    }
}

/* ---- evaluating ----------------------------------------------------------------------------------------------- */

snug_status snug_session_measure(void *user, const float *logits, int64_t first_row, int64_t rows,
                                 const struct snug_batch *batch) {
    struct snug_session *s = user;
    snug_metric_accumulator_add(s->accumulator, logits, batch, first_row, rows);
    /* The loss tensor accumulates over the chunks of a batch. */
    if (first_row + rows < batch->rows) return SNUG_OK;
    float loss;
    RETURN_IF_ERROR(snug_session_read(s, &s->eval_run, s->evaluation->program.loss, &loss, sizeof loss));
    snug_metric_accumulator_add_loss(s->accumulator, loss, batch->items);
    return SNUG_OK;
}

static void add_metric(snug_metrics *metrics, const char *name, double value) {
    metrics->items[metrics->count++] = (snug_metric){name, value};
}

snug_status snug_session_evaluate_with(struct snug_session *s, const snug_callbacks *callbacks, snug_metrics *metrics) {
    if (!s->evaluation) return snug_fail(s->ctx, SNUG_E_USAGE, "there is no evaluation data: give --validation_file");
    const double begin = snug_seconds();
    snug_metric_accumulator_reset(s->accumulator);
    RETURN_IF_ERROR(snug_session_infer(s, callbacks, snug_session_measure, s));
    RETURN_IF_ERROR(snug_metric_accumulator_result(s->accumulator, metrics));
    const double seconds = snug_seconds() - begin;
    const double batches = (double)snug_loader_batches(s->job.setup.eval.rows, &s->evaluation->pipeline.options);
    add_metric(metrics, "eval_runtime", seconds);
    add_metric(metrics, "eval_samples", (double)s->job.setup.eval.rows);
    add_metric(metrics, "eval_samples_per_second", (double)s->job.setup.eval.rows / seconds);
    add_metric(metrics, "eval_steps_per_second", batches / seconds);
    return SNUG_OK;
}

json_t *snug_session_confusion(const struct snug_session *s) {
    const int64_t *counts = snug_metric_accumulator_confusion(s->accumulator);
    const struct snug_labels *labels = &s->job.setup.config.labels;
    json_t *names = json_array(), *rows = json_array(), *object = json_object();
    for (int64_t i = 0; counts && i < labels->count; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < labels->count; k++) snug_json_append(&row, json_integer(counts[i * labels->count + k]));
        snug_json_append(&names, snug_json_from_text(labels->names[i]));
        snug_json_append(&rows, row);
    }
    if (counts) snug_json_add(&object, "confusion_matrix", json_pack("{s:O, s:O}", "labels", names, "counts", rows));
    json_decref(names);
    json_decref(rows);
    return object;
}

/* A line for each class, in the log: the metrics of a result are numbers. */
static void log_confusion(const struct snug_session *s, const json_t *matrix) {
    enum { MOST = 20 };
    const json_t *names = json_object_get(matrix, "labels"), *counts = json_object_get(matrix, "counts");
    const size_t classes = json_array_size(names);
    if (classes == 0) return;
    snug_log(s->ctx, SNUG_LOG_INFO, "confusion matrix: a line for each class, a column for each predicted class%s",
             classes > MOST ? "; too many to print: it is in eval_results.json of --output_dir" : "");
    for (size_t i = 0; i < classes && classes <= MOST; i++) {
        char line[MOST * 24] = "";
        size_t used = 0;
        for (size_t k = 0; k < classes; k++)
            used += (size_t)snprintf(line + used, sizeof line - used, " %7lld",
                                     (long long)json_integer_value(json_array_get(json_array_get(counts, i), k)));
        snug_log(s->ctx, SNUG_LOG_INFO, "%s  %s", line, json_string_value(json_array_get(names, i)));
    }
}

/* output: NULL if nothing is written. */
static snug_status write_results(const struct snug_session *s, const snug_metrics *metrics,
                                 struct snug_output *output) {
    json_t *more = snug_session_confusion(s);
    if (!more) return snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while collecting results");
    log_confusion(s, json_object_get(more, "confusion_matrix"));
    const snug_status status = output ? snug_results_write(output, "eval", metrics, more) : SNUG_OK;
    json_decref(more);
    return status;
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
        status =
            snug_output_make(s->ctx, args->output_dir, false, args->overwrite_output_dir, s->job.setup.mode, &output);
    if (status == SNUG_OK) status = write_results(s, metrics, writes ? &output : NULL);
    snug_output_close(&output);
    snug_session_destroy(s);
    return status;
}
