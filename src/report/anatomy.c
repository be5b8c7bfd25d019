/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experiment of Hugging Face's "Model training anatomy" in one call: BERT-large from random weights, made-up data,
 * batch 4, an epoch; then a few steps more in which each operation is timed by itself. Nothing is written but a cache.
 */
#include "report/anatomy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights.h"
#include "plan/rates.h"
#include "train/session.h"

enum {
    CPU_STEPS = 3,     /* of BERT-large a CPU does one in some seconds */
    WARM_STEPS = 3,    /* in which a GPU's kernels are loaded, chosen and recorded */
    DEVICE_ROUNDS = 5, /* steps whose operations are timed */
};

/* ---- arguments ------------------------------------------------------------------------------------------------ */

static snug_status set_default(struct snug_args *args, const char *name, const char *value) {
    return snug_args_is_set(args, name) ? SNUG_OK : snug_args_set(args, name, value);
}

/* The experiment's own values, where nothing else is asked for. */
static snug_status choose_arguments(struct snug_args *args) {
    if (!args->model_name_or_path) RETURN_IF_ERROR(set_default(args, "config_name", "bert-large-uncased"));
    int64_t longest;
    char rows[64];
    RETURN_IF_ERROR(snug_job_longest(args, 512, &longest));
    snprintf(rows, sizeof rows, "dummy:512x%lld", (long long)longest);
    RETURN_IF_ERROR(set_default(args, "train_file", rows));
    RETURN_IF_ERROR(set_default(args, "per_device_train_batch_size", "4"));
    if (args->validation_file)
        return snug_fail(args->ctx, SNUG_E_USAGE, "snug bench anatomy only trains: leave out --validation_file");
    return set_default(args, "num_train_epochs", "1");
}

/* On a CPU an epoch of BERT-large takes the better part of an hour. */
static void shorten(const struct snug_session *s, snug_anatomy *a) {
    struct snug_job *job = (struct snug_job *)&s->job;
    a->epoch_steps = job->max_steps;
    if (a->device || snug_args_is_set(job->args, "max_steps") || snug_args_is_set(job->args, "num_train_epochs") ||
        job->max_steps <= CPU_STEPS)
        return;
    job->max_steps = CPU_STEPS;
    snug_log(a->ctx, SNUG_LOG_INFO, "on the CPU %d steps of the epoch's %lld: --num_train_epochs 1 does them all",
             (int)CPU_STEPS, (long long)a->epoch_steps);
}

/* ---- steps ---------------------------------------------------------------------------------------------------- */

/* Tokens, sequences, head rows and pairs of positions of the current batch: what its operations cost. */
static struct snug_load load_of(const struct snug_batch *batch) {
    struct snug_load load = {.tokens = (double)batch->tokens,
                             .sequences = (double)batch->sequences,
                             .rows = (double)batch->rows,
                             .micro_batches = 1};
    for (int64_t i = 0; i < batch->sequences; i++) {
        const double length = batch->offsets[i + 1] - batch->offsets[i];
        load.pairs += length * length;
    }
    return load;
}

/* Counts what was done since the last call, of each operation: calls[i] of which known[i] were counted before. */
static void count_work(snug_anatomy *a, const struct snug_session *s, const struct snug_op_times *times,
                       int64_t known[]) {
    const struct snug_program *program = s->job.training;
    const struct snug_load load = load_of(s->batch);
    const double size = (double)program->capacity[SNUG_EXTENT_ROWS], chunks = fmax(1, ceil(load.rows / size));
    bool behind_loss = false;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const double calls = (double)(times->calls[i] - known[i]);
        const double rows = op->phase == SNUG_PHASE_HEAD ? load.rows / chunks : load.rows;
        const struct snug_estimate one = snug_estimate_op(NULL, program, op, &load, rows);
        struct snug_anatomy_part *const to[] = {&a->parts[snug_side_of(op, behind_loss)][snug_op_group(op->kind)],
                                                &a->kinds[op->kind]};
        known[i] = times->calls[i];
        behind_loss |= op->kind == SNUG_OP_LOSS;
        for (int k = 0; k < 2; k++) {
            to[k]->calls += calls;
            to[k]->flops += calls * one.flops;
            to[k]->bytes += calls * one.bytes;
        }
    }
}

/* One optimizer step, as the trainer does it; known is NULL where its operations are not timed. */
static snug_status one_step(struct snug_session *s, snug_anatomy *a, int64_t known[]) {
    snug_batch_info info;
    double norm;
    do {
        RETURN_IF_ERROR(snug_session_micro_batch(s, &info));
        if (known) count_work(a, s, s->profile.times, known);
        if (known) continue;
        a->samples += info.sequences;
        a->tokens += info.tokens;
    } while (!info.last_in_step);
    RETURN_IF_ERROR(snug_clip_grad_norm(s, s->job.args->max_grad_norm, &norm));
    a->last_loss = 0;
    for (int64_t micro = 0; micro < s->train_run.micro_batch; micro++) a->last_loss += snug_session_loss(s, micro);
    RETURN_IF_ERROR(snug_optimizer_step(s));
    if (known) count_work(a, s, s->profile.times, known);
    RETURN_IF_ERROR(snug_scheduler_step(s));
    return snug_zero_grad(s);
}

static snug_status train(struct snug_session *s, snug_anatomy *a, const snug_callbacks *callbacks) {
    double begin = snug_seconds(), steady = 0;
    for (int64_t epoch = 0; s->step < s->job.max_steps; epoch++) {
        snug_status status = snug_session_begin_epoch(s, epoch);
        while (status == SNUG_OK && s->step < s->job.max_steps) {
            if (callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user))
                return snug_fail(a->ctx, SNUG_E_INTERRUPTED, "interrupted at step %lld", (long long)s->step);
            status = one_step(s, a, NULL);
            if (status != SNUG_OK) break;
            a->steps++;
            const double now = snug_seconds() - begin;
            if (a->steps == WARM_STEPS || a->steps == 1) steady = now;
            a->seconds = now;
            if (callbacks && callbacks->on_event)
                callbacks->on_event(
                    callbacks->user,
                    &(snug_event){.kind = SNUG_EVENT_PROGRESS, .step = s->step, .max_steps = s->job.max_steps});
        }
        if (status != SNUG_OK && status != SNUG_END) return status;
    }
    /* The last step's update may still be under way. */
    float loss;
    RETURN_IF_ERROR(snug_session_read(s, &s->train_run, s->job.training->loss, &loss, sizeof loss));
    a->seconds = snug_seconds() - begin;
    const int64_t warm = a->steps > 2 * WARM_STEPS ? WARM_STEPS : 1;
    a->steady_steps = a->steps - warm;
    a->steady_seconds = a->steady_steps > 0 ? (a->seconds - steady) / (double)a->steady_steps : a->seconds;
    return SNUG_OK;
}

/* The first batches again, each operation started and timed by itself. On a CPU they always are. */
static snug_status time_operations(struct snug_session *s, snug_anatomy *a) {
    const struct snug_program *program = s->job.training;
    const int64_t rounds = a->device ? DEVICE_ROUNDS : 2;
    struct snug_op_times times;
    int64_t *known = NULL;
    bool behind_loss = false;
    a->timed_steps = rounds < s->job.steps_per_epoch ? rounds : s->job.steps_per_epoch;
    if (a->timed_steps > s->job.max_steps) a->timed_steps = s->job.max_steps;
    snug_session_seek(s, 0);
    snug_status status = snug_op_times_init(program, &times);
    if (status == SNUG_OK) status = snug_alloc(a->ctx, program->op_count, sizeof *known, (void **)&known);
    if (status == SNUG_OK) status = snug_session_begin_epoch(s, 0);
    s->profile.times = &times;
    s->train_run.one_by_one = true;
    for (int64_t i = 0; i < a->timed_steps && status == SNUG_OK; i++) {
        status = one_step(s, a, known);
        if (status == SNUG_OK) status = snug_op_times_collect(&s->train_run, s->job.backend, &times);
    }
    s->profile.times = NULL;
    for (size_t i = 0; i < program->op_count && status == SNUG_OK; i++) {
        const struct snug_op *op = &program->ops[i];
        a->parts[snug_side_of(op, behind_loss)][snug_op_group(op->kind)].seconds += times.seconds[i];
        a->kinds[op->kind].seconds += times.seconds[i];
        behind_loss |= op->kind == SNUG_OP_LOSS;
    }
    snug_op_times_free(s->job.backend, &times);
    free(known);
    return status;
}

static void divide(struct snug_anatomy_part *part, double by) {
    part->seconds /= by;
    part->flops /= by;
    part->bytes /= by;
    part->calls /= by;
}

/* Sums of the timed steps become those of one. */
static void average(snug_anatomy *a) {
    for (int side = 0; side < SNUG_SIDE_COUNT; side++)
        for (int group = 0; group < SNUG_GROUP_COUNT; group++) divide(&a->parts[side][group], (double)a->timed_steps);
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) divide(&a->kinds[kind], (double)a->timed_steps);
}

/* ---- all of it ------------------------------------------------------------------------------------------------ */

static snug_status describe(const struct snug_session *s, snug_anatomy *a) {
    struct snug_job *job = (struct snug_job *)&s->job;
    const struct snug_program *program = job->training;
    struct snug_rates machine;
    a->device = snug_job_on_device(job);
    a->layers = job->config.num_hidden_layers;
    a->hidden = job->config.hidden_size;
    a->batch = job->args->per_device_train_batch_size;
    a->accumulation = job->args->gradient_accumulation_steps;
    a->longest = program->longest;
    a->compute = program->compute;
    a->weights = job->weights;
    snprintf(a->data, sizeof a->data, "%s", job->args->train_file);
    for (size_t i = 0; i < program->parameter_count; i++)
        a->parameters += (double)snug_parameter_count(&program->parameters[i]);
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) a->planned[i] = snug_job_bytes(job, (snug_memory_class)i);
    a->planned_total = snug_job_total(job);
    a->opened = job->opened_bytes;
    if (a->device) {
        RETURN_IF_ERROR(snug_device_describe(job, &a->use));
        snprintf(a->place, sizeof a->place, "%s", a->use.name);
        a->before = job->meter.method == SNUG_GPU_BY_NOTHING ? -1 : job->meter.gpu.used;
        return SNUG_OK;
    }
    snug_rates_init(a->ctx, &machine, job->backend, job->threads);
    snprintf(a->place, sizeof a->place, "%s, %d threads", machine.cpu, job->threads);
    return SNUG_OK;
}

static snug_status run_session(struct snug_session *s, snug_anatomy *a, const snug_callbacks *callbacks) {
    RETURN_IF_ERROR(describe(s, a));
    shorten(s, a);
    RETURN_IF_ERROR(train(s, a, callbacks));
    a->held = a->device ? snug_device_held(&s->job) : snug_peak_resident_bytes();
    if (a->device) snug_device_learn(&s->job, a->held);
    RETURN_IF_ERROR(time_operations(s, a));
    average(a);
    return SNUG_OK;
}

snug_status snug_anatomy_create(snug_args *args, const snug_callbacks *callbacks, snug_anatomy **out) {
    void *memory;
    snug_session *session;
    *out = NULL;
    snug_clear_error(args->ctx);
    RETURN_IF_ERROR(choose_arguments(args));
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    snug_anatomy *a = memory;
    a->ctx = args->ctx;
    a->before = snug_resident_bytes();
    snug_status status = snug_session_create(args, &session);
    if (status == SNUG_OK) status = run_session(session, a, callbacks);
    const struct snug_backend *backend = session ? session->job.backend : NULL;
    const int threads = session ? session->job.threads : 1;
    snug_session_destroy(session); /* its memory is needed for the ceilings */
    if (status == SNUG_OK) status = snug_ceilings_measure(a->ctx, backend, a->compute, threads, &a->ceilings);
    if (status == SNUG_OK)
        *out = a;
    else
        free(a);
    return status;
}

void snug_anatomy_destroy(snug_anatomy *anatomy) { free(anatomy); }
