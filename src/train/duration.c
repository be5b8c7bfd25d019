/* SPDX-License-Identifier: Apache-2.0 */
#include "train/duration.h"

#include "measure/gpu_rates.h"
#include "model/family.h"
#include "train/calendar.h"
#include "train/group.h"

#define SHORT                                                                                                          \
    2 /* seconds by assumed rates: a run that takes less is not worth a probe, which takes about half a second */

/* The evaluations within and after the training; early stopping is not foreseen. */
static int64_t count_evaluations(const struct snug_args *args, const struct snug_data_pipeline *training) {
    const struct snug_calendar c = snug_calendar_of(args, training->max_steps, training->steps_per_epoch);
    const bool last = snug_calendar_is_due(&c, &c.evaluating, c.steps);
    return args->eval_on_start + snug_calendar_count(&c, &c.evaluating, 0, c.steps) +
           (!last || args->load_best_model_at_end);
}

/* What an estimate is for. */
struct subject {
    const struct snug_job *job;
    const struct snug_planned_program *training, *evaluation;
    struct snug_duration *out;
};

static snug_status estimate_with(const struct subject *s, struct snug_rates *rates, enum snug_seconds_source source) {
    const struct snug_setup *setup = &s->job->setup;
    struct snug_duration *out = s->out;
    struct snug_estimate step;
    struct snug_step_estimate batch = {0};
    snug_device_set_link(&s->job->limits.device, snug_args_ranks(setup->args), rates);
    RETURN_IF_ERROR(snug_run_plan_step(&s->job->plan, rates, &step));
    if (out->evaluations) {
        const struct snug_data_pipeline *pipeline = &s->evaluation->pipeline;
        RETURN_IF_ERROR(snug_estimate_parts(rates, &s->evaluation->program, &pipeline->load, &batch));
        out->evaluation = batch.total.seconds * (double)snug_loader_batches(setup->eval.rows, &pipeline->options);
    }
    out->step = step.seconds;
    out->run = out->step * (double)s->training->pipeline.max_steps + out->evaluation * (double)out->evaluations;
    out->source = source;
    out->scaled_from = rates->scaled_from;
    return SNUG_OK;
}

/* Rates of a GPU on which none were measured: scaled ones, if its model is known. */
static snug_status scale(const struct subject *s, struct snug_rates *rates) {
    const struct snug_gpu_model *model = snug_gpu_model_find(snug_device_gpu(&s->job->limits.device));
    if (!model) return SNUG_OK;
    RETURN_IF_ERROR(snug_rates_scale(s->job->ctx, model, rates));
    return estimate_with(s, rates, SNUG_SECONDS_SCALED);
}

static snug_status assume(const struct subject *s, struct snug_rates *rates) {
    const struct snug_setup *setup = &s->job->setup;
    RETURN_IF_ERROR(snug_rates_assume(s->job->ctx, setup->backend, setup->threads, rates));
    const snug_status status = estimate_with(s, rates, SNUG_SECONDS_ASSUMED);
    snug_rates_free(rates);
    return status;
}

static snug_status probe(const struct subject *s, struct snug_rates *rates) {
    const struct snug_run_plan *plan = &s->job->plan;
    const struct snug_setup *setup = &s->job->setup;
    const struct snug_rates_probe options = {.weights = plan->weights,
                                             .causal = setup->config.family->causal,
                                             .masked_lm = snug_setup_task(setup)->head == SNUG_HEAD_VOCABULARY,
                                             .optimizer = plan->optimizer.info,
                                             .offload_dir = plan->offload_dir,
                                             .bytes = plan->layout.arena};
    const double begin = snug_seconds();
    RETURN_IF_ERROR(
        snug_rates_probe(s->job->ctx, setup->backend, setup->threads, &s->training->program, &options, rates));
    s->out->probed = snug_seconds() - begin;
    return rates->count ? estimate_with(s, rates, SNUG_SECONDS_PROBED) : SNUG_OK;
}

/* Rates that cannot be read, or that lack some: the run does not need them. */
static snug_status warn(snug_context *ctx, snug_status status) {
    if (status == SNUG_OK || status == SNUG_E_MEMORY) return status;
    snug_log(ctx, SNUG_LOG_WARNING, "%s", snug_context_message(ctx));
    snug_clear_error(ctx);
    return SNUG_OK;
}

static snug_status estimate(const struct subject *s, struct snug_rates *rates, bool probes) {
    const struct snug_device *device = &s->job->limits.device;
    const char *gpu = snug_device_gpu(device);
    RETURN_IF_ERROR(warn(s->job->ctx, snug_rates_known(s->job->ctx, device->backend, gpu, device->threads, rates)));
    if (rates->count) return estimate_with(s, rates, SNUG_SECONDS_MEASURED);
    if (gpu) return scale(s, rates);
    RETURN_IF_ERROR(assume(s, rates));
    return probes && s->out->run > SHORT ? probe(s, rates) : SNUG_OK;
}

snug_status snug_duration_estimate(const struct snug_job *job, bool probes, struct snug_duration *out) {
    const struct subject subject = {.job = job,
                                    .training = snug_run_plan_find(&job->plan, SNUG_ROLE_TRAINING),
                                    .evaluation = snug_run_plan_find(&job->plan, SNUG_ROLE_EVALUATION),
                                    .out = out};
    struct snug_rates rates = {0};
    *out = (struct snug_duration){0};
    if (!subject.training) return SNUG_OK;
    if (subject.evaluation) out->evaluations = count_evaluations(job->setup.args, &subject.training->pipeline);
    if (snug_group_rank(job->setup.args->group) != 0) return SNUG_OK;
    const snug_status status = warn(job->ctx, estimate(&subject, &rates, probes));
    snug_rates_free(&rates);
    return status;
}

const char *snug_duration_source(const struct snug_duration *duration) {
    static const char *const names[] = {NULL, "measured", "scaled", "probe", "assumed"};
    return names[duration->source];
}
