/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: the evaluation program over a data set, batch by batch. */
#include <math.h>
#include <stdlib.h>

#include "io/file.h"
#include "io/json.h"
#include "train/description.h"
#include "train/group.h"
#include "train/parallel.h"
#include "train/results.h"

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
static snug_status show_chunk(struct snug_session *s, const struct snug_inference *inference) {
    const struct snug_run *run = &s->eval_run;
    const int32_t logits = s->evaluation->program.logits;
    const int64_t cols = snug_run_cols(run, logits), bytes = run->rows * cols * (int64_t)sizeof(float);
    void *view, *place = snug_run_data(run, logits);
    RETURN_IF_ERROR(snug_view_open(s->ctx, &s->job.runner.arena, place, bytes, SNUG_VIEW_READ, &view));
    snug_status status = check_finite(s, view, run, cols);
    if (status == SNUG_OK) status = inference->on_chunk(inference->user, view, run->first_row, run->rows, run->batch);
    const snug_status closed = snug_view_close(s->ctx, &s->job.runner.arena, place, bytes, SNUG_VIEW_READ, view);
    return status != SNUG_OK ? status : closed;
}

static snug_status run_batch(struct snug_session *s, const struct snug_inference *inference) {
    struct snug_run *run = &s->eval_run;
    run->loss_scale = 1;
    RETURN_IF_ERROR(snug_session_load(s, run));
    RETURN_IF_ERROR(snug_run_phase(run, s->job.setup.backend, SNUG_PHASE_FORWARD, NULL));
    for (int64_t chunk = 0; chunk < snug_head_chunks(run); chunk++) {
        RETURN_IF_ERROR(snug_run_head_chunk(run, s->job.setup.backend, chunk, NULL));
        RETURN_IF_ERROR(show_chunk(s, inference));
    }
    return SNUG_OK;
}

/* A rank without a batch in the last round: with ZeRO stage 3 the others need its shards of the weights. */
static snug_status attend(struct snug_session *s) {
    struct snug_run run = s->eval_run;
    run.idle = true;
    run.batch = NULL;
    return snug_run_phase(&run, s->job.setup.backend, SNUG_PHASE_FORWARD, NULL);
}

static void report_progress(const struct snug_session *s, const snug_callbacks *callbacks, int64_t done,
                            int64_t batches) {
    if (!callbacks || !callbacks->on_event || snug_group_rank(s->job.setup.args->group) != 0) return;
    callbacks->on_event(callbacks->user,
                        &(snug_event){.kind = SNUG_EVENT_PROGRESS, .step = done, .max_steps = batches});
}

static snug_status interrupted(const struct snug_session *s, int64_t done, int64_t batches) {
    return snug_fail(s->ctx, SNUG_E_INTERRUPTED, "interrupted after %lld of %lld batches", (long long)done,
                     (long long)batches);
}

/* A rank cannot stop alone: on several ranks the request counts when all know of it. */
snug_status snug_session_infer(struct snug_session *s, const snug_callbacks *callbacks,
                               const struct snug_inference *inference) {
    const struct snug_process_group *group = s->job.setup.args->group;
    const int64_t batches = snug_loader_batches(s->job.setup.eval.rows, &s->evaluation->pipeline.options);
    s->batch = NULL; /* its activations, and the backend's copy of the batch, are overwritten */
    snug_group_at(group, s->training ? s->step : -1, "in an evaluation");
    RETURN_IF_ERROR(snug_session_flush(s));
    RETURN_IF_ERROR(snug_loader_begin_epoch(s->eval_loader, 0, 0));
    for (int64_t done = 0; done < batches; done += snug_group_size(group)) {
        const bool last = done + snug_group_size(group) >= batches;
        RETURN_IF_ERROR(snug_group_check(s->ctx, group));
        report_progress(s, callbacks, done, batches);
        const snug_status status = snug_loader_next(s->eval_loader, &s->eval_run.batch);
        if (status != SNUG_OK && status != SNUG_END) return status; /* END: the last round's rest */
        bool stop = callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user);
        if (stop && !group) return interrupted(s, done, batches);
        RETURN_IF_ERROR(status == SNUG_OK ? run_batch(s, inference) : attend(s));
        RETURN_IF_ERROR(inference->on_round(inference->user, last, &stop));
        /* may be untested: a rank that is ended records nothing */
        if (stop && group && !last) return interrupted(s, done + snug_group_size(group), batches);
    }
    report_progress(s, callbacks, batches, batches);
    return SNUG_OK;
}

/* ---- evaluating ----------------------------------------------------------------------------------------------- */

/* Ranks share the losses of so many of their batches at a time: they rarely wait for each other, and soon know of a
   request to stop. */
enum { TOGETHER = 16 };

/* One rank's batches since the ranks shared the last ones. */
struct losses {
    double stop; /* not 0: the rank was asked to stop */
    double count, sums[TOGETHER], items[TOGETHER];
};

struct evaluating {
    struct snug_session *session;
    struct losses *ranks; /* [size] */
    int64_t rounds;       /* since the last exchange */
};

static struct losses *own_losses(const struct evaluating *e) {
    return &e->ranks[snug_group_rank(e->session->job.setup.args->group)];
}

static snug_status measure(void *user, const float *logits, int64_t first_row, int64_t rows,
                           const struct snug_batch *batch) {
    struct evaluating *e = user;
    struct snug_session *s = e->session;
    snug_metric_accumulator_add(s->accumulator, logits, batch, first_row, rows);
    /* The loss tensor accumulates over the chunks of a batch. */
    if (first_row + rows < batch->rows) return SNUG_OK;
    float loss;
    RETURN_IF_ERROR(snug_session_read(s, &s->eval_run, s->evaluation->program.loss, &loss, sizeof loss));
    struct losses *own = own_losses(e);
    own->sums[(int)own->count] = loss;
    own->items[(int)own->count++] = (double)batch->items;
    return SNUG_OK;
}

/* Adds the losses of all ranks in the order of the batches, so that the sum has the bits of one rank's. */
static snug_status share_losses(void *user, bool last, bool *stop) {
    struct evaluating *e = user;
    struct snug_session *s = e->session;
    const struct snug_process_group *group = s->job.setup.args->group;
    if (++e->rounds < TOGETHER && !last && group) {
        own_losses(e)->stop += *stop;
        *stop = false;
        return SNUG_OK;
    }
    own_losses(e)->stop += *stop;
    RETURN_IF_ERROR(snug_group_all_gather(s->ctx, group, e->ranks, sizeof *e->ranks));
    for (int64_t round = 0; round < e->rounds; round++)
        for (int r = 0; r < snug_group_size(group); r++) {
            const struct losses *its = &e->ranks[r];
            *stop |= its->stop != 0;
            if (round < (int64_t)its->count)
                snug_metric_accumulator_add_loss(s->accumulator, its->sums[round], (int64_t)its->items[round]);
        }
    *own_losses(e) = (struct losses){0};
    e->rounds = 0;
    return SNUG_OK;
}

static snug_status evaluate(struct snug_session *s, const snug_callbacks *callbacks) {
    const struct snug_process_group *group = s->job.setup.args->group;
    struct evaluating e = {.session = s};
    const struct snug_inference inference = {&e, measure, share_losses};
    RETURN_IF_ERROR(snug_alloc(s->ctx, (size_t)snug_group_size(group), sizeof *e.ranks, (void **)&e.ranks));
    const snug_status status = snug_session_infer(s, callbacks, &inference);
    free(e.ranks);
    RETURN_IF_ERROR(status);
    return snug_metric_accumulator_merge(s->accumulator, group, s->evaluation->pipeline.options.batch_size);
}

static void add_metric(snug_metrics *metrics, const char *name, double value) {
    metrics->items[metrics->count++] = (snug_metric){name, value};
}

snug_status snug_session_evaluate_with(struct snug_session *s, const snug_callbacks *callbacks, snug_metrics *metrics) {
    if (!s->evaluation) return snug_fail(s->ctx, SNUG_E_USAGE, "there is no evaluation data: give --validation_file");
    const double begin = snug_seconds();
    snug_metric_accumulator_reset(s->accumulator);
    RETURN_IF_ERROR(evaluate(s, callbacks));
    RETURN_IF_ERROR(snug_metric_accumulator_result(s->accumulator, metrics));
    const double seconds = snug_seconds() - begin;
    const double batches = (double)snug_loader_batches(s->job.setup.eval.rows, &s->evaluation->pipeline.options);
    add_metric(metrics, "eval_runtime", seconds);
    add_metric(metrics, "eval_samples", (double)s->job.setup.eval.rows);
    add_metric(metrics, "eval_samples_per_second", (double)s->job.setup.eval.rows / seconds);
    add_metric(metrics, "eval_steps_per_second", batches / seconds);
    return SNUG_OK;
}

snug_status snug_session_evaluate(snug_session *s, snug_metrics *metrics) {
    snug_clear_error(s->ctx);
    return snug_session_evaluate_with(s, NULL, metrics);
}

static snug_status evaluate_into(snug_args *args, const snug_callbacks *callbacks, snug_metrics *metrics,
                                 struct snug_output *output, struct snug_session **session) {
    const bool writes = snug_group_rank(args->group) == 0 && snug_args_is_set(args, "output_dir") &&
                        args->output_dir; /* not what a training chose */
    if (writes) RETURN_IF_ERROR(snug_folder_check(args->ctx, args->output_dir));
    if (writes)
        RETURN_IF_ERROR(snug_output_open(args->ctx, args->output_dir, false, args->overwrite_output_dir, output));
    RETURN_IF_ERROR(snug_session_open(args, SNUG_COMMAND_EVAL, callbacks, session));
    struct snug_session *s = *session;
    RETURN_IF_ERROR(snug_parallel_compare(&s->job, &s->memory, 0));
    RETURN_IF_ERROR(snug_description_tell(s, callbacks));
    RETURN_IF_ERROR(snug_session_evaluate_with(s, callbacks, metrics));
    if (writes)
        RETURN_IF_ERROR(
            snug_output_make(s->ctx, args->output_dir, false, args->overwrite_output_dir, s->job.setup.mode, output));
    if (writes) RETURN_IF_ERROR(snug_results_write(output, "eval", metrics, NULL));
    return snug_group_barrier(args->ctx, args->group);
}

snug_status snug_evaluate(snug_args *args, const snug_callbacks *callbacks, snug_metrics *metrics) {
    struct snug_session *s = NULL;
    struct snug_output output = {0};
    snug_clear_error(args->ctx);
    RETURN_IF_ERROR(snug_group_join(args));
    snug_status status = evaluate_into(args, callbacks, metrics, &output, &s);
    if (status != SNUG_OK) status = snug_group_fail(args, callbacks, status, -1);
    snug_output_close(&output);
    snug_session_destroy(s);
    return status;
}
