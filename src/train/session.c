/* SPDX-License-Identifier: Apache-2.0 */
#include "train/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "model/weights.h"
#include "optim/loss_scale.h"
#include "train/device.h"

/* ---- carving -------------------------------------------------------------------------------------------------- */

static snug_status carve(struct snug_session *s) {
    struct snug_job *job = &s->job;
    const snug_status status = job->backend->allocate(s->ctx, job->layout.arena, SNUG_BLOCK_ARENA, &s->arena);
    if (status == SNUG_E_MEMORY && snug_job_on_device(job)) return snug_device_refuse(job);
    if (status != SNUG_OK) return status;
    s->memory.arena = s->arena.base;
    s->memory.copy = s->arena.copy;
    s->memory.threads = job->threads;
    return job->backend->allocate(s->ctx, job->layout.host, SNUG_BLOCK_HOST, &s->host);
}

/* What is offloaded has its room before the first step, as the arena has. */
static snug_status open_spool(struct snug_session *s) {
    const struct snug_job *job = &s->job;
    if (!job->layout.spool) return SNUG_OK;
    for (int i = 0; i < job->program_count; i++)
        RETURN_IF_ERROR(snug_alloc(s->ctx, job->programs[i].tensor_count, sizeof **s->copies, (void **)&s->copies[i]));
    return snug_spool_open(s->ctx, snug_args_offload_dir(job->args), job->layout.spool, &s->memory.spool);
}

/* CUDA's own variable has each kernel waited for; a recorded phase would still fail as a whole. */
static bool blames_operations(void) {
    const char *value = getenv("CUDA_LAUNCH_BLOCKING");
    return value && strcmp(value, "1") == 0;
}

static void open_run(struct snug_session *s, struct snug_program *program, struct snug_run *run) {
    const struct snug_args *args = s->job.args;
    *run = (struct snug_run){.ctx = s->ctx,
                             .program = program,
                             .arena = s->memory.arena,
                             .spool = s->memory.spool,
                             .copies = s->copies[program - s->job.programs],
                             .backend_state = s->job.backend_state[program - s->job.programs],
                             .workspace = s->memory.arena + s->job.layout.workspace_offset,
                             .batch_copy = s->memory.arena + s->job.layout.copy_offset,
                             .threads = s->job.threads,
                             .one_by_one = blames_operations(),
                             .seed = (uint64_t)args->seed,
                             .optimizer = &s->job.optimizer};
}

/* Any of the programs knows all parameters. */
static const struct snug_program *any_program(const struct snug_session *s) { return &s->job.programs[0]; }

static struct snug_run *any_run(struct snug_session *s) { return s->job.training ? &s->train_run : &s->eval_run; }

/* A phase that stands between steps: it sees the steps that are done, whatever the current batch. */
static snug_status run_between_steps(struct snug_session *s, enum snug_phase phase) {
    struct snug_run run = *any_run(s);
    run.step = s->step;
    return snug_run_phase(&run, s->job.backend, phase, &s->profile);
}

snug_status snug_session_prepare(struct snug_session *s) { return run_between_steps(s, SNUG_PHASE_PREPARE); }

snug_status snug_session_settle(struct snug_session *s) { return run_between_steps(s, SNUG_PHASE_SETTLE); }

static snug_status load_weights(struct snug_session *s) {
    const struct snug_job *job = &s->job;
    const struct snug_program *program = any_program(s);
    const uint64_t seed = (uint64_t)job->args->seed;
    if (!job->model.path) {
        for (size_t i = 0; i < program->parameter_count; i++)
            RETURN_IF_ERROR(snug_weights_init(program, &job->config, &s->memory, &program->parameters[i], seed));
        snug_log(s->ctx, SNUG_LOG_INFO, "training from scratch: all %zu tensors were initialised",
                 program->parameter_count);
        return SNUG_OK;
    }
    return snug_weights_load(s->ctx, &job->model, program, &job->config, &s->memory, seed,
                             job->args->ignore_mismatched_sizes);
}

/* Without a folder to write to the backend does without. */
static snug_status warm_backend(struct snug_session *s) {
    const struct snug_job *job = &s->job;
    struct snug_folder cache;
    char problem[256];
    if (!job->backend->warm) return SNUG_OK;
    snug_status status = snug_cache_folder_open(s->ctx, &cache, problem);
    if (job->training && status == SNUG_OK)
        status = job->backend->warm(&s->train_run, &job->train.limits.sizes, cache.path);
    if (job->evaluation && status == SNUG_OK)
        status = job->backend->warm(&s->eval_run, &job->eval.limits.sizes, cache.path);
    snug_folder_close(&cache);
    return status;
}

static snug_status open_loaders(struct snug_session *s) {
    struct snug_job *job = &s->job;
    uint8_t *memory = s->host.base + job->layout.batch_offset;
    if (job->trains) {
        RETURN_IF_ERROR(snug_loader_create(s->ctx, job->train.dataset, &job->train.options, &job->train.limits, memory,
                                           &s->train_loader));
        memory += job->loader_bytes[0];
    }
    if (!job->evaluates) return SNUG_OK;
    RETURN_IF_ERROR(
        snug_loader_create(s->ctx, job->eval.dataset, &job->eval.options, &job->eval.limits, memory, &s->eval_loader));
    return snug_meter_create(s->ctx, job->config.task, job->config.labels.problem, snug_job_classes(job),
                             job->eval.rows, s->host.base + job->layout.function_offset, &s->meter);
}

static snug_status open_schedule(struct snug_session *s) {
    const struct snug_args *args = s->job.args;
    if (!s->job.trains) return SNUG_OK;
    const double steps = (double)s->job.max_steps;
    const double warmup = args->warmup_steps < 1 ? ceil(args->warmup_steps * steps) : args->warmup_steps;
    return snug_schedule_init(s->ctx, args->lr_scheduler_type, args->lr_scheduler_kwargs, args->learning_rate, warmup,
                              steps, &s->schedule);
}

/* ---- loss scaling --------------------------------------------------------------------------------------------- */

static snug_status begin_scale(struct snug_session *s) {
    static const float first[SNUG_SCALE_VALUES] = {SNUG_SCALE_FIRST};
    s->scaler = s->job.training ? snug_program_scaler(s->job.training) : -1;
    s->loss_scale = SNUG_SCALE_FIRST;
    if (s->scaler < 0) return SNUG_OK;
    return snug_tensor_write(s->job.training, &s->memory, s->scaler, 0, SNUG_SCALE_VALUES, first);
}

snug_status snug_session_look(struct snug_session *s) {
    float values[SNUG_SCALE_VALUES];
    if (s->scaler < 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_tensor_read(s->job.training, &s->memory, s->scaler, 0, SNUG_SCALE_VALUES, values));
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
                     "step %lld: gradients are not finite at a loss scale of %g: values of the model itself are more "
                     "than fp16 has; use --bf16",
                     (long long)s->step + 1, (double)s->loss_scale);
}

/* The schedule stands still in steps that are skipped, as Trainer's does. */
static double rate_after(const struct snug_session *s, int64_t skipped) {
    const int64_t step = s->schedule_step > skipped ? s->schedule_step - skipped : 0;
    return snug_optimizer_rate(&s->job.optimizer, snug_schedule_rate(&s->schedule, step), step);
}

/* The learning rate of the step at hand; where the device may know of more skipped steps, for so many. */
static void set_rates(struct snug_session *s) {
    struct snug_run *run = &s->train_run;
    run->skipped = s->skipped;
    run->learning_rate = (float)rate_after(s, s->skipped);
    for (int i = 1; i < SNUG_UNSEEN_STEPS && s->scaler >= 0; i++)
        run->later_rates[i - 1] = (float)rate_after(s, s->skipped + i);
}

static snug_status open_session(struct snug_session *s) {
    RETURN_IF_ERROR(open_schedule(s));
    RETURN_IF_ERROR(open_spool(s));
    RETURN_IF_ERROR(carve(s));
    if (s->job.training) open_run(s, s->job.training, &s->train_run);
    if (s->job.evaluation) open_run(s, s->job.evaluation, &s->eval_run);
    RETURN_IF_ERROR(warm_backend(s));
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
    if (callbacks) snug_set_stop(s->ctx, callbacks->should_stop, callbacks->user);
    snug_status status = snug_job_open(args, command, &s->job);
    snug_set_stop(s->ctx, NULL, NULL);
    if (status == SNUG_OK) status = open_session(s);
    if (status != SNUG_OK)
        snug_session_destroy(s);
    else
        *out = s;
    return status;
}

snug_status snug_session_create(snug_args *args, snug_session **out) {
    return snug_session_open(args, SNUG_COMMAND_TRAIN, NULL, out);
}

void snug_session_destroy(snug_session *s) {
    if (!s) return;
    snug_loader_destroy(s->train_loader);
    snug_loader_destroy(s->eval_loader);
    snug_meter_free(s->meter);
    snug_spool_close(s->memory.spool); /* first: a copy may be under way */
    for (int i = 0; i < 2; i++) free(s->copies[i]);
    snug_block_release(&s->arena);
    snug_block_release(&s->host);
    snug_job_close(&s->job);
    free(s);
}

/* An operation that failed on the device shows in a copy that comes after it. */
static snug_status after_operations(struct snug_session *s, const struct snug_run *run, snug_status status) {
    if (status == SNUG_OK || run->one_by_one) return status;
    return snug_add_to_error(s->ctx, status, "; CUDA_LAUNCH_BLOCKING=1 in the environment has the operation named");
}

snug_status snug_session_read(struct snug_session *s, const struct snug_run *run, int32_t tensor, void *values,
                              int64_t bytes) {
    return after_operations(s, run, snug_block_copy(s->ctx, &s->arena, values, snug_run_data(run, tensor), bytes));
}

snug_status snug_session_load(struct snug_session *s, struct snug_run *run) {
    RETURN_IF_ERROR(s->job.backend->load(run));
    s->train_run.in_turn = run == &s->train_run;
    s->eval_run.in_turn = run == &s->eval_run;
    return SNUG_OK;
}

/* ---- one's own loop ------------------------------------------------------------------------------------------- */

int64_t snug_session_epochs(const snug_session *s) { return s->job.epochs; }

void snug_session_seek(struct snug_session *s, int64_t step) {
    s->step = s->schedule_step = step;
    s->train_run.micro_batch = 0;
}

snug_status snug_session_resume_epoch(struct snug_session *s) {
    const int64_t epoch = s->step / s->job.steps_per_epoch;
    return snug_loader_begin_epoch(s->train_loader, epoch, s->step % s->job.steps_per_epoch);
}

snug_status snug_session_begin_epoch(snug_session *s, int64_t epoch) {
    snug_clear_error(s->ctx);
    s->batch = NULL;
    return snug_loader_begin_epoch(s->train_loader, epoch, 0);
}

snug_status snug_next_batch(snug_session *s, snug_batch_info *info) {
    snug_clear_error(s->ctx);
    s->batch = NULL;
    if (s->step >= s->job.max_steps) return SNUG_END;
    RETURN_IF_ERROR(snug_loader_next(s->train_loader, &s->batch));
    s->train_run.batch = s->batch;
    s->train_run.step = s->step;
    set_rates(s);
    s->train_run.loss_scale = s->batch->items_in_step > 0 ? (float)(1.0 / (double)s->batch->items_in_step) : 0;
    if (info)
        *info = (snug_batch_info){.sequences = s->batch->sequences,
                                  .tokens = s->batch->tokens,
                                  .items = s->batch->items,
                                  .items_in_step = s->batch->items_in_step,
                                  .last_in_step = s->batch->last_in_step};
    return snug_session_load(s, &s->train_run);
}

static snug_status need_batch(struct snug_session *s, const char *call) {
    snug_clear_error(s->ctx);
    if (s->batch) return SNUG_OK;
    return snug_fail(s->ctx, SNUG_E_USAGE, "%s: there is no current batch; call snug_next_batch first", call);
}

static snug_status run_training(struct snug_session *s, enum snug_phase phase) {
    return snug_run_phase(&s->train_run, s->job.backend, phase, &s->profile);
}

snug_status snug_forward(snug_session *s) {
    RETURN_IF_ERROR(need_batch(s, "snug_forward"));
    return run_training(s, SNUG_PHASE_FORWARD);
}

/* A NaN that a processor makes has a sign, which printf would show. */
static double without_sign(double value) { return isnan(value) ? NAN : value; }

/* items_in_step is the same for all micro-batches of a step. */
static double mean_of(const struct snug_session *s, float sum) {
    return s->batch->items_in_step > 0 ? without_sign(sum / (double)s->batch->items_in_step) : 0;
}

snug_status snug_loss(snug_session *s, double *loss) {
    RETURN_IF_ERROR(need_batch(s, "snug_loss"));
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_HEAD));
    float sum;
    RETURN_IF_ERROR(snug_session_read(s, &s->train_run, s->job.training->loss, &sum, sizeof sum));
    *loss = mean_of(s, sum);
    return SNUG_OK;
}

static float *loss_of(const struct snug_session *s, int64_t micro_batch) {
    return (float *)(s->host.base + s->job.layout.batch_offset + s->job.losses_offset) + micro_batch;
}

double snug_session_loss(const struct snug_session *s, int64_t micro_batch) {
    return mean_of(s, *loss_of(s, micro_batch));
}

snug_status snug_backward(snug_session *s) {
    RETURN_IF_ERROR(need_batch(s, "snug_backward"));
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_BACKWARD));
    s->train_run.micro_batch++;
    return SNUG_OK;
}

snug_status snug_session_micro_batch(struct snug_session *s, snug_batch_info *info) {
    RETURN_IF_ERROR(snug_next_batch(s, info));
    RETURN_IF_ERROR(snug_forward(s));
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_HEAD));
    const struct snug_run *run = &s->train_run;
    float *to = loss_of(s, run->micro_batch);
    const void *loss = snug_run_data(run, s->job.training->loss);
    RETURN_IF_ERROR(after_operations(s, run, snug_block_copy_later(s->ctx, &s->arena, to, loss, sizeof *to)));
    return snug_backward(s);
}

snug_status snug_clip_grad_norm(snug_session *s, double max_norm, double *norm) {
    snug_clear_error(s->ctx);
    if (s->train_run.micro_batch == 0)
        return snug_fail(s->ctx, SNUG_E_USAGE, "snug_clip_grad_norm: there are no gradients; call snug_backward first");
    if (max_norm > 0 && s->job.training->updates_in_backward)
        return snug_fail(
            s->ctx, SNUG_E_USAGE,
            "snug_clip_grad_norm: the weights were updated in backward, where --max_grad_norm 0 told not to "
            "clip: set max_grad_norm before the session is made");
    s->train_run.max_grad_norm = (float)max_norm;
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_CLIP));
    s->clipped = true;
    float clip[2];
    if (!norm) return SNUG_OK;
    RETURN_IF_ERROR(snug_session_read(s, &s->train_run, s->job.training->clip, clip, sizeof clip));
    *norm = without_sign(clip[0]);
    return snug_session_look(s);
}

double snug_learning_rate(const snug_session *s) { return rate_after(s, s->skipped); }

snug_status snug_optimizer_step(snug_session *s) {
    snug_clear_error(s->ctx);
    if (s->train_run.micro_batch == 0)
        return snug_fail(s->ctx, SNUG_E_USAGE, "snug_optimizer_step: there are no gradients; call snug_backward first");
    if (!s->clipped && s->scaler >= 0) {
        RETURN_IF_ERROR(snug_clip_grad_norm(s, 0, NULL)); /* gradients have to be unscaled, and looked at */
    } else if (!s->clipped) {
        static const float none[2] = {0, 1};
        void *clip = snug_run_data(&s->train_run, s->job.training->clip);
        RETURN_IF_ERROR(snug_block_copy(s->ctx, &s->arena, clip, none, sizeof none));
    }
    set_rates(s);
    s->train_run.step = s->step;
    RETURN_IF_ERROR(run_training(s, SNUG_PHASE_UPDATE));
    s->step++;
    return ++s->unseen < SNUG_UNSEEN_STEPS ? SNUG_OK : snug_session_look(s);
}

/* Rows that wait would take the step for one that they missed: all do what they missed before it, and then begin anew
   behind it, as after loading. */
snug_status snug_session_skip_step(struct snug_session *s) {
    RETURN_IF_ERROR(snug_session_settle(s));
    s->step++;
    return snug_session_prepare(s);
}

snug_status snug_scheduler_step(snug_session *s) {
    s->schedule_step++;
    return SNUG_OK;
}

snug_status snug_zero_grad(snug_session *s) {
    s->train_run.micro_batch = 0;
    s->clipped = false;
    return SNUG_OK;
}

/* ---- looking inside ------------------------------------------------------------------------------------------- */

static const struct snug_parameter *find_parameter(const struct snug_session *s, const char *name) {
    const struct snug_program *program = any_program(s);
    for (size_t i = 0; i < program->parameter_count; i++)
        if (strcmp(program->parameters[i].name, name) == 0) return &program->parameters[i];
    return NULL;
}

/* The index of a gradient that holds only some rows of its table, or -1. */
static int32_t index_of(const struct snug_program *program, int32_t gradient) {
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_SQUARED_NORM && program->ops[i].in[0] == gradient)
            return program->ops[i].in[1];
    return -1;
}

/* Scaled by the last clipping. */
static snug_status copy_gradient(struct snug_session *s, int32_t gradient, int64_t first_row, float *values,
                                 size_t count) {
    const struct snug_run *run = &s->train_run;
    const int32_t index = index_of(run->program, gradient);
    const int64_t cols = snug_run_cols(run, gradient), rows = (int64_t)count / cols;
    float clip[2] = {0, 1};
    if (s->clipped) {
        RETURN_IF_ERROR(snug_session_read(s, run, run->program->clip, clip, sizeof clip));
    } else if (s->scaler >= 0) {
        RETURN_IF_ERROR(snug_session_read(s, run, s->scaler, &clip[1], sizeof clip[1]));
        clip[1] = 1 / clip[1];
    }
    if (index < 0)
        RETURN_IF_ERROR(snug_tensor_read(run->program, &s->memory, gradient, first_row * cols, (int64_t)count, values));
    for (int64_t row = 0; index >= 0 && row < rows; row++) {
        const int64_t slots = 1 + snug_run_rows(run, gradient);
        int32_t slot;
        RETURN_IF_ERROR(snug_tensor_read(run->program, &s->memory, index, slots + first_row + row, 1, &slot));
        if (slot < 0)
            memset(values + row * cols, 0, (size_t)cols * sizeof *values);
        else
            RETURN_IF_ERROR(
                snug_tensor_read(run->program, &s->memory, gradient, slot * cols, cols, values + row * cols));
    }
    for (size_t i = 0; i < count; i++) values[i] *= clip[1];
    return SNUG_OK;
}

static snug_status copy_parameter(struct snug_session *s, const char *name, bool gradient, float *values,
                                  size_t count) {
    const struct snug_program *program = any_program(s);
    const struct snug_parameter *parameter = find_parameter(s, name);
    snug_clear_error(s->ctx);
    if (!parameter) return snug_fail(s->ctx, SNUG_E_USAGE, "the model has no parameter %s", name);
    if ((int64_t)count != snug_parameter_count(parameter))
        return snug_fail(s->ctx, SNUG_E_USAGE, "%s has %lld values, not %zu", name,
                         (long long)snug_parameter_count(parameter), count);
    if (!gradient) {
        RETURN_IF_ERROR(snug_session_settle(s));
        return snug_parameter_read(program, &s->memory, parameter, 0, (int64_t)count, values);
    }
    char wanted[128];
    snprintf(wanted, sizeof wanted, "grad.%s", program->tensors[parameter->tensor].name);
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (!t->persistent || strcmp(t->name, wanted) != 0) continue;
        return copy_gradient(s, (int32_t)i, parameter->row, values, count);
    }
    return snug_fail(s->ctx, SNUG_E_USAGE, "%s has no gradient in this session", name);
}

snug_status snug_get_parameter(snug_session *s, const char *name, float *values, size_t count) {
    return copy_parameter(s, name, false, values, count);
}

snug_status snug_get_gradient(snug_session *s, const char *name, float *values, size_t count) {
    return copy_parameter(s, name, true, values, count);
}

const char *snug_parameter_name(const snug_session *s, size_t index, size_t *count) {
    const struct snug_program *program = any_program(s);
    if (index >= program->parameter_count) return NULL;
    if (count) *count = (size_t)snug_parameter_count(&program->parameters[index]);
    return program->parameters[index].name;
}

/* ---- saving --------------------------------------------------------------------------------------------------- */

snug_status snug_session_write_files(struct snug_session *s, const struct snug_folder *folder) {
    RETURN_IF_ERROR(snug_session_settle(s));
    RETURN_IF_ERROR(snug_json_write(s->ctx, folder, "config.json", s->job.config.json));
    RETURN_IF_ERROR(snug_weights_save(s->ctx, folder, "model.safetensors", any_program(s), &s->memory));
    return s->job.tokenizer ? snug_tokenizer_save(s->ctx, s->job.tokenizer, folder) : SNUG_OK;
}

snug_status snug_session_write_model(struct snug_session *s, struct snug_output *output) {
    const char *names[16] = {"config.json", "model.safetensors"};
    for (size_t i = 0; s->job.tokenizer && i < 13; i++) names[2 + i] = snug_tokenizer_file(s->job.tokenizer, i);
    RETURN_IF_ERROR(snug_output_begin(output, names));
    RETURN_IF_ERROR(snug_session_write_files(s, &output->folder));
    return snug_output_end(output);
}

snug_status snug_save_model(snug_session *s, const char *folder) {
    struct snug_output output = {0};
    snug_clear_error(s->ctx);
    RETURN_IF_ERROR(snug_output_make(s->ctx, folder, true, s->job.args->overwrite_output_dir, s->job.mode, &output));
    const snug_status status = snug_session_write_model(s, &output);
    snug_output_close(&output);
    return status;
}
