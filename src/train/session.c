/* SPDX-License-Identifier: Apache-2.0 */
#include "train/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/save.h"
#include "io/json.h"
#include "model/adapter_weights.h"
#include "model/adapters.h"
#include "model/sentence.h"
#include "model/weight_files.h"
#include "model/weights.h"
#include "optim/loss_scale.h"
#include "tokenizer/tokenizer_parts.h"
#include "train/device.h"
#include "train/training_args.h"

/* ---- opening --------------------------------------------------------------------------------------------------- */

static snug_status allocate(struct snug_session *s) {
    struct snug_job *job = &s->job;
    struct snug_device *device = &job->limits.device;
    const snug_status status = snug_runner_allocate(&job->runner, job->plan.offload_dir);
    s->memory = job->runner.memory;
    if (status != SNUG_E_MEMORY || job->runner.arena.base || !snug_device_is_gpu(device)) return status;
    if (job->plan.layout.offload_bytes && !s->memory.backing.memory.base) return status;
    return snug_device_refuse(device, job->plan.layout.arena);
}

/* With CUDA's own variable the host waits for each kernel, but a captured phase would still fail as a whole. */
static bool blames_operations(void) {
    const char *value = getenv("CUDA_LAUNCH_BLOCKING");
    return value && strcmp(value, "1") == 0;
}

static struct snug_run *run_of(struct snug_session *s, enum snug_role role) {
    return role == SNUG_ROLE_TRAINING     ? &s->train_run
           : role == SNUG_ROLE_EVALUATION ? &s->eval_run
                                          : &s->generation_run;
}

static void open_runs(struct snug_session *s) {
    const struct snug_run_plan *plan = &s->job.plan;
    for (int i = 0; i < plan->count; i++) {
        struct snug_run *run = run_of(s, plan->programs[i].role);
        *run = snug_runner_run(&s->job.runner, i);
        run->one_by_one = blames_operations();
        run->seed = (uint64_t)s->job.setup.args->seed;
        run->optimizer = &plan->optimizer;
        run->collectives = s->job.setup.args->group ? s->job.setup.args->group->collectives : NULL;
        run->devices = s->job.setup.args->group ? s->job.setup.args->group->devices : NULL;
    }
}

/* Every program has all parameters. */
static const struct snug_program *any_program(const struct snug_session *s) { return &s->job.plan.programs[0].program; }

static struct snug_run *any_run(struct snug_session *s) { return run_of(s, s->job.plan.programs[0].role); }

/* Between steps: with the number of finished steps, whatever the current batch is. */
static struct snug_run run_between_steps(struct snug_session *s) {
    struct snug_run run = *any_run(s);
    run.step = s->step;
    return run;
}

snug_status snug_session_prepare(struct snug_session *s) {
    struct snug_run run = run_between_steps(s);
    return snug_run_phase(&run, s->job.setup.backend, SNUG_PHASE_PREPARE, &s->profile);
}

/* What the last update wrote to staging buffers. */
static snug_status store(struct snug_session *s) {
    struct snug_run run = run_between_steps(s);
    return snug_run_pending(&run, s->job.setup.backend, &s->profile);
}

snug_status snug_session_flush(struct snug_session *s) {
    const struct snug_run run = run_between_steps(s);
    return snug_run_flush(&run, s->job.setup.backend, &s->profile);
}

/* Tensors of which each rank stores its shard. */
static void open_shards(struct snug_session *s) {
    const struct snug_program *program = any_program(s);
    for (size_t i = 1; i < program->tensor_count; i++)
        if (program->tensors[i].shards.chunk) s->memory.written = &s->written;
}

static snug_status load_folder(struct snug_session *s, const struct snug_folder *folder) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_program *program = any_program(s);
    const uint64_t seed = (uint64_t)setup->args->seed;
    RETURN_IF_ERROR(snug_weights_load(s->ctx, folder, program, &setup->config, &s->memory, seed,
                                      setup->args->ignore_mismatched_sizes, &s->source));
    RETURN_IF_ERROR(snug_sentence_load(s->ctx, folder, program, &setup->config, &s->memory));
    return setup->adapter.path ? snug_adapter_load(s->ctx, &setup->adapter, program, &setup->config, &s->memory)
                               : snug_adapter_init(s->ctx, folder, program, &setup->config, &s->memory, seed);
}

snug_status snug_session_load_base(struct snug_session *s, const struct snug_folder *folder) {
    RETURN_IF_ERROR(load_folder(s, folder));
    return snug_session_prepare(s);
}

static snug_status load_weights(struct snug_session *s) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_program *program = any_program(s);
    const uint64_t seed = (uint64_t)setup->args->seed;
    if (!setup->model.path) {
        for (size_t i = 0; i < program->parameter_count; i++)
            RETURN_IF_ERROR(snug_weights_init(program, &setup->config, &s->memory, &program->parameters[i], seed));
        snug_log(s->ctx, SNUG_LOG_INFO, "training from scratch: all %zu tensors were initialised",
                 program->parameter_count);
        return SNUG_OK;
    }
    return load_folder(s, &setup->model);
}

const char *snug_session_weights(const struct snug_session *s) {
    return s->job.setup.lora ? SNUG_ADAPTER_WEIGHTS : SNUG_WEIGHTS_ANY;
}

snug_status snug_session_load_weights(struct snug_session *s, const struct snug_folder *folder) {
    RETURN_IF_ERROR(store(s)); /* later it would overwrite what is loaded */
    const struct snug_setup *setup = &s->job.setup;
    if (setup->lora)
        RETURN_IF_ERROR(snug_adapter_load(s->ctx, folder, any_program(s), &setup->config, &s->memory));
    else
        RETURN_IF_ERROR(snug_weights_load(s->ctx, folder, any_program(s), &setup->config, &s->memory,
                                          (uint64_t)setup->args->seed, false, &s->source));
    if (!setup->lora) /* else they are frozen, or among the adapters */
        RETURN_IF_ERROR(snug_sentence_load(s->ctx, folder, any_program(s), &setup->config, &s->memory));
    return snug_session_prepare(s);
}

/* Without a writable folder the choice is not stored. */
static snug_status autotune_here(struct snug_session *s) {
    const struct snug_backend *backend = s->job.setup.backend;
    struct snug_folder cache;
    char problem[256];
    snug_status status = snug_cache_folder_open(s->ctx, &cache, problem);
    for (int i = 0; i < s->job.plan.count && status == SNUG_OK; i++) {
        const struct snug_planned_program *planned = &s->job.plan.programs[i];
        status = backend->autotune(run_of(s, planned->role), &planned->pipeline.limits.sizes, cache.path);
    }
    snug_folder_close(&cache);
    return status;
}

/* The ranks of a host have the same algorithms, and so the same bits: the first one chooses, and the others read. */
static snug_status autotune(struct snug_session *s) {
    const struct snug_process_group *group = s->job.setup.args->group;
    const bool waits = group && group->ranks.local_rank > 0;
    if (!s->job.setup.backend->autotunes) return SNUG_OK;
    if (waits) RETURN_IF_ERROR(snug_group_barrier(s->ctx, group));
    RETURN_IF_ERROR(autotune_here(s));
    return waits ? SNUG_OK : snug_group_barrier(s->ctx, group);
}

static snug_status open_loader(struct snug_session *s, const struct snug_data_source *source,
                               const struct snug_planned_program *planned, uint8_t **memory, struct snug_loader **out) {
    uint8_t *own = *memory;
    *memory += planned->loader_bytes;
    return snug_loader_create(s->ctx, source->dataset, &planned->pipeline.options, &planned->pipeline.limits, own, out);
}

/* The host's memory of a generation's batches and results: after that of the loaders. */
uint8_t *snug_session_decoding_memory(const struct snug_session *s) {
    uint8_t *memory = (uint8_t *)s->job.runner.host.base + s->job.plan.layout.batch_offset;
    const struct snug_run_plan *plan = &s->job.plan;
    for (int i = 0; plan->programs[i].role != SNUG_ROLE_GENERATION; i++) memory += plan->programs[i].loader_bytes;
    return memory;
}

static snug_status open_loaders(struct snug_session *s) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_layout *layout = &s->job.plan.layout;
    uint8_t *host = s->job.runner.host.base, *memory = host + layout->batch_offset;
    if (s->training) RETURN_IF_ERROR(open_loader(s, &setup->train, s->training, &memory, &s->train_loader));
    /* A loaded model has a loader for each batch, and measures nothing. */
    if (!s->evaluation || setup->command == SNUG_COMMAND_MODEL) return SNUG_OK;
    RETURN_IF_ERROR(open_loader(s, &setup->eval, s->evaluation, &memory, &s->eval_loader));
    const struct snug_metric_accumulator_options options = snug_setup_metrics(setup);
    return snug_metric_accumulator_create(s->ctx, &options, host + layout->function_offset, &s->accumulator);
}

static snug_status open_schedule(struct snug_session *s) {
    const struct snug_args *args = s->job.setup.args;
    if (!s->training) return SNUG_OK;
    s->max_steps = s->training->pipeline.max_steps;
    s->steps_per_epoch = s->training->pipeline.steps_per_epoch;
    const double steps = (double)s->max_steps;
    const double warmup = args->warmup_steps < 1 ? ceil(args->warmup_steps * steps) : args->warmup_steps;
    return snug_schedule_init(s->ctx, args->lr_scheduler_type, args->lr_scheduler_kwargs, args->learning_rate, warmup,
                              steps, &s->schedule);
}

/* ---- loss scaling --------------------------------------------------------------------------------------------- */

static snug_status begin_scale(struct snug_session *s) {
    static const float first[SNUG_SCALE_VALUES] = {SNUG_SCALE_FIRST};
    s->scaler = s->training ? s->training->program.scaler : 0;
    s->loss_scale = SNUG_SCALE_FIRST;
    if (!s->scaler) return SNUG_OK;
    return snug_tensor_write(&s->training->program, &s->memory, s->scaler, 0, SNUG_SCALE_VALUES, first);
}

snug_status snug_session_look(struct snug_session *s) {
    float values[SNUG_SCALE_VALUES];
    if (!s->scaler) return SNUG_OK;
    RETURN_IF_ERROR(snug_tensor_read(&s->training->program, &s->memory, s->scaler, 0, SNUG_SCALE_VALUES, values));
    const int64_t skipped = (int64_t)(values[SNUG_SCALE_SKIPPED] + values[SNUG_SCALE_SKIPS]);
    s->loss_scale = values[SNUG_SCALE_SKIPS] != 0 ? values[SNUG_SCALE] / 2 : values[SNUG_SCALE];
    if (skipped > s->skipped)
        snug_log(s->ctx, SNUG_LOG_INFO,
                 "fp16: %lld steps skipped so far, whose gradients were not finite; the loss scale is %g now",
                 (long long)skipped, (double)s->loss_scale);
    s->skipped = skipped;
    s->unseen = 0;
    if (s->loss_scale >= SNUG_SCALE_LEAST) return SNUG_OK;
    return snug_fail(s->ctx, SNUG_E_NUMERIC,
                     "step %lld: gradients are not finite at a loss scale of %g: values of the model itself are larger "
                     "than fp16 can represent; use --bf16",
                     (long long)s->step + 1, (double)s->loss_scale);
}

/* The schedule does not advance in skipped steps, as in Trainer. */
static double rate_after(const struct snug_session *s, int64_t skipped) {
    if (!isnan(s->own_rate)) return s->own_rate;
    const int64_t step = s->schedule_step > skipped ? s->schedule_step - skipped : 0;
    return snug_optimizer_rate(&s->job.plan.optimizer, snug_schedule_rate(&s->schedule, step), step);
}

/* Sets the learning rate of the current step, also for each possible number of skipped steps, which only the device
   knows. */
static void set_rates(struct snug_session *s) {
    struct snug_run *run = &s->train_run;
    run->skipped = s->skipped;
    run->learning_rate = (float)rate_after(s, s->skipped);
    for (int i = 1; i < SNUG_UNSEEN_STEPS && s->scaler; i++)
        run->later_rates[i - 1] = (float)rate_after(s, s->skipped + i);
}

/* watched: its expected duration is reported. */
static snug_status open_session(struct snug_session *s, bool watched) {
    s->training = snug_run_plan_find(&s->job.plan, SNUG_ROLE_TRAINING);
    s->evaluation = snug_run_plan_find(&s->job.plan, SNUG_ROLE_EVALUATION);
    RETURN_IF_ERROR(open_schedule(s));
    RETURN_IF_ERROR(snug_duration_estimate(&s->job, watched, &s->duration));
    RETURN_IF_ERROR(allocate(s));
    open_runs(s);
    open_shards(s);
    RETURN_IF_ERROR(autotune(s));
    RETURN_IF_ERROR(load_weights(s));
    RETURN_IF_ERROR(begin_scale(s));
    RETURN_IF_ERROR(snug_session_prepare(s));
    return open_loaders(s);
}

snug_status snug_session_open(struct snug_args *args, enum snug_command command, const snug_callbacks *callbacks,
                              struct snug_session **out) {
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    struct snug_session *s = memory;
    s->ctx = args->ctx;
    s->process = getpid();
    s->own_rate = NAN;
    if (callbacks) snug_set_stop(s->ctx, callbacks->should_stop, callbacks->user);
    snug_status status = snug_job_open(args, command, &s->job);
    snug_set_stop(s->ctx, NULL, NULL);
    if (status == SNUG_OK) status = open_session(s, callbacks && callbacks->on_event);
    if (status != SNUG_OK)
        snug_session_close(s);
    else
        *out = s;
    return status;
}

bool snug_session_is_here(const struct snug_session *s) { return s->process == getpid(); }

void snug_session_close(struct snug_session *s) {
    if (!s) return;
    snug_loader_destroy(s->train_loader);
    snug_loader_destroy(s->eval_loader);
    snug_metric_accumulator_free(s->accumulator);
    snug_weight_source_close(&s->source);
    snug_job_close(&s->job);
    free(s);
}

/* An operation that failed on the device is reported by a later copy. */
static snug_status after_operations(struct snug_session *s, const struct snug_run *run, snug_status status) {
    if (status == SNUG_OK || run->one_by_one) return status;
    return snug_add_to_error(s->ctx, status, "; set CUDA_LAUNCH_BLOCKING=1 to find the operation");
}

/* On a GPU this waits for operations, and so for the other ranks. */
snug_status snug_session_read(struct snug_session *s, const struct snug_run *run, int32_t tensor, void *values,
                              int64_t bytes) {
    const struct snug_process_group *group = s->job.setup.args->group;
    const bool watched = group && group->devices;
    if (watched) snug_watch_wait(group->watch, "their GPU operations");
    const snug_status status = snug_block_copy(s->ctx, &s->job.runner.arena, values, snug_run_data(run, tensor), bytes);
    if (watched) snug_watch_leave(group->watch);
    return after_operations(s, run, status);
}

snug_status snug_session_load(struct snug_session *s, struct snug_run *run) {
    RETURN_IF_ERROR(s->job.setup.backend->load(run));
    s->train_run.in_turn = run == &s->train_run;
    s->eval_run.in_turn = run == &s->eval_run;
    return SNUG_OK;
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

void snug_session_seek(struct snug_session *s, int64_t step) {
    s->step = s->schedule_step = step;
    s->train_run.micro_batch = 0;
}

snug_status snug_session_resume_epoch(struct snug_session *s) {
    const int64_t epoch = s->step / s->steps_per_epoch;
    return snug_loader_begin_epoch(s->train_loader, epoch, s->step % s->steps_per_epoch);
}

snug_status snug_session_start_epoch(struct snug_session *s, int64_t epoch) {
    s->batch = NULL;
    s->within_step = false;
    if (!s->resumed || epoch != s->epoch) s->epoch_step = 0;
    s->resumed = false;
    s->epoch = epoch;
    return snug_loader_begin_epoch(s->train_loader, epoch, s->epoch_step);
}

snug_status snug_session_next_batch(struct snug_session *s, const snug_batch_info **info) {
    s->batch = NULL;
    if (s->step >= s->max_steps) return SNUG_END;
    RETURN_IF_ERROR(snug_loader_next(s->train_loader, &s->batch));
    s->within_step = true;
    s->epoch_step += s->batch->last_in_step;
    s->train_run.batch = s->batch;
    s->train_run.step = s->step;
    set_rates(s);
    s->train_run.step_rows = (int64_t)s->batch->weight_in_step * s->batch->texts;
    s->train_run.loss_scale = s->batch->weight_in_step > 0 ? (float)(1.0 / s->batch->weight_in_step) : 0;
    s->info = (snug_batch_info){.sequences = s->batch->sequences,
                                .tokens = s->batch->tokens,
                                .items = s->batch->items,
                                .items_in_step = s->batch->items_in_step,
                                .last_in_step = s->batch->last_in_step};
    if (info) *info = &s->info;
    return snug_session_load(s, &s->train_run);
}

static snug_status run_training(struct snug_session *s, enum snug_phase phase) {
    return snug_run_phase(&s->train_run, s->job.setup.backend, phase, &s->profile);
}

snug_status snug_session_forward(struct snug_session *s) { return run_training(s, SNUG_PHASE_FORWARD); }

/* ---- several ranks ---- */

/* The ranks that have a micro-batch number `own` in this step. */
static int contributors_of(const struct snug_session *s, int64_t own) {
    return snug_loader_contributors(s->job.setup.train.rows, &s->training->pipeline.options,
                                    s->step % s->steps_per_epoch, own);
}

void snug_session_begin_step(struct snug_session *s) {
    s->train_run.contributors = contributors_of(s, 0);
    s->idle = s->training->pipeline.options.rank >= s->train_run.contributors;
}

/* The collective operations of a phase, which other ranks run for their micro-batch. In HEAD there are none, since
   ranks have other chunks. */
static snug_status attend_phase(struct snug_session *s, enum snug_phase phase, int64_t micro_batch) {
    struct snug_run run = s->train_run;
    run.idle = true;
    run.batch = NULL;
    run.micro_batch = micro_batch;
    run.contributors = contributors_of(s, micro_batch);
    return snug_run_phase(&run, s->job.setup.backend, phase, &s->profile);
}

/* Phase `first`, then `last`, of each micro-batch that other ranks have after this one's. */
static snug_status attend_turns(struct snug_session *s, enum snug_phase first, enum snug_phase last) {
    for (int64_t next = s->train_run.micro_batch; contributors_of(s, next) > 0; next++) {
        RETURN_IF_ERROR(attend_phase(s, first, next));
        if (last != first) RETURN_IF_ERROR(attend_phase(s, last, next));
    }
    return SNUG_OK;
}

/* The loss over a step's vectors, when all ranks have run forward. */
static snug_status run_step(struct snug_session *s) {
    const struct snug_loader_options *options = &s->training->pipeline.options;
    if (options->in_turns && (options->two_passes || s->idle))
        RETURN_IF_ERROR(attend_turns(s, SNUG_PHASE_FORWARD, SNUG_PHASE_FORWARD));
    s->train_run.micro_batch = 0;
    return s->idle ? attend_phase(s, SNUG_PHASE_STEP, 0) : run_training(s, SNUG_PHASE_STEP);
}

snug_status snug_session_attend(struct snug_session *s) {
    const struct snug_loader_options *options = &s->training->pipeline.options;
    const bool apart = s->training->program.loss_of_step; /* forward and backward are not of one turn */
    if (apart && s->idle) RETURN_IF_ERROR(run_step(s));
    if (options->in_turns)
        return attend_turns(s, apart && !options->two_passes ? SNUG_PHASE_BACKWARD : SNUG_PHASE_FORWARD,
                            SNUG_PHASE_BACKWARD);
    return s->idle ? attend_phase(s, SNUG_PHASE_BACKWARD, 0) : SNUG_OK; /* the sums after the last micro-batch */
}

/* ---- micro-batches ---- */

/* weight_in_step is the same for all micro-batches of a step. */
static double mean_of(const struct snug_session *s, float sum) {
    return s->batch->weight_in_step > 0 ? snug_without_sign(sum / s->batch->weight_in_step) : 0;
}

/* Of a loss over the step, which has one micro-batch, or whose vectors are all collected, also that. */
static snug_status run_head(struct snug_session *s) {
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_HEAD));
    const bool once = s->training->program.loss_of_step && !s->training->pipeline.options.two_passes;
    return once ? run_step(s) : SNUG_OK;
}

snug_status snug_session_head(struct snug_session *s, double *loss) {
    RETURN_IF_ERROR(run_head(s));
    float sum;
    RETURN_IF_ERROR(snug_session_read(s, &s->train_run, s->training->program.loss, &sum, sizeof sum));
    *loss = mean_of(s, sum);
    return SNUG_OK;
}

/* The loss of a micro-batch, and the results after it. */
static float *loss_of(const struct snug_session *s, int64_t micro_batch) {
    return (float *)(s->job.runner.host.base + s->job.plan.layout.batch_offset + s->job.plan.losses_offset) +
           micro_batch * snug_step_results(&s->training->program);
}

const float *snug_session_results(const struct snug_session *s, int64_t micro_batch) {
    return s->training->program.results ? loss_of(s, micro_batch) + 1 : NULL;
}

double snug_session_loss(const struct snug_session *s, int64_t micro_batch) {
    return mean_of(s, *loss_of(s, micro_batch));
}

snug_status snug_session_backward(struct snug_session *s) {
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_BACKWARD));
    s->train_run.micro_batch++;
    return SNUG_OK;
}

static snug_status copy_later(struct snug_session *s, int32_t tensor, float *to, int64_t count) {
    const struct snug_run *run = &s->train_run;
    return after_operations(s, run,
                            snug_block_copy_later(s->ctx, &s->job.runner.arena, to, snug_run_data(run, tensor),
                                                  count * (int64_t)sizeof *to));
}

/* The first pass over a step's micro-batches: their vectors; then the loss, and the gradients of all vectors. The
   second pass repeats its forward, with the same dropout, since that follows from an element's place in the step. */
static snug_status collect(struct snug_session *s) {
    do {
        RETURN_IF_ERROR(snug_session_next_batch(s, NULL));
        RETURN_IF_ERROR(snug_session_forward(s));
        RETURN_IF_ERROR(run_training(s, SNUG_PHASE_HEAD));
        s->train_run.micro_batch++;
    } while (!s->batch->last_in_pass);
    return run_step(s);
}

snug_status snug_session_micro_batch(struct snug_session *s, const snug_batch_info **info) {
    if (s->training->pipeline.options.in_turns)
        s->train_run.contributors = contributors_of(s, s->train_run.micro_batch);
    if (s->training->pipeline.options.two_passes && s->train_run.micro_batch == 0) RETURN_IF_ERROR(collect(s));
    RETURN_IF_ERROR(snug_session_next_batch(s, info));
    RETURN_IF_ERROR(snug_session_forward(s));
    RETURN_IF_ERROR(run_head(s));
    const struct snug_run *run = &s->train_run;
    float *to = loss_of(s, run->micro_batch);
    const bool has_loss = s->training->pipeline.options.rank == 0 && run->micro_batch == 0;
    if (run->program->loss_of_step && !has_loss) { /* the first micro-batch of rank 0 has the step's */
        *to = 0;
        return snug_session_backward(s);
    }
    RETURN_IF_ERROR(copy_later(s, run->program->loss, to, 1));
    if (run->program->results) RETURN_IF_ERROR(copy_later(s, run->program->results, to + 1, SNUG_PREFERENCE_RESULTS));
    return snug_session_backward(s);
}

snug_status snug_session_clip(struct snug_session *s, double max_norm, double *norm) {
    s->train_run.max_grad_norm = (float)max_norm;
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_CLIP));
    s->clipped = true;
    float clip[2];
    if (!norm) return SNUG_OK;
    RETURN_IF_ERROR(snug_session_read(s, &s->train_run, s->training->program.clip, clip, sizeof clip));
    *norm = snug_without_sign(clip[0]);
    return snug_session_look(s);
}

double snug_session_rate(const struct snug_session *s) { return rate_after(s, s->skipped); }

snug_status snug_session_update(struct snug_session *s) {
    if (!s->clipped && s->scaler) {
        RETURN_IF_ERROR(snug_session_clip(s, 0, NULL)); /* gradients must be unscaled and checked */
    } else if (!s->clipped) {
        static const float none[2] = {0, 1};
        void *clip = snug_run_data(&s->train_run, s->training->program.clip);
        RETURN_IF_ERROR(snug_block_copy(s->ctx, &s->job.runner.arena, clip, none, sizeof none));
    }
    set_rates(s);
    s->train_run.step = s->step;
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_UPDATE));
    s->within_step = false;
    s->step++;
    return ++s->unseen < SNUG_UNSEEN_STEPS ? SNUG_OK : snug_session_look(s);
}

/* Lazy rows would count this step as a missed step: flush all rows before it, and start a new history after it, as
 * after loading. */
snug_status snug_session_skip_step(struct snug_session *s) {
    RETURN_IF_ERROR(snug_session_flush(s));
    s->step++;
    return snug_session_prepare(s);
}

void snug_session_advance_schedule(struct snug_session *s) {
    s->schedule_step++;
    s->own_rate = NAN;
}

void snug_session_zero_grad(struct snug_session *s) {
    s->train_run.micro_batch = 0;
    s->clipped = false;
}

/* ---- saving --------------------------------------------------------------------------------------------------- */

static snug_status plan_weight_files(const struct snug_session *s, struct snug_weight_files *out) {
    int64_t most;
    RETURN_IF_ERROR(snug_args_shard_size(s->job.setup.args, &most));
    return snug_weight_files_plan(any_program(s), most, out);
}

static snug_status write_weights(struct snug_session *s, const struct snug_folder *folder) {
    struct snug_weight_files files;
    RETURN_IF_ERROR(plan_weight_files(s, &files));
    const snug_status status =
        snug_weights_save(s->ctx, s->job.setup.args->group, folder, &files, any_program(s), &s->memory, &s->source);
    snug_weight_files_free(&files);
    return status;
}

static snug_status write_adapter(struct snug_session *s, const struct snug_folder *folder) {
    const struct snug_process_group *group = s->job.setup.args->group;
    if (snug_group_rank(group) == 0) {
        json_t *json = snug_adapter_written(s->job.setup.lora, any_program(s));
        if (!json) return snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while writing " SNUG_ADAPTER_CONFIG);
        const snug_status status = snug_json_write(s->ctx, folder, SNUG_ADAPTER_CONFIG, json);
        json_decref(json);
        RETURN_IF_ERROR(status);
    }
    return snug_adapter_save(s->ctx, group, folder, SNUG_ADAPTER_WEIGHTS, any_program(s), &s->memory);
}

snug_status snug_session_write_files(struct snug_session *s, const struct snug_folder *folder) {
    RETURN_IF_ERROR(snug_session_flush(s));
    const struct snug_process_group *group = s->job.setup.args->group;
    const bool leads = snug_group_rank(group) == 0;
    if (leads) RETURN_IF_ERROR(snug_config_write(s->ctx, &s->job.setup.config, folder));
    if (s->job.setup.lora)
        RETURN_IF_ERROR(write_adapter(s, folder));
    else
        RETURN_IF_ERROR(write_weights(s, folder));
    if (!leads) return SNUG_OK;
    RETURN_IF_ERROR(snug_training_args_write(&s->job, folder));
    return s->job.setup.tokenizer ? snug_tokenizer_save(s->ctx, s->job.setup.tokenizer, folder) : SNUG_OK;
}

/* The names of all files that snug_session_write_files() writes, NULL-terminated. */
struct written_names {
    char (*weights)[SNUG_WEIGHT_FILE_NAME];
    const char **all;
};
/* Those of the configuration, an adapter's two files, training_args.json, those of a reference, an embedding's three,
   and NULL at the end */
enum { OTHERS_MOST = SNUG_CONFIG_FILES + 9 + SNUG_TOKENIZER_FILES };

static void free_names(struct written_names *names) {
    free(names->weights);
    free(names->all);
}

static snug_status list_names(const struct snug_session *s, const struct snug_weight_files *files,
                              struct written_names *out) {
    const struct snug_tokenizer *tokenizer = s->job.setup.tokenizer;
    size_t n = 0;
    const size_t most = snug_weight_files_names(files);
    RETURN_IF_ERROR(snug_alloc(s->ctx, most, sizeof *out->weights, (void **)&out->weights));
    RETURN_IF_ERROR(snug_alloc(s->ctx, most + OTHERS_MOST, sizeof *out->all, (void **)&out->all));
    n += snug_config_list(&s->job.setup.config, out->all);
    if (s->job.setup.lora) {
        out->all[n++] = SNUG_ADAPTER_CONFIG;
        out->all[n++] = SNUG_ADAPTER_WEIGHTS;
    } else {
        n += snug_weight_files_list(files, out->weights, out->all + n);
    }
    out->all[n++] = SNUG_TRAINING_ARGS;
    if (s->job.setup.train.reference) { /* which stay beside the model */
        out->all[n++] = SNUG_REFERENCE_TRAIN;
        out->all[n++] = SNUG_REFERENCE_EVAL;
    }
    n += snug_session_list_sentence(s, out->all + n);
    for (size_t i = 0; tokenizer && (out->all[n] = snug_tokenizer_file(tokenizer, i)); i++) n++;
    return SNUG_OK;
}

static snug_status name_files(const struct snug_session *s, struct written_names *out) {
    struct snug_weight_files files;
    *out = (struct written_names){NULL, NULL};
    RETURN_IF_ERROR(plan_weight_files(s, &files));
    const snug_status status = list_names(s, &files, out);
    snug_weight_files_free(&files);
    if (status != SNUG_OK) free_names(out);
    return status;
}

snug_status snug_session_check_model(const struct snug_session *s, const struct snug_output *output) {
    struct written_names names;
    RETURN_IF_ERROR(name_files(s, &names));
    const snug_status status = snug_output_check(output, names.all);
    free_names(&names);
    return status == SNUG_OK ? snug_session_check_sentence(s, output) : status;
}

snug_status snug_session_write_model(struct snug_session *s, struct snug_output *output) {
    struct written_names names;
    if (snug_group_rank(s->job.setup.args->group)) return snug_session_write_files(s, NULL);
    RETURN_IF_ERROR(snug_session_check_model(s, output));
    RETURN_IF_ERROR(name_files(s, &names));
    snug_status status = snug_output_begin(output, names.all);
    if (status == SNUG_OK) status = snug_session_write_files(s, &output->folder);
    if (status == SNUG_OK) status = snug_session_write_sentence(s, output);
    if (status == SNUG_OK) status = snug_output_end_model(output, names.all);
    free_names(&names);
    return status;
}
