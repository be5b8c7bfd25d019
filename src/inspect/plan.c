/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/positions.h"
#include "io/offload_file.h"
#include "model/family.h"
#include "model/weights.h"
#include "train/job.h"
#include "train/parallel.h"
#include "train/trainings.h"

static struct snug_plan_part *part_of(snug_plan *plan, const struct snug_tensor *tensor) {
    if (tensor->part == SNUG_PART_LAYER) return &plan->encoder[tensor->layer];
    return tensor->part == SNUG_PART_EMBEDDINGS ? &plan->embeddings : &plan->head;
}

static snug_status sum_parts(const struct snug_program *program, snug_plan *plan) {
    RETURN_IF_ERROR(snug_alloc(plan->ctx, (size_t)plan->layers, sizeof *plan->encoder, (void **)&plan->encoder));
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *tensor = &program->tensors[i];
        const bool stays =
            !tensor->offloaded && (tensor->persistent || tensor->memory_class == SNUG_MEMORY_ACTIVATIONS);
        if (stays && snug_plan_by_part(tensor->memory_class))
            part_of(plan, tensor)->bytes[tensor->memory_class] += tensor->bytes;
    }
    return SNUG_OK;
}

static snug_status estimate_step(const struct snug_setup *setup, const struct snug_planned_program *training,
                                 struct snug_step_estimate *step) {
    const struct snug_loader_limits *limits = &training->pipeline.limits;
    const int64_t rows =
        (int64_t)snug_task_positions(snug_setup_task(setup), &training->pipeline.options, setup->train.dataset,
                                     (double)limits->sequences, (double)limits->tokens);
    const struct snug_load load = {.tokens = (double)limits->tokens,
                                   .sequences = (double)limits->sequences,
                                   .rows = (double)rows,
                                   .micro_batches = (double)snug_loader_share(&training->pipeline.options)};
    return snug_estimate_parts(NULL, &training->program, &load, step);
}

static int64_t allocated(const struct snug_run_plan *plan, snug_memory_class memory_class) {
    return plan->layout.bytes[memory_class] + plan->layout.offloaded[memory_class];
}

static double backward_flops(const struct snug_step_estimate *step) {
    double flops = 0;
    for (int group = 0; group < SNUG_GROUP_COUNT; group++) flops += step->parts[SNUG_SIDE_BACKWARD][group].flops;
    return flops;
}

static snug_status compare_thawed(const struct snug_job *job, struct snug_run_plan *thawed, snug_plan *plan) {
    struct snug_step_estimate step;
    snug_limits_account(&job->limits, thawed);
    RETURN_IF_ERROR(estimate_step(&job->setup, snug_run_plan_find(thawed, SNUG_ROLE_TRAINING), &step));
    plan->frozen = (struct snug_plan_frozen){
        .gradients = allocated(thawed, SNUG_MEMORY_GRADIENTS) - allocated(&job->plan, SNUG_MEMORY_GRADIENTS),
        .states = allocated(thawed, SNUG_MEMORY_OPTIMIZER) - allocated(&job->plan, SNUG_MEMORY_OPTIMIZER),
        .flops = backward_flops(&step) - backward_flops(&plan->step),
        .total = thawed->total};
    memcpy(plan->frozen.bytes, thawed->bytes, sizeof plan->frozen.bytes);
    return SNUG_OK;
}

/* Builds the same plan without --freeze and adapters. In a context of its own: the plan's may have the message that it
 * does not fit.
 */
static snug_status find_frozen(const struct snug_job *job, snug_plan *plan) {
    snug_context *ctx;
    struct snug_run_plan thawed = {0};
    if (snug_context_create(&ctx) != SNUG_OK)
        return snug_fail(plan->ctx, SNUG_E_MEMORY, "a plan in which all is trained: out of memory");
    snug_status status = snug_training_plan(ctx, &job->setup, &job->plan, SNUG_TRAINING_FULL, "", &thawed);
    if (status == SNUG_OK) status = compare_thawed(job, &thawed, plan);
    if (status != SNUG_OK) status = snug_fail(plan->ctx, status, "all trained: %s", snug_context_message(ctx));
    snug_run_plan_free(&thawed);
    snug_context_destroy(ctx);
    return status;
}

static snug_status describe_offload(const struct snug_job *job, snug_plan *plan) {
    const struct snug_layout *layout = &job->plan.layout;
    const char *folder = job->plan.offload_dir;
    if (!layout->offload_bytes) return SNUG_OK;
    memcpy(plan->offloaded, layout->offloaded, sizeof plan->offloaded);
    plan->offloaded_total = layout->offload_bytes;
    if (!folder) return SNUG_OK;
    plan->bounce = job->setup.backend->bounce;
    plan->offload_is_memory = snug_offload_file_is_memory(folder);
    return snug_strdup(plan->ctx, folder, &plan->offload_dir);
}

/* How much of the communication is beside operations: by the step's seconds with and without it. */
static snug_status estimate_communication(const struct snug_job *job, const struct snug_rates *rates, snug_plan *plan) {
    const struct snug_planned_program *training = snug_run_plan_find(&job->plan, SNUG_ROLE_TRAINING);
    struct snug_rates alone = *rates;
    struct snug_step_estimate with, without;
    alone.link = (struct snug_link){0};
    plan->link = snug_device_link(&job->limits.device, plan->ranks, &plan->link_is);
    RETURN_IF_ERROR(snug_estimate_parts(rates, &training->program, &training->pipeline.load, &with));
    RETURN_IF_ERROR(snug_estimate_parts(&alone, &training->program, &training->pipeline.load, &without));
    plan->communicates = with.collectives;
    plan->waits = with.total.seconds - without.total.seconds;
    return SNUG_OK;
}

/* How many ranks need how much less memory, beside this machine's memory, the GPU's, or the budget. */
static snug_status find_ranks(const struct snug_job *job, snug_plan *plan) {
    int64_t budget;
    RETURN_IF_ERROR(snug_args_budget(job->setup.args, &budget));
    const int64_t limit = budget >= 0 ? budget : plan->available;
    if (limit < 0) return SNUG_OK; /* unknown */
    plan->fits_known = true;
    return snug_fit_ranks(&job->setup, &job->limits, limit, plan->fits_from);
}

static snug_status price_trainings(const struct snug_job *job, const struct snug_rates *rates, snug_plan *plan) {
    const struct snug_setup *setup = &job->setup;
    struct snug_limit limit;
    bool over;
    plan->training = setup->config.family->causal ? snug_training_of(setup) : SNUG_TRAINING_COUNT;
    if (plan->training == SNUG_TRAINING_COUNT) return SNUG_OK;
    RETURN_IF_ERROR(snug_limits_find(&job->limits, setup, &job->plan, &limit, &over));
    plan->training_limit = limit.bytes;
    return snug_trainings_price(setup, &job->limits, &job->plan, rates, limit.bytes, plan->trainings);
}

static snug_status price_methods(const struct snug_job *job, snug_plan *plan) {
    const struct snug_setup *setup = &job->setup;
    struct snug_rates rates;
    if (job->fit) {
        plan->searched = true;
        plan->fit = *job->fit;
        RETURN_IF_ERROR(snug_fit_sentence(plan->ctx, job->fit, &plan->fit_text));
    }
    RETURN_IF_ERROR(snug_device_rates(&job->limits.device, &rates));
    if (!rates.count) return SNUG_OK;
    plan->scaled = rates.scaled_from != NULL;
    plan->untried = plan->scaled && !job->limits.device.model->tried;
    snprintf(plan->rates_of, sizeof plan->rates_of, "%s", plan->scaled ? rates.scaled_from : rates.device);
    snug_device_set_link(&job->limits.device, plan->ranks, &rates);
    snug_status status = SNUG_OK;
    if (plan->ranks > 1) status = estimate_communication(job, &rates, plan);
    if (status == SNUG_OK)
        status = snug_fit_table(setup, &job->limits, &job->plan, &rates, &plan->methods, &plan->method_count);
    if (status == SNUG_OK) status = price_trainings(job, &rates, plan);
    snug_rates_free(&rates);
    return status;
}

static snug_status describe(const struct snug_job *job, snug_plan *plan) {
    const struct snug_planned_program *training = snug_run_plan_find(&job->plan, SNUG_ROLE_TRAINING);
    const struct snug_program *program = &training->program;
    const struct snug_config *config = &job->setup.config;
    const struct snug_loader_limits *limits = &training->pipeline.limits;
    plan->task = config->task;
    plan->family = config->family->name;
    plan->layers = config->num_hidden_layers;
    plan->hidden = config->hidden_size;
    plan->heads = config->num_attention_heads;
    plan->intermediate = config->intermediate_size;
    plan->vocabulary = config->vocab_size;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const int64_t count = snug_parameter_count(&program->parameters[i]);
        plan->parameters += count;
        if (program->parameters[i].lora) plan->adapted += count;
        if (program->tensors[program->parameters[i].tensor].trainable) plan->trainable += count;
    }
    plan->compute = program->compute;
    plan->tf32 = program->tf32;
    plan->weights = job->plan.weights;
    plan->quantized = snug_quantized_sum_of(program);
    plan->sequences = limits->sequences;
    plan->tokens = limits->tokens;
    plan->longest = limits->longest;
    plan->accumulation = snug_loader_share(&training->pipeline.options);
    plan->ranks = training->pipeline.options.ranks;
    plan->zero_stage = (int)job->setup.args->zero_stage;
    plan->sent = snug_parallel_bytes(program, plan->accumulation);
    memcpy(plan->bytes, job->plan.bytes, sizeof plan->bytes);
    plan->total = job->plan.total;
    plan->gpu = snug_device_is_gpu(&job->limits.device);
    plan->elsewhere = job->limits.device.backend->plans_only;
    snprintf(plan->device, sizeof plan->device, "%s", job->limits.device.usage.gpu.name);
    plan->memory = snug_limits_memory(&job->limits);
    plan->available = snug_limits_available(&job->limits);
    plan->max_steps = training->pipeline.max_steps;
    plan->samples = training->pipeline.load.sequences * training->pipeline.load.micro_batches * plan->ranks;
    RETURN_IF_ERROR(estimate_step(&job->setup, training, &plan->step));
    if (plan->trainable < plan->parameters) RETURN_IF_ERROR(find_frozen(job, plan));
    RETURN_IF_ERROR(describe_offload(job, plan));
    RETURN_IF_ERROR(sum_parts(program, plan));
    if (plan->ranks > 1) RETURN_IF_ERROR(find_ranks(job, plan));
    return price_methods(job, plan);
}

static snug_status create_plan(snug_args *args, snug_plan **out) {
    struct snug_job job;
    void *memory;
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    snug_plan *plan = memory;
    plan->ctx = args->ctx;
    plan->training = SNUG_TRAINING_COUNT;
    const snug_status opened = snug_job_open(args, SNUG_COMMAND_PLAN, &job);
    snug_status status = opened;
    if (opened == SNUG_OK || opened == SNUG_E_DOES_NOT_FIT) {
        const snug_status described = describe(&job, plan);
        if (described != SNUG_OK) status = described;
        if (described == SNUG_OK) *out = plan;
    }
    snug_job_close(&job);
    if (!*out) snug_plan_destroy(plan);
    return status;
}

snug_status snug_plan_create(snug_args *args, snug_plan **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, create_plan(args, out));
}

void snug_plan_destroy(snug_plan *plan) {
    if (!plan) return;
    free(plan->offload_dir);
    free(plan->encoder);
    free(plan->methods);
    free(plan->fit_text);
    free(plan);
}

int64_t snug_plan_bytes(const snug_plan *plan, snug_memory_class memory_class) {
    SNUG_REQUIRE_OR(-1, plan);
    return (unsigned)memory_class < SNUG_MEMORY_CLASS_COUNT ? plan->bytes[memory_class] : -1;
}

int64_t snug_plan_total(const snug_plan *plan) {
    SNUG_REQUIRE_OR(-1, plan);
    return plan->total;
}
