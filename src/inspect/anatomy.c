/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experiment of Hugging Face's "Model training anatomy" in one call: BERT-large from random weights, synthetic
 * data, batch 4, an epoch; then a few more steps in which each operation is timed separately. Nothing is written but a
 * cache.
 */
#include "inspect/anatomy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/rates.h"
#include "model/family.h"
#include "model/weights.h"
#include "train/group.h"
#include "train/memory.h"
#include "train/parallel.h"
#include "train/session.h"

enum {
    CPU_STEPS = 3,     /* a CPU does a step of BERT-large in some seconds */
    FIRST_STEPS = 3,   /* steps in which a GPU's kernels are loaded, autotuned and captured */
    DEVICE_ROUNDS = 5, /* steps whose operations are timed */
};

/* ---- arguments ------------------------------------------------------------------------------------------------ */

static snug_status set_default(struct snug_args *args, const char *name, const char *value) {
    return snug_args_is_set(args, name) ? SNUG_OK : snug_args_assign(args, name, value);
}

/* The default arguments of the experiment. */
static snug_status choose_arguments(struct snug_args *args) {
    if (!args->model_name_or_path) RETURN_IF_ERROR(set_default(args, "config_name", "bert-large-uncased"));
    int64_t longest;
    char rows[64];
    RETURN_IF_ERROR(snug_setup_longest(args, 512, &longest));
    snprintf(rows, sizeof rows, "dummy:512x%lld", (long long)longest);
    RETURN_IF_ERROR(set_default(args, "train_file", rows));
    RETURN_IF_ERROR(set_default(args, "per_device_train_batch_size", "4"));
    if (args->validation_file)
        return snug_fail(args->ctx, SNUG_E_USAGE, "snug bench anatomy only trains: leave out --validation_file");
    return set_default(args, "num_train_epochs", "1");
}

/* On a CPU an epoch of BERT-large takes most of an hour. */
static void shorten(struct snug_session *s, snug_anatomy *a) {
    a->epoch_steps = s->max_steps;
    if (a->device || a->asked || s->max_steps <= CPU_STEPS) return;
    s->max_steps = CPU_STEPS;
    snug_log(a->ctx, SNUG_LOG_INFO, "on the CPU %d steps of the epoch's %lld: --num_train_epochs 1 does them all",
             (int)CPU_STEPS, (long long)a->epoch_steps);
}

/* ---- steps ---------------------------------------------------------------------------------------------------- */

/* Tokens, sequences, loss positions and pairs of positions of the current batch, which determine the cost of its
 * operations. */
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

/* Adds the work of each operation since the last call: it ran calls[i] times, known[i] of them were added before. */
static void count_work(snug_anatomy *a, const struct snug_session *s, const struct snug_op_times *times,
                       int64_t known[]) {
    const struct snug_program *program = &s->training->program;
    const struct snug_load load = s->batch ? load_of(s->batch) : (struct snug_load){0};
    bool after_loss = false;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const double calls = (double)(times->calls[i] - known[i]);
        struct snug_call_estimate one = snug_estimate_call(NULL, program, i, &load, &after_loss);
        if (snug_op_is(op, SNUG_OP_COLLECTIVE)) one.work.bytes *= 1 - 1.0 / program->ranks; /* its own shards stay */
        struct snug_anatomy_part *const to[] = {&a->parts[one.side][one.group], &a->kinds[op->kind]};
        known[i] = times->calls[i];
        for (int k = 0; k < 2; k++) {
            to[k]->calls += calls;
            to[k]->flops += calls * one.work.flops;
            to[k]->bytes += calls * one.work.bytes;
        }
    }
}

/* A rank's part of a step. */
struct share {
    double samples, tokens, loss;
    double stop; /* not 0: it was asked to stop */
};

/* One optimizer step, as in the trainer; known is NULL if its operations are not timed. */
static snug_status one_step(struct snug_session *s, snug_anatomy *a, int64_t known[], struct share *share) {
    const snug_batch_info *info = NULL;
    double norm;
    *share = (struct share){0};
    snug_session_begin_step(s);
    while (!s->idle && !(info && info->last_in_step)) {
        RETURN_IF_ERROR(snug_session_micro_batch(s, &info));
        if (known) count_work(a, s, s->profile.times, known);
        share->samples += (double)info->sequences;
        share->tokens += (double)info->tokens;
    }
    RETURN_IF_ERROR(snug_session_attend(s));
    RETURN_IF_ERROR(snug_session_clip(s, s->job.setup.args->max_grad_norm, &norm));
    for (int64_t micro = 0; micro < s->train_run.micro_batch; micro++) share->loss += snug_session_loss(s, micro);
    RETURN_IF_ERROR(snug_session_update(s));
    if (known) count_work(a, s, s->profile.times, known);
    snug_session_advance_schedule(s);
    snug_session_zero_grad(s);
    return SNUG_OK;
}

/* What all ranks did. shares: room for each of them. */
static snug_status share_step(struct snug_session *s, snug_anatomy *a, const struct share *own, struct share *shares,
                              bool *stop) {
    const struct snug_process_group *group = s->job.setup.args->group;
    shares[snug_group_rank(group)] = *own;
    RETURN_IF_ERROR(snug_group_all_gather(a->ctx, group, shares, sizeof *shares));
    a->last_loss = 0;
    for (int rank = 0; rank < snug_group_size(group); rank++) {
        a->samples += (int64_t)shares[rank].samples;
        a->tokens += (int64_t)shares[rank].tokens;
        a->last_loss += shares[rank].loss;
        *stop |= shares[rank].stop != 0;
    }
    return SNUG_OK;
}

static bool is_asked(const snug_callbacks *callbacks) {
    return callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user);
}

static snug_status train_steps(struct snug_session *s, snug_anatomy *a, const snug_callbacks *callbacks,
                               struct share *shares) {
    bool stop = !s->job.setup.args->group && is_asked(callbacks);  /* of ranks: after a step, when all know of it */
    double begin = snug_seconds(), after_one = 0, after_first = 0; /* seconds after 1 and after FIRST_STEPS steps */
    for (int64_t epoch = 0; s->step < s->max_steps; epoch++) {
        snug_status status = snug_session_start_epoch(s, epoch);
        while (status == SNUG_OK && s->step < s->max_steps) {
            struct share own;
            if (stop) return snug_fail(a->ctx, SNUG_E_INTERRUPTED, "interrupted at step %lld", (long long)s->step);
            snug_group_at(s->job.setup.args->group, s->step + 1, "in a step");
            status = one_step(s, a, NULL, &own);
            if (status != SNUG_OK) break;
            own.stop = is_asked(callbacks);
            RETURN_IF_ERROR(share_step(s, a, &own, shares, &stop));
            a->steps++;
            const double now = snug_seconds() - begin;
            if (a->steps == 1) after_one = now;
            if (a->steps == FIRST_STEPS) after_first = now;
            a->seconds = now;
            if (callbacks && callbacks->on_event)
                callbacks->on_event(
                    callbacks->user,
                    &(snug_event){.kind = SNUG_EVENT_PROGRESS, .step = s->step, .max_steps = s->max_steps});
        }
        if (status != SNUG_OK && status != SNUG_END) return status;
    }
    /* The last step's update may still be running. */
    float loss;
    RETURN_IF_ERROR(snug_session_read(s, &s->train_run, s->training->program.loss, &loss, sizeof loss));
    a->seconds = snug_seconds() - begin;
    const bool many = a->steps > 2 * FIRST_STEPS;
    const double steady = a->seconds - (many ? after_first : after_one);
    a->steady_steps = a->steps - (many ? FIRST_STEPS : 1);
    a->steady_seconds = a->steady_steps > 0 ? steady / (double)a->steady_steps : a->seconds;
    return SNUG_OK;
}

static snug_status train(struct snug_session *s, snug_anatomy *a, const snug_callbacks *callbacks) {
    void *shares;
    RETURN_IF_ERROR(snug_alloc(a->ctx, (size_t)a->ranks, sizeof(struct share), &shares));
    const snug_status status = train_steps(s, a, callbacks, shares);
    free(shares);
    return status;
}

/* By direction: how long the copies took, and how long operations waited for them. The end of a phase waits for copies
 * that cross it: fetches, because stores are waited for in the phase that starts them (plan/schedule.c). */
static snug_status add_copies(snug_anatomy *a, const struct snug_program *program, const struct snug_op_times *times) {
    static const enum snug_op_kind kinds[] = {SNUG_OP_FETCH, SNUG_OP_STORE};
    bool *stored; /* by staging buffer: its last copy is a STORE */
    RETURN_IF_ERROR(snug_alloc(a->ctx, program->tensor_count, sizeof *stored, (void **)&stored));
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (snug_op_is(op, SNUG_OP_FETCHES)) stored[op->fetch.x] = false;
        if (snug_op_is(op, SNUG_OP_STORES)) stored[op->store.x] = true;
        if (snug_op_is(op, SNUG_OP_WAITS)) a->copies[stored[op->wait.x]].waited += times->seconds[i];
    }
    free(stored);
    for (int phase = 0; phase < SNUG_PHASE_COUNT; phase++) {
        const struct snug_op end = {.phase = (enum snug_phase)phase};
        a->copies[0].waited += times->ended[phase];
        a->kinds[SNUG_OP_WAIT].seconds += times->ended[phase];
        a->parts[snug_side_of(&end, false)][SNUG_GROUP_COPIES].seconds += times->ended[phase];
    }
    for (int k = 0; k < 2; k++) {
        a->copies[k].seconds = times->copied[k];
        a->copies[k].bytes = a->kinds[kinds[k]].bytes;
        a->copies[k].calls = a->kinds[kinds[k]].calls;
    }
    return SNUG_OK;
}

/* Runs the first batches again, each operation launched and timed separately (on a CPU this is always so). */
static snug_status time_operations(struct snug_session *s, snug_anatomy *a) {
    const struct snug_program *program = &s->training->program;
    const int64_t rounds = a->device ? DEVICE_ROUNDS : 2;
    struct snug_op_times times;
    int64_t *known = NULL;
    bool after_loss = false;
    a->timed_steps = rounds < s->steps_per_epoch ? rounds : s->steps_per_epoch;
    if (a->timed_steps > s->max_steps) a->timed_steps = s->max_steps;
    snug_session_seek(s, 0);
    snug_status status = snug_op_times_init(&s->train_run, s->job.setup.backend, &times);
    if (status == SNUG_OK) status = snug_alloc(a->ctx, program->op_count, sizeof *known, (void **)&known);
    if (status == SNUG_OK) status = snug_session_start_epoch(s, 0);
    s->profile.times = &times;
    s->train_run.one_by_one = true;
    for (int64_t i = 0; i < a->timed_steps && status == SNUG_OK; i++) {
        struct share own;
        snug_group_at(s->job.setup.args->group, s->step + 1, "timing operations");
        status = one_step(s, a, known, &own);
        if (status == SNUG_OK) status = snug_op_times_collect(&s->train_run, s->job.setup.backend, &times);
    }
    s->profile.times = NULL;
    for (size_t i = 0; i < program->op_count && status == SNUG_OK; i++) {
        const struct snug_op *op = &program->ops[i];
        a->parts[snug_side_of(op, after_loss)][snug_op_info(op->kind)->group].seconds += times.seconds[i];
        a->kinds[op->kind].seconds += times.seconds[i];
        after_loss |= snug_op_is(op, SNUG_OP_ENDS_FORWARD);
    }
    if (status == SNUG_OK) status = add_copies(a, program, &times);
    snug_op_times_free(s->job.setup.backend, &times);
    free(known);
    return status;
}

static void divide(struct snug_anatomy_part *part, double by) {
    part->seconds /= by;
    part->flops /= by;
    part->bytes /= by;
    part->calls /= by;
}

/* Divides the sums of the timed steps by their number. */
static void average(snug_anatomy *a) {
    for (int side = 0; side < SNUG_SIDE_COUNT; side++)
        for (int group = 0; group < SNUG_GROUP_COUNT; group++) divide(&a->parts[side][group], (double)a->timed_steps);
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) divide(&a->kinds[kind], (double)a->timed_steps);
    for (int k = 0; k < 2; k++) {
        a->copies[k].seconds /= (double)a->timed_steps;
        a->copies[k].waited /= (double)a->timed_steps;
        a->copies[k].bytes /= (double)a->timed_steps;
        a->copies[k].calls /= (double)a->timed_steps;
    }
}

/* Operations that are timed one by one do not run beside communication. A CPU never does both. On a GPU a whole step
 * takes as long as its other operations and the communication for which they wait. */
static void find_exposed(snug_anatomy *a) {
    double others = 0, communicates = 0;
    for (int side = 0; side < SNUG_SIDE_COUNT; side++)
        for (int group = 0; group < SNUG_GROUP_COUNT; group++)
            *(group == SNUG_GROUP_COMMUNICATION ? &communicates : &others) += a->parts[side][group].seconds;
    a->exposed = a->device ? fmin(fmax(a->steady_seconds - others, 0), communicates) : communicates;
}

/* ---- all of it ------------------------------------------------------------------------------------------------ */

static snug_status describe(struct snug_session *s, snug_anatomy *a) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_run_plan *plan = &s->job.plan;
    const struct snug_program *program = &s->training->program;
    struct snug_device *device = &s->job.limits.device;
    struct snug_rates machine;
    a->device = snug_device_is_gpu(device);
    a->family = setup->config.family->name;
    a->layers = setup->config.num_hidden_layers;
    a->hidden = setup->config.hidden_size;
    a->batch = setup->args->per_device_train_batch_size;
    a->accumulation = setup->args->gradient_accumulation_steps;
    a->ranks = snug_group_size(setup->args->group);
    a->zero_stage = (int)setup->args->zero_stage;
    a->longest = program->longest;
    a->compute = program->compute;
    a->weights = plan->weights;
    a->tf32 = program->tf32;
    snprintf(a->data, sizeof a->data, "%s", setup->args->train_file);
    for (size_t i = 0; i < program->parameter_count; i++)
        a->parameters += (double)snug_parameter_count(&program->parameters[i]);
    memcpy(a->planned, plan->bytes, sizeof a->planned);
    a->planned_total = plan->total;
    a->opened = device->opened_bytes;
    if (a->device) {
        RETURN_IF_ERROR(snug_device_describe(device, &a->use));
        snprintf(a->place, sizeof a->place, "%s", a->use.name);
        a->before = device->usage.method == SNUG_GPU_BY_NOTHING ? -1 : device->usage.gpu.used;
        return SNUG_OK;
    }
    snug_rates_init(a->ctx, &machine, setup->backend, NULL, setup->threads);
    snprintf(a->place, sizeof a->place, "%s, %d threads", machine.device, setup->threads);
    return SNUG_OK;
}

static snug_status run_session(struct snug_session *s, snug_anatomy *a, const snug_callbacks *callbacks) {
    RETURN_IF_ERROR(describe(s, a));
    shorten(s, a);
    RETURN_IF_ERROR(snug_parallel_compare(&s->job, &s->memory, 0));
    RETURN_IF_ERROR(train(s, a, callbacks));
    struct snug_device *device = &s->job.limits.device;
    a->measured = a->device ? snug_device_used(device, &s->job.plan) : snug_peak_resident_bytes();
    if (a->device) snug_device_learn(device, &s->job.plan, a->measured);
    RETURN_IF_ERROR(time_operations(s, a));
    average(a);
    find_exposed(a);
    return SNUG_OK;
}

static snug_status measure(struct snug_args *args, const snug_callbacks *callbacks, snug_anatomy *a) {
    snug_session *session;
    const snug_status chosen = choose_arguments(args);
    if (chosen != SNUG_OK) return snug_group_fail(args, callbacks, chosen, -1);
    a->before = snug_resident_bytes();
    snug_status status = snug_session_open(args, SNUG_COMMAND_TRAIN, NULL, &session);
    if (status == SNUG_OK) status = run_session(session, a, callbacks);
    const struct snug_backend *backend = session ? session->job.setup.backend : NULL;
    const int threads = session ? session->job.setup.threads : 1;
    const int64_t step = session ? session->step + 1 : -1;
    snug_session_close(session); /* its memory is needed for the peak rates */
    if (status != SNUG_OK) return snug_group_fail(args, callbacks, status, step);
    if (snug_group_rank(args->group) > 0) return SNUG_OK; /* it prints nothing */
    return snug_peak_rates_measure(a->ctx, backend, a->compute, threads, &a->peaks);
}

static snug_status create_anatomy(snug_args *args, const snug_callbacks *callbacks, snug_anatomy **out) {
    void *memory;
    RETURN_IF_ERROR(snug_group_join(args));
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    snug_anatomy *a = memory;
    a->ctx = args->ctx;
    a->asked = snug_args_is_set(args, "max_steps") || snug_args_is_set(args, "num_train_epochs");
    const snug_status status = measure(args, callbacks, a);
    if (status == SNUG_OK)
        *out = a;
    else
        free(a);
    return status;
}

snug_status snug_anatomy_create(snug_args *args, const snug_callbacks *callbacks, snug_anatomy **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, create_anatomy(args, callbacks, out));
}

void snug_anatomy_destroy(snug_anatomy *anatomy) { free(anatomy); }
