/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: the evaluation program over a data set, batch by batch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/file.h"
#include "io/json.h"
#include "train/description.h"
#include "train/group.h"
#include "train/parallel.h"
#include "train/results.h"

/* ---- running -------------------------------------------------------------------------------------------------- */

/* Predictions and metrics of NaN or infinite outputs would look like valid ones. */
static snug_status check_finite(const struct snug_session *s, const struct snug_run *run, const int32_t *best) {
    for (int64_t i = 0; i < run->rows; i++)
        if (best[i] < 0)
            return snug_fail(
                s->ctx, SNUG_E_NUMERIC, "%s: row %lld: the model's outputs are %s: its values are too large for %s",
                snug_dataset_path(s->job.setup.eval.dataset), (long long)snug_batch_row(run->batch, run->first_row + i),
                best[i] == SNUG_BEST_NAN ? "NaN" : "infinite", snug_dtype_name(s->evaluation->program.compute));
    return SNUG_OK;
}

/* `rows` rows of a tensor from `first` on: where operations wrote them, or, from a device, in buffer. */
static snug_status view_rows(struct snug_session *s, int32_t tensor, int64_t first, int64_t rows, void *buffer,
                             const void **out) {
    const int64_t size = snug_run_cols(&s->eval_run, tensor) * snug_dtype_size(snug_run_dtype(&s->eval_run, tensor));
    const struct snug_block *arena = &s->job.runner.arena;
    const uint8_t *place = (const uint8_t *)snug_run_data(&s->eval_run, tensor) + first * size;
    *out = arena->copy ? buffer : place;
    return arena->copy ? snug_block_copy(s->ctx, arena, buffer, place, rows * size) : SNUG_OK;
}

/* Passes the chunk to on_chunk, in pieces for which the plan has room where logits are copied. */
static snug_status show_chunk(struct snug_session *s, const struct snug_inference *inference) {
    const struct snug_run *run = &s->eval_run;
    const struct snug_run_plan *plan = &s->job.plan;
    uint8_t *room = (uint8_t *)s->job.runner.host.base + plan->layout.function_offset + plan->metric_bytes;
    const int64_t most = plan->output_rows ? plan->output_rows : run->rows;
    struct snug_chunk chunk = {.first = run->first_row};
    const void *best, *logits = NULL;
    RETURN_IF_ERROR(view_rows(s, run->program->best, 0, run->rows, room, &best));
    RETURN_IF_ERROR(check_finite(s, run, best));
    do {
        const int64_t at = chunk.first - run->first_row;
        chunk.rows = run->rows - at < most ? run->rows - at : most;
        if (snug_setup_reads_logits(&s->job.setup))
            RETURN_IF_ERROR(view_rows(s, run->program->logits, at, chunk.rows, room + plan->logits_offset, &logits));
        chunk.best = (const int32_t *)best + at;
        chunk.logits = logits;
        RETURN_IF_ERROR(inference->on_chunk(inference->user, &chunk, run->batch));
        chunk.first += chunk.rows;
    } while (chunk.first < run->first_row + run->rows);
    return SNUG_OK;
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
        if (stop && group && !last) return interrupted(s, done + snug_group_size(group), batches);
    }
    report_progress(s, callbacks, batches, batches);
    return SNUG_OK;
}

/* ---- evaluating ----------------------------------------------------------------------------------------------- */

/* Ranks share the losses of so many of their batches at a time: they rarely wait for each other, and soon know of a
   request to stop. */
enum { TOGETHER = 16 };

struct snug_losses {
    double stop; /* not 0: the rank was asked to stop */
    double count, sums[TOGETHER], weights[TOGETHER];
    double results[TOGETHER][SNUG_PREFERENCE_RESULTS]; /* of preferences */
};

static struct snug_losses *own_losses(const struct snug_measurement *m) {
    return &m->ranks[snug_group_rank(m->session->job.setup.args->group)];
}

snug_status snug_measurement_open(struct snug_session *s, struct snug_measurement *out) {
    *out = (struct snug_measurement){.session = s};
    snug_metric_accumulator_reset(s->accumulator);
    return snug_alloc(s->ctx, (size_t)snug_group_size(s->job.setup.args->group), sizeof *out->ranks,
                      (void **)&out->ranks);
}

snug_status snug_measurement_add(void *user, const struct snug_chunk *chunk, const struct snug_batch *batch) {
    struct snug_measurement *m = user;
    struct snug_session *s = m->session;
    snug_metric_accumulator_add(s->accumulator, chunk, batch);
    /* The loss tensor accumulates over the chunks of a batch. */
    if (chunk->first + chunk->rows < batch->rows || !s->evaluation->program.loss) return SNUG_OK;
    float loss;
    RETURN_IF_ERROR(snug_session_read(s, &s->eval_run, s->evaluation->program.loss, &loss, sizeof loss));
    struct snug_losses *own = own_losses(m);
    if (s->evaluation->program.results) {
        float results[SNUG_PREFERENCE_RESULTS];
        RETURN_IF_ERROR(snug_session_read(s, &s->eval_run, s->evaluation->program.results, results, sizeof results));
        for (int i = 0; i < SNUG_PREFERENCE_RESULTS; i++) own->results[(int)own->count][i] = results[i];
    }
    own->sums[(int)own->count] = loss;
    own->weights[(int)own->count++] = batch->weight;
    return SNUG_OK;
}

/* Adds the losses of all ranks in the order of the batches, so that the sum has the bits of one rank's. */
snug_status snug_measurement_share(void *user, bool last, bool *stop) {
    struct snug_measurement *m = user;
    struct snug_session *s = m->session;
    const struct snug_process_group *group = s->job.setup.args->group;
    RETURN_IF_ERROR(snug_metric_accumulator_share(s->accumulator, group));
    own_losses(m)->stop += *stop;
    if (++m->rounds < TOGETHER && !last && group) {
        *stop = false;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_group_all_gather(s->ctx, group, m->ranks, sizeof *m->ranks));
    for (int64_t round = 0; round < m->rounds; round++)
        for (int r = 0; r < snug_group_size(group); r++) {
            const struct snug_losses *its = &m->ranks[r];
            *stop |= its->stop != 0;
            if (round >= (int64_t)its->count) continue;
            snug_metric_accumulator_add_loss(s->accumulator, its->sums[round], its->weights[round]);
            snug_metric_accumulator_add_results(s->accumulator, its->results[round]);
        }
    *own_losses(m) = (struct snug_losses){0};
    m->rounds = 0;
    return SNUG_OK;
}

snug_status snug_measurement_merge(const struct snug_measurement *m) {
    const struct snug_session *s = m->session;
    return snug_metric_accumulator_merge(s->accumulator, s->job.setup.args->group);
}

void snug_measurement_close(struct snug_measurement *m) { free(m->ranks); }

static snug_status evaluate(struct snug_session *s, const snug_callbacks *callbacks) {
    struct snug_measurement m;
    const struct snug_inference inference = {&m, snug_measurement_add, snug_measurement_share};
    snug_status status = snug_measurement_open(s, &m);
    if (status == SNUG_OK) status = snug_session_infer(s, callbacks, &inference);
    if (status == SNUG_OK) status = snug_measurement_merge(&m);
    snug_measurement_close(&m);
    return status;
}

static void add_metric(struct snug_metric_list *metrics, const char *name, double value) {
    metrics->items[metrics->count++] = (snug_metric){name, value};
}

snug_status snug_session_evaluate_with(struct snug_session *s, const snug_callbacks *callbacks,
                                       struct snug_metric_list *metrics) {
    if (!s->evaluation) return snug_fail(s->ctx, SNUG_E_USAGE, "there is no evaluation data: give --validation_file");
    const double begin = snug_seconds();
    RETURN_IF_ERROR(evaluate(s, callbacks));
    RETURN_IF_ERROR(snug_metric_accumulator_result(s->accumulator, metrics));
    if (snug_setup_answers(&s->job.setup)) RETURN_IF_ERROR(snug_session_answer(s, callbacks, metrics));
    const struct snug_generation_setup *g = &s->job.setup.generation;
    if (g->how.search.beams < g->asked_beams) add_metric(metrics, "eval_num_beams", (double)g->how.search.beams);
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

static snug_status write_results(const struct snug_session *s, const struct snug_metric_list *metrics,
                                 struct snug_output *output) {
    json_t *more = snug_session_confusion(s);
    if (!more) return snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while collecting results");
    const snug_status status = snug_results_write(output, "eval", metrics, more);
    json_decref(more);
    return status;
}

static snug_status create_metrics(const struct snug_session *s, const struct snug_metric_list *list,
                                  snug_metrics **out) {
    return snug_metrics_create(s->ctx, list, &s->job.setup.config.labels,
                               snug_metric_accumulator_confusion(s->accumulator), out);
}

snug_status snug_session_measure(struct snug_session *s, snug_metrics **metrics) {
    struct snug_metric_list list;
    RETURN_IF_ERROR(snug_session_evaluate_with(s, NULL, &list));
    return create_metrics(s, &list, metrics);
}

static snug_status evaluate_into(snug_args *args, const snug_callbacks *callbacks, struct snug_metric_list *metrics,
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
    if (writes) {
        RETURN_IF_ERROR(
            snug_output_make(s->ctx, args->output_dir, false, args->overwrite_output_dir, s->job.setup.mode, output));
        RETURN_IF_ERROR(write_results(s, metrics, output));
    }
    return snug_group_barrier(args->ctx, args->group);
}

static snug_status evaluate_in_group(snug_args *args, const snug_callbacks *callbacks, snug_metrics **metrics) {
    struct snug_session *s = NULL;
    struct snug_output output = {0};
    struct snug_metric_list list = {0};
    RETURN_IF_ERROR(snug_group_join(args));
    snug_status status = evaluate_into(args, callbacks, &list, &output, &s);
    if (status == SNUG_OK && metrics) status = create_metrics(s, &list, metrics);
    if (status != SNUG_OK) status = snug_group_fail(args, callbacks, status, -1);
    snug_output_close(&output);
    snug_session_close(s);
    return status;
}

snug_status snug_evaluate(snug_args *args, const snug_callbacks *callbacks, snug_metrics **metrics) {
    if (metrics) *metrics = NULL;
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, evaluate_in_group(args, callbacks, metrics));
}
