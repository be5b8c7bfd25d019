/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions: the outputs of all batches, which the task converts to rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/label_names.h"
#include "train/description.h"
#include "train/group.h"
#include "train/parallel.h"
#include "train/predictions_impl.h"

snug_status snug_prediction_append_label(struct snug_predicting *p, const char *separator, const char *text) {
    const size_t length = strlen(text), gap = p->label_length ? strlen(separator) : 0;
    RETURN_IF_ERROR(
        snug_grow(p->session->ctx, (void **)&p->label, &p->label_capacity, p->label_length + gap + length + 1, 1));
    memcpy(p->label + p->label_length, separator, gap);
    memcpy(p->label + p->label_length + gap, text, length + 1);
    p->label_length += gap + length;
    return SNUG_OK;
}

snug_status snug_prediction_set_label(struct snug_predicting *p, const char *text) {
    p->label_length = 0;
    return snug_prediction_append_label(p, "", text);
}

/* The row's values in the file, which is the one that begins in line. */
static snug_status keep_columns(struct snug_predicting *p, int64_t line, snug_prediction *row) {
    RETURN_IF_ERROR(snug_kept_columns_seek(&p->kept, line));
    row->column_count = p->kept.count;
    row->column_names = (const char *const *)p->kept.names;
    row->columns = p->kept.texts;
    return SNUG_OK;
}

snug_status snug_prediction_give(struct snug_predicting *p, snug_prediction *row, int64_t from) {
    struct snug_dataset_row text;
    RETURN_IF_ERROR(
        snug_dataset_read(p->session->ctx, p->session->job.setup.eval.dataset, from, &p->kept_buffer, &text));
    row->label = p->label;
    row->truncated = text.truncated;
    row->index += p->first;
    p->rows++;
    if (p->kept.reader) RETURN_IF_ERROR(keep_columns(p, text.line, row));
    if (p->files.open)
        snug_predict_files_add(&p->files, row->index, p->task->text ? p->task->text(p, row) : row->label);
    return p->on_row(p->user, row);
}

int64_t snug_best_class(const float *logits, int64_t count, double *probability) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    for (int64_t i = 0; i < count; i++) sum += exp((double)logits[i] - (double)logits[best]);
    *probability = 1 / sum;
    return best;
}

snug_status snug_candidates_reserve(snug_context *ctx, struct snug_candidates *candidates, size_t count) {
    RETURN_IF_ERROR(
        snug_grow(ctx, (void **)&candidates->names, &candidates->name_capacity, count, sizeof *candidates->names));
    return snug_grow(ctx, (void **)&candidates->scores, &candidates->score_capacity, count, sizeof *candidates->scores);
}

void snug_candidates_free(struct snug_candidates *candidates) {
    free(candidates->names);
    free(candidates->scores);
}

snug_status snug_predictions_take_each(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes,
                                       snug_status (*name)(struct snug_predicting *, const float *, int64_t, double *),
                                       snug_status (*list)(struct snug_predicting *, snug_prediction *)) {
    for (int64_t i = 0; i < outputs->count; i++) {
        snug_prediction row = {
            .index = outputs->rows[i], .logits_count = (size_t)classes, .logits = outputs->logits + i * classes};
        RETURN_IF_ERROR(name(p, row.logits, classes, &row.score));
        RETURN_IF_ERROR(list(p, &row));
        RETURN_IF_ERROR(snug_prediction_give(p, &row, row.index));
    }
    return SNUG_OK;
}

/* ---- batches --------------------------------------------------------------------------------------------------- */

static int64_t classes_of(const struct snug_predicting *p) {
    const struct snug_program *program = &p->session->evaluation->program;
    return program->tensors[program->logits].cols;
}

static const struct snug_process_group *group_of(const struct snug_predicting *p) {
    return p->session->job.setup.args->group;
}

/* One rank converts a chunk's outputs; several collect those of the batch. */
static snug_status take_chunk(void *user, const struct snug_chunk *chunk, const struct snug_batch *batch) {
    struct snug_predicting *p = user;
    struct snug_outputs *to = &p->batch;
    const int64_t classes = classes_of(p), rows = chunk->rows;
    if (p->measured) RETURN_IF_ERROR(snug_measurement_add(&p->measurement, chunk, batch));
    for (int64_t i = 0; i < rows; i++) to->rows[to->count + i] = snug_batch_row(batch, chunk->first + i);
    if (!group_of(p))
        return p->task->take(p, &(struct snug_outputs){rows, (float *)(uintptr_t)chunk->logits, to->rows}, classes);
    memcpy(to->logits + to->count * classes, chunk->logits, (size_t)(rows * classes) * sizeof *chunk->logits);
    to->count += rows;
    return SNUG_OK;
}

/* Where the plan has room for outputs. */
static void place_outputs(struct snug_predicting *p) {
    const struct snug_job *job = &p->session->job;
    const int64_t most = job->plan.collected_rows, size = snug_group_size(group_of(p));
    const int64_t lists = size > 1 && snug_group_rank(group_of(p)) == 0 ? size + 1 : 1;
    const int64_t offset = job->plan.layout.function_offset + job->plan.collected_offset;
    p->batch.rows = (int64_t *)(void *)((uint8_t *)job->runner.host.base + offset);
    p->batch.logits = (float *)(p->batch.rows + lists * most);
    p->all = (struct snug_outputs){0, p->batch.logits + most * classes_of(p), p->batch.rows + most};
}

/* Rank 0 gets the outputs of all ranks, and converts them in the order of the ranks, which is that of the rows. */
static snug_status gather(struct snug_predicting *p, const struct snug_process_group *group) {
    snug_context *ctx = p->session->ctx;
    const int64_t classes = classes_of(p);
    int64_t most = 0;
    for (int r = 0; r < group->ranks.size; r++)
        if (p->reports[r].count > most) most = p->reports[r].count;
    RETURN_IF_ERROR(
        snug_group_gather(ctx, group, p->batch.logits, most * classes * (int64_t)sizeof(float), p->all.logits));
    RETURN_IF_ERROR(snug_group_gather(ctx, group, p->batch.rows, most * (int64_t)sizeof(int64_t), p->all.rows));
    for (int r = 0; r < group->ranks.size && group->ranks.rank == 0; r++) {
        const struct snug_outputs outputs = {p->reports[r].count, p->all.logits + r * most * classes,
                                             p->all.rows + r * most};
        RETURN_IF_ERROR(p->task->take(p, &outputs, classes));
    }
    return SNUG_OK;
}

static snug_status end_round(void *user, bool last, bool *stop) {
    struct snug_predicting *p = user;
    const struct snug_process_group *group = group_of(p);
    bool heard = false; /* all ranks receive the stop request in every round, below */
    if (p->measured) RETURN_IF_ERROR(snug_measurement_share(&p->measurement, last, &heard));
    if (!group) return SNUG_OK;
    p->reports[group->ranks.rank] = (struct snug_prediction_report){p->batch.count, *stop};
    RETURN_IF_ERROR(snug_group_all_gather(p->session->ctx, group, p->reports, sizeof *p->reports));
    for (int r = 0; r < group->ranks.size; r++) *stop |= p->reports[r].stop != 0;
    RETURN_IF_ERROR(gather(p, group));
    p->batch.count = 0;
    return SNUG_OK;
}

static void release(struct snug_predicting *p) {
    free(p->label);
    free(p->kept_buffer.data);
    if (p->state) p->task->close(p);
    free(p->state);
    snug_kept_columns_close(&p->kept);
    snug_predict_files_close(&p->files);
    snug_measurement_close(&p->measurement);
    free(p->reports);
}

/* The metrics under Trainer's names for predictions; none without labels. */
static snug_status finish_metrics(struct snug_predicting *p, double seconds, struct snug_metric_list *metrics) {
    struct snug_session *s = p->session;
    const double rows = (double)s->job.setup.eval.rows;
    if (!p->measured) return SNUG_OK;
    RETURN_IF_ERROR(snug_metric_accumulator_result(s->accumulator, metrics));
    for (size_t i = 0; i < metrics->count; i++) {
        char *name;
        const char *own = metrics->items[i].name;
        RETURN_IF_ERROR(snug_format(s->ctx, &name, "predict_%s", strncmp(own, "eval_", 5) == 0 ? own + 5 : own));
        const snug_status status = snug_keep_text(s->ctx, name, &metrics->items[i].name);
        free(name);
        RETURN_IF_ERROR(status);
        char shown[SNUG_NAME_SHOWN];
        snug_log(s->ctx, SNUG_LOG_INFO, "%s = %.10g", snug_name_show(shown, metrics->items[i].name),
                 metrics->items[i].value);
    }
    metrics->items[metrics->count++] = (snug_metric){"predict_runtime", seconds};
    metrics->items[metrics->count++] = (snug_metric){"predict_samples", rows};
    metrics->items[metrics->count++] = (snug_metric){"predict_samples_per_second", rows / seconds};
    const double batches = (double)snug_loader_batches(s->job.setup.eval.rows, &s->evaluation->pipeline.options);
    metrics->items[metrics->count++] = (snug_metric){"predict_steps_per_second", batches / seconds};
    return SNUG_OK;
}

static snug_status open_task(struct snug_predicting *p) {
    const struct snug_setup *setup = &p->session->job.setup;
    p->task = snug_task_results(setup->config.task);
    place_outputs(p);
    RETURN_IF_ERROR(snug_alloc(setup->ctx, 1, p->task->state_size, &p->state));
    return p->task->open ? p->task->open(p) : SNUG_OK;
}

/* Rank 0 alone converts and writes. */
static snug_status prepare(struct snug_predicting *p) {
    const struct snug_setup *setup = &p->session->job.setup;
    const struct snug_args *args = setup->args;
    const struct snug_process_group *group = args->group;
    RETURN_IF_ERROR(open_task(p));
    const bool words = snug_setup_task(setup)->words;
    p->measured = snug_dataset_all_labelled(setup->eval.dataset);
    if (group)
        RETURN_IF_ERROR(snug_alloc(args->ctx, (size_t)group->ranks.size, sizeof *p->reports, (void **)&p->reports));
    RETURN_IF_ERROR(snug_measurement_open(p->session, &p->measurement));
    if (snug_group_rank(group) != 0) return SNUG_OK;
    const int64_t labelled = snug_dataset_labelled(setup->eval.dataset);
    if (!p->measured && labelled)
        snug_log(args->ctx, SNUG_LOG_WARNING, "%s: no metrics: only %lld of %lld rows have %s",
                 snug_dataset_path(setup->eval.dataset), (long long)labelled, (long long)setup->eval.rows,
                 words ? "tags" : "a label");
    RETURN_IF_ERROR(snug_kept_columns_open(args, words, snug_dataset_columns(setup->eval.dataset), &p->kept));
    return snug_predict_files_begin(args, setup->mode, p->task, &p->files);
}

/* After all batches, on rank 0. */
static snug_status finish(struct snug_predicting *p, double begin) {
    const struct snug_setup *setup = &p->session->job.setup;
    struct snug_metric_list metrics = {0};
    if (p->task->finish) RETURN_IF_ERROR(p->task->finish(p));
    if (p->task->write && p->files.written) RETURN_IF_ERROR(p->task->write(p, &p->files.output));
    RETURN_IF_ERROR(finish_metrics(p, snug_seconds() - begin, &metrics));
    RETURN_IF_ERROR(snug_predict_files_end(&p->files, &metrics));
    if (p->rows == 0 && p->task->nothing)
        snug_log(setup->ctx, SNUG_LOG_WARNING, "%s: %s", snug_dataset_path(setup->eval.dataset), p->task->nothing);
    return SNUG_OK;
}

static snug_status predict(struct snug_predicting *p, snug_args *args, const snug_callbacks *callbacks) {
    const struct snug_inference inference = {p, take_chunk, end_round};
    const bool leads = snug_group_rank(args->group) == 0;
    RETURN_IF_ERROR(snug_args_check(args, p->command == SNUG_COMMAND_EMBED ? "embed" : "predict"));
    RETURN_IF_ERROR(snug_kept_columns_check(args));
    if (leads && p->command == SNUG_COMMAND_PREDICT) RETURN_IF_ERROR(snug_predict_files_check(args, &p->files));
    RETURN_IF_ERROR(snug_session_open(args, p->command, callbacks, &p->session));
    RETURN_IF_ERROR(snug_parallel_compare(&p->session->job, &p->session->memory, 0));
    RETURN_IF_ERROR(snug_description_tell(p->session, callbacks));
    const double begin = snug_seconds();
    RETURN_IF_ERROR(prepare(p));
    RETURN_IF_ERROR(snug_session_infer(p->session, callbacks, &inference));
    if (p->measured) RETURN_IF_ERROR(snug_measurement_merge(&p->measurement));
    if (leads) RETURN_IF_ERROR(finish(p, begin));
    return snug_group_barrier(args->ctx, args->group);
}

static snug_status predict_in_group(struct snug_predicting *p, snug_args *args, const snug_callbacks *callbacks) {
    RETURN_IF_ERROR(snug_group_join(args));
    snug_status status = predict(p, args, callbacks);
    if (status != SNUG_OK) status = snug_group_fail(args, callbacks, status, -1);
    release(p);
    snug_session_close(p->session);
    return status;
}

static snug_status predict_alone(snug_args *args, enum snug_command command, const char *call,
                                 const snug_callbacks *callbacks, snug_on_prediction *on_row, void *user) {
    struct snug_predicting p = {.command = command, .on_row = on_row, .user = user};
    RETURN_IF_ERROR(snug_enter(args->ctx, call, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, predict_in_group(&p, args, callbacks));
}

snug_status snug_predict(snug_args *args, const snug_callbacks *callbacks, snug_on_prediction *on_row, void *user) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE(on_row);
    return predict_alone(args, SNUG_COMMAND_PREDICT, __func__, callbacks, on_row, user);
}

snug_status snug_embed(snug_args *args, const snug_callbacks *callbacks, snug_on_prediction *on_row, void *user) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE(on_row);
    return predict_alone(args, SNUG_COMMAND_EMBED, __func__, callbacks, on_row, user);
}

/* ---- of a loaded model ------------------------------------------------------------------------------------------- */

snug_status snug_predicting_open(struct snug_session *session, struct snug_predicting **out) {
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(session->ctx, 1, sizeof **out, &memory));
    *out = memory;
    (*out)->session = session;
    return open_task(*out);
}

snug_status snug_predicting_run(struct snug_predicting *p, int64_t first,
                                snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    const struct snug_inference inference = {p, take_chunk, end_round};
    p->on_row = on_row;
    p->user = user;
    p->first = first;
    if (p->task->open) RETURN_IF_ERROR(p->task->open(p)); /* also after a call that failed */
    RETURN_IF_ERROR(snug_session_infer(p->session, NULL, &inference));
    return p->task->finish ? p->task->finish(p) : SNUG_OK;
}

void snug_predicting_close(struct snug_predicting *p) {
    if (!p) return;
    release(p);
    free(p);
}
