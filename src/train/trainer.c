/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snug_train(): a training loop written with the calls of snug.h, and the other tasks of transformers' Trainer:
 * logging, evaluation, checkpoints, the best model, early stopping, result files.
 */
#include "train/trainer.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "args/table.h"
#include "data/positions.h"
#include "io/folder_write.h"
#include "io/json.h"
#include "train/description.h"
#include "train/group.h"
#include "train/memory.h"
#include "train/model_card.h"
#include "train/no_effect.h"
#include "train/reference.h"
#include "train/results.h"
#include "train/training_args.h"

#define TICK 1e-9 /* the resolution of the clock */

double snug_trainer_epoch(const struct snug_trainer *t) {
    return (double)t->session->step / (double)t->session->steps_per_epoch;
}

/* Assumes that every micro-batch is the mean one. */
double snug_trainer_flops(const struct snug_trainer *t) {
    const struct snug_session *s = t->session;
    const struct snug_planned_program *training = s->training;
    const int64_t micro = s->step * training->pipeline.options.accumulation;
    if (micro == 0) return 0;
    const int64_t texts = training->pipeline.options.texts ? training->pipeline.options.texts : 1;
    const int64_t tokens = t->tokens / micro, sequences = texts * ((t->samples + micro - 1) / micro);
    const struct snug_setup *setup = &s->job.setup;
    const int64_t rows = (int64_t)snug_task_positions(snug_setup_task(setup), &training->pipeline.options,
                                                      setup->train.dataset, (double)sequences, (double)tokens);
    const struct snug_load load = {.tokens = (double)tokens,
                                   .sequences = (double)sequences,
                                   .rows = (double)rows,
                                   .micro_batches = (double)training->pipeline.options.accumulation};
    struct snug_step_estimate step;
    snug_estimate_parts(NULL, &training->program, &load, &step); /* fails only with rates */
    return (double)s->step * step.total.flops;
}

static void send(const struct snug_trainer *t, snug_event event) {
    if (!t->callbacks || !t->callbacks->on_event || !snug_trainer_leads(t)) return;
    const double spent = snug_seconds() - t->started;
    const int64_t step = t->session->step, steps = t->session->max_steps;
    event.step = step;
    event.max_steps = steps;
    event.epoch = snug_trainer_epoch(t);
    event.seconds = spent;
    event.samples_per_second = (double)t->result->samples / fmax(spent - t->idle, TICK);
    event.seconds_left = t->result->steps > 0 ? spent / (double)t->result->steps * (double)(steps - step) : 0;
    t->callbacks->on_event(t->callbacks->user, &event);
}

/* ---- logging -------------------------------------------------------------------------------------------------- */

/* Appends to log_history and to TensorBoard, under the tags of transformers' callback. */
static snug_status record(struct snug_trainer *t, const struct snug_metric_list *metrics) {
    const int64_t step = t->session->step;
    json_t *entry = json_pack("{s:o, s:I}", "epoch", snug_json_number(snug_trainer_epoch(t)), "step", (json_int_t)step);
    int failed = !entry;
    for (size_t i = 0; i < metrics->count && !failed; i++) /* as in Trainer, without the number of rows */
        failed = strcmp(metrics->items[i].name, "eval_samples") != 0 &&
                 json_object_set_new(entry, metrics->items[i].name, snug_json_number(metrics->items[i].value));
    if (failed) json_decref(entry);
    if (failed || json_array_append_new(t->log_history, entry))
        return snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while logging step %lld", (long long)step);
    if (t->events)
        RETURN_IF_ERROR(snug_events_scalar(t->events, "train/epoch", step, snug_trainer_epoch(t), (double)time(NULL)));
    for (size_t i = 0; t->events && i < metrics->count; i++) {
        char tag[96];
        const char *name = metrics->items[i].name;
        const bool eval = strncmp(name, "eval_", 5) == 0;
        snprintf(tag, sizeof tag, "%s/%s", eval ? "eval" : "train", eval ? name + 5 : name);
        RETURN_IF_ERROR(snug_events_scalar(t->events, tag, step, metrics->items[i].value, (double)time(NULL)));
    }
    return SNUG_OK;
}

/* Seconds of training, without evaluating and saving. */
static double training_seconds(const struct snug_trainer *t) { return snug_seconds() - t->started - t->idle; }

/* Of preferences, as DPOTrainer names them. */
static void add_results(struct snug_trainer *t, struct snug_metric_list *metrics) {
    static const char *const names[SNUG_PREFERENCE_RESULTS] = {[SNUG_REWARDS_CHOSEN] = "rewards/chosen",
                                                               [SNUG_REWARDS_REJECTED] = "rewards/rejected",
                                                               [SNUG_REWARDS_ACCURACIES] = "rewards/accuracies",
                                                               [SNUG_REWARDS_MARGINS] = "rewards/margins",
                                                               [SNUG_LOGPS_CHOSEN] = "logps/chosen",
                                                               [SNUG_LOGPS_REJECTED] = "logps/rejected"};
    for (int i = 0; i < SNUG_PREFERENCE_RESULTS && t->pairs > 0; i++)
        metrics->items[metrics->count++] = (snug_metric){names[i], t->results[i] / t->pairs};
    memset(t->results, 0, sizeof t->results);
    t->pairs = 0;
}

static snug_status log_step(struct snug_trainer *t, double grad_norm, double learning_rate) {
    const int64_t step = t->session->step;
    if (step == t->logged_step) return SNUG_OK;
    const double loss = t->loss_sum / (double)(step - t->logged_step);
    const double seconds = training_seconds(t);
    const double rate = (double)(t->result->samples - t->logged_samples) / fmax(seconds - t->logged_seconds, TICK);
    t->loss_sum = 0;
    t->logged_step = step;
    t->logged_seconds = seconds;
    t->logged_samples = t->result->samples;
    struct snug_metric_list metrics = {
        4, {{"loss", loss}, {"grad_norm", grad_norm}, {"learning_rate", learning_rate}, {"samples_per_second", rate}}};
    add_results(t, &metrics);
    RETURN_IF_ERROR(record(t, &metrics));
    send(t, (snug_event){.kind = SNUG_EVENT_LOG, .loss = loss, .grad_norm = grad_norm, .learning_rate = learning_rate});
    return SNUG_OK;
}

/* Trainer's last entry of a training. */
static snug_status record_totals(struct snug_trainer *t) {
    const snug_train_result *r = t->result;
    const struct snug_metric_list metrics = {5,
                                             {{"train_runtime", r->seconds},
                                              {"train_samples_per_second", r->samples_per_second},
                                              {"train_steps_per_second", r->steps_per_second},
                                              {"total_flos", snug_trainer_flops(t)}, /* of all steps */
                                              {"train_loss", r->train_loss}}};
    return record(t, &metrics);
}

/* The arguments, as transformers' callback writes them. */
static snug_status record_arguments(const struct snug_trainer *t) {
    char *text;
    json_t *arguments = snug_args_json(t->args);
    if (!arguments) return snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while logging the arguments");
    snug_status status = snug_json_text(t->ctx, arguments, JSON_INDENT(2), &text);
    json_decref(arguments);
    RETURN_IF_ERROR(status);
    status = snug_events_text(t->events, "args/text_summary", text, (double)time(NULL));
    free(text);
    return status;
}

static snug_status open_events(struct snug_trainer *t) {
    const struct snug_args *args = t->args;
    if (!snug_trainer_reports(t->args)) return SNUG_OK;
    char timestamp[32], host[HOST_NAME_MAX + 1] = "", *name = NULL;
    struct snug_folder runs;
    const mode_t mode = t->output.folder.mode;
    const time_t seconds = time(NULL);
    struct tm local;
    if (args->logging_dir) return snug_events_open(t->ctx, NULL, args->logging_dir, mode, &t->events);
    strftime(timestamp, sizeof timestamp, "%b%d_%H-%M-%S", localtime_r(&seconds, &local));
    gethostname(host, sizeof host);
    RETURN_IF_ERROR(snug_folder_make(t->ctx, &t->output.folder, "runs", mode, &runs));
    snug_status status = snug_format(t->ctx, &name, "%s_%s", timestamp, host);
    if (status == SNUG_OK) status = snug_events_open(t->ctx, &runs, name, mode, &t->events);
    free(name);
    snug_folder_close(&runs);
    return status;
}

/* ---- saving and evaluating ------------------------------------------------------------------------------------ */

/* During consecutive steps without a finite loss nothing is saved, so no earlier checkpoint is removed. */
static snug_status save(struct snug_trainer *t) {
    char path[SNUG_CHECKPOINT_PATH];
    const double begin = snug_seconds();
    if (t->streak) {
        snug_log(t->ctx, SNUG_LOG_WARNING, "step %lld is not saved: its loss or gradients are not finite",
                 (long long)t->session->step);
        return SNUG_OK;
    }
    snug_group_at(t->args->group, t->session->step, "writing a checkpoint");
    RETURN_IF_ERROR(snug_checkpoint_save(t, path));
    t->idle += snug_seconds() - begin;
    send(t, (snug_event){.kind = SNUG_EVENT_SAVE, .path = path});
    return SNUG_OK;
}

/* improved is NULL if the evaluation does not select the best model. An evaluation that was logged before a resumption
   is not logged again. */
static snug_status evaluate(struct snug_trainer *t, bool *improved) {
    struct snug_metric_list *metrics = &t->outcome->list;
    const double begin = snug_seconds();
    const snug_status status = snug_session_evaluate_with(t->session, t->callbacks, metrics);
    if (status == SNUG_E_NUMERIC) return snug_trainer_outputs_not_finite(t);
    RETURN_IF_ERROR(status);
    t->idle += snug_seconds() - begin;
    if (!t->logged_evaluation) RETURN_IF_ERROR(record(t, metrics));
    t->evaluated_step = t->session->step;
    t->outcome->metrics = snug_metrics_shown(metrics);
    send(t, (snug_event){.kind = SNUG_EVENT_EVALUATE, .metrics = &t->outcome->metrics});
    if (improved) snug_best_judge(t, metrics, improved);
    return SNUG_OK;
}

static bool is_asked(const struct snug_trainer *t) {
    return t->callbacks && t->callbacks->should_stop && t->callbacks->should_stop(t->callbacks->user);
}

/* Ranks stop at the same step: the request to one of them counts for all when its report of the step has arrived. */
static bool wants_stop(const struct snug_trainer *t) { return t->args->group ? t->stop : is_asked(t); }

static snug_status interrupted(struct snug_trainer *t) {
    snug_clear_error(t->ctx); /* an evaluation's record, which is shorter */
    if (t->streak)
        return snug_fail(t->ctx, SNUG_E_INTERRUPTED,
                         "interrupted at step %lld of %lld, which is not saved: the last %lld steps had no finite loss "
                         "or gradients",
                         (long long)t->session->step, (long long)t->session->max_steps, (long long)t->streak);
    RETURN_IF_ERROR(save(t));
    RETURN_IF_ERROR(snug_group_barrier(t->ctx, t->args->group)); /* no rank ends before the checkpoint is complete */
    return snug_fail(t->ctx, SNUG_E_INTERRUPTED, "interrupted at step %lld of %lld; %s", (long long)t->session->step,
                     (long long)t->session->max_steps,
                     t->args->save_only_model ? "the weights are saved, but with --save_only_model it cannot be resumed"
                                              : "continue with --resume_from_checkpoint True");
}

/* Runs after an optimizer step: log, evaluate, save, in Trainer's order. */
static snug_status after_step(struct snug_trainer *t, double grad_norm, double learning_rate) {
    const struct snug_args *args = t->args;
    const int64_t step = t->session->step;
    const struct snug_calendar *calendar = &t->calendar;
    bool improved = false, evaluated = false;
    if (snug_calendar_is_due(calendar, &calendar->logging, step) || (args->logging_first_step && step == 1))
        RETURN_IF_ERROR(log_step(t, grad_norm, learning_rate));
    if (snug_calendar_is_due(calendar, &calendar->evaluating, step)) {
        const snug_status status = evaluate(t, &improved);
        t->unjudged = status == SNUG_E_INTERRUPTED;
        if (t->unjudged) return interrupted(t);
        RETURN_IF_ERROR(status);
        evaluated = true;
    }
    if (args->save_strategy == SNUG_INTERVAL_BEST ? improved
                                                  : snug_calendar_is_due(calendar, &calendar->saving, step)) {
        snug_best_save(t);
        RETURN_IF_ERROR(save(t));
    }
    if (evaluated && args->early_stopping_patience > 0 && t->impatience >= args->early_stopping_patience) {
        snug_log(t->ctx, SNUG_LOG_INFO, "stopped early at step %lld: %s has not improved in %lld evaluations",
                 (long long)step, args->metric_for_best_model, (long long)t->impatience);
        return SNUG_END;
    }
    return SNUG_OK;
}

/* ---- training ------------------------------------------------------------------------------------------------- */

/* This rank's micro-batches of one optimizer step. SNUG_END if the epoch has no more steps. */
static snug_status run_micro_batches(struct snug_trainer *t, struct snug_report *own) {
    struct snug_session *s = t->session;
    const snug_batch_info *info;
    snug_session_begin_step(s);
    if (s->idle) return snug_session_attend(s);
    do {
        RETURN_IF_ERROR(snug_group_check(t->ctx, t->args->group));
        RETURN_IF_ERROR(snug_session_micro_batch(s, &info));
        own->samples += (double)(s->batch->texts ? info->sequences / s->batch->texts : info->sequences);
        own->tokens += (double)info->tokens;
    } while (!info->last_in_step);
    return snug_session_attend(s);
}

static void add_report(struct snug_trainer *t, const struct snug_report *report) {
    t->samples += (int64_t)report->samples;
    t->tokens += (int64_t)report->tokens;
    t->result->samples += (int64_t)report->samples;
    t->result->tokens += (int64_t)report->tokens;
    t->stop |= report->stop != 0;
    t->pairs += report->pairs;
    for (int i = 0; i < SNUG_PREFERENCE_RESULTS; i++) t->results[i] += report->results[i];
}

static void add_loss(const struct snug_trainer *t, const struct snug_report *report, int64_t micro, double *loss,
                     double *logged) {
    if (micro >= (int64_t)report->micro_batches) return;
    *loss += report->losses[micro];
    *logged += snug_trainer_filter_loss(t, *logged, report->losses[micro]);
}

/* Of preferences: those of this rank's micro-batches. */
static void sum_results(const struct snug_session *s, struct snug_report *own) {
    memset(own->results, 0, sizeof own->results);
    own->pairs = snug_session_results(s, 0) ? own->samples : 0;
    for (int64_t micro = 0; micro < s->train_run.micro_batch && own->pairs > 0; micro++)
        for (int i = 0; i < SNUG_PREFERENCE_RESULTS; i++) own->results[i] += (double)snug_session_results(s, micro)[i];
}

/* Completes this rank's report, and adds those of all ranks in order: the sums are those of one rank that has all
   micro-batches. */
static snug_status share_reports(struct snug_trainer *t, double *loss, double *logged) {
    const struct snug_session *s = t->session;
    const struct snug_process_group *group = t->args->group;
    const int64_t doubles = snug_parallel_report_doubles(&s->training->pipeline.options);
    struct snug_report *own = snug_report_of(t->reports, doubles, snug_group_rank(group));
    own->micro_batches = (double)s->train_run.micro_batch;
    sum_results(s, own);
    for (int64_t micro = 0; micro < s->train_run.micro_batch; micro++) own->losses[micro] = snug_session_loss(s, micro);
    if (group) own->stop = is_asked(t);
    RETURN_IF_ERROR(snug_group_all_gather(t->ctx, group, t->reports, doubles * (int64_t)sizeof(double)));
    const int ranks = snug_group_size(group);
    const int64_t share = snug_loader_share(&s->training->pipeline.options);
    const bool in_turns = s->training->pipeline.options.in_turns;
    for (int rank = 0; rank < ranks; rank++) add_report(t, snug_report_of(t->reports, doubles, rank));
    for (int64_t i = 0; i < ranks * share; i++) { /* in the order of the step's micro-batches */
        const int rank = (int)(in_turns ? i % ranks : i / share);
        add_loss(t, snug_report_of(t->reports, doubles, rank), in_turns ? i / ranks : i % share, loss, logged);
    }
    return SNUG_OK;
}

/* All micro-batches of one optimizer step, and the update; *logged: the loss to log. SNUG_END if the epoch has no more
   steps. */
static snug_status train_step(struct snug_trainer *t, double *loss, double *logged, double *grad_norm,
                              double *learning_rate) {
    struct snug_session *s = t->session;
    const int64_t doubles = snug_parallel_report_doubles(&s->training->pipeline.options);
    struct snug_report *own = snug_report_of(t->reports, doubles, snug_group_rank(t->args->group));
    *loss = *logged = 0;
    snug_group_at(t->args->group, s->step + 1, "in a step");
    own->samples = own->tokens = 0;
    RETURN_IF_ERROR(run_micro_batches(t, own));
    RETURN_IF_ERROR(snug_session_clip(s, t->args->max_grad_norm, grad_norm));
    const bool applies = isfinite(*grad_norm) || s->scaler; /* the same on all ranks */
    *learning_rate = snug_session_rate(s);
    t->finished = s->step;
    if (applies) RETURN_IF_ERROR(snug_session_update(s)); /* a GPU does it while the ranks share their reports */
    RETURN_IF_ERROR(share_reports(t, loss, logged));
    const bool finite = isfinite(*loss) && (isfinite(*grad_norm) || s->scaler); /* fp16 skips steps by design */
    t->streak = finite ? 0 : t->streak + 1;
    if (isfinite(*loss) && isfinite(*grad_norm))
        t->infinite_in_a_row = 0;
    else if (!s->scaler) /* else the device skips the step, and lowers the scale */
        RETURN_IF_ERROR(snug_trainer_not_finite(t, *loss, *grad_norm));
    if (!applies) RETURN_IF_ERROR(snug_session_skip_step(s));
    snug_session_advance_schedule(s);
    snug_session_zero_grad(s);
    return SNUG_OK;
}

/* Seconds for which operations waited for offloaded tensors; on a GPU it is not known. */
static double copy_seconds(const struct snug_session *s) {
    double seconds = 0;
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
        if (snug_op_info((enum snug_op_kind)kind)->flags & SNUG_OP_COPIES) seconds += s->profile.seconds[kind];
    return seconds;
}

static void begin_pace(struct snug_trainer *t) {
    const struct snug_session *s = t->session;
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_pace_plan plan = {.step = s->duration.step,
                                        .tokens = (double)snug_dataset_tokens(setup->train.dataset) /
                                                  (double)s->steps_per_epoch,
                                        .source = s->duration.source,
                                        .threads = setup->threads,
                                        .disk = s->job.plan.layout.offload_bytes ? s->job.plan.offload_dir : NULL,
                                        .gpu = snug_device_is_gpu(&s->job.limits.device)};
    snug_pace_begin(&t->pace, &plan, training_seconds(t));
}

static snug_status train_epoch(struct snug_trainer *t) {
    struct snug_session *s = t->session;
    RETURN_IF_ERROR(snug_session_resume_epoch(s));
    while (s->step < s->max_steps) {
        double loss = 0, logged = 0, grad_norm = 0, learning_rate = 0;
        const int64_t tokens = t->result->tokens;
        snug_status status = train_step(t, &loss, &logged, &grad_norm, &learning_rate);
        if (status == SNUG_END) return SNUG_OK;
        if (status != SNUG_OK) return status;
        if (snug_trainer_leads(t))
            snug_pace_step(&t->pace, t->ctx, training_seconds(t), (double)(t->result->tokens - tokens), copy_seconds(s),
                           s->max_steps - s->step);
        t->result->steps++;
        t->loss_sum += logged;
        t->loss_total += logged;
        send(t, (snug_event){
                    .kind = SNUG_EVENT_STEP, .loss = loss, .grad_norm = grad_norm, .learning_rate = learning_rate});
        RETURN_IF_ERROR(after_step(t, grad_norm, learning_rate));
        const bool may_be_saved =
            t->streak == 0 || t->streak >= SNUG_HOPELESS; /* it waits a few steps before it does */
        if (s->step < s->max_steps && may_be_saved && wants_stop(t)) return interrupted(t);
    }
    return SNUG_OK;
}

static snug_status train(struct snug_trainer *t) {
    struct snug_session *s = t->session;
    snug_status status = SNUG_OK;
    begin_pace(t);
    if (t->args->eval_on_start && s->step == 0) status = evaluate(t, NULL);
    if (status == SNUG_E_INTERRUPTED) return interrupted(t);
    if (t->unjudged) status = after_step(t, 0, 0); /* its log line is written already */
    while (status == SNUG_OK && s->step < s->max_steps) status = train_epoch(t);
    return status == SNUG_END ? SNUG_OK : status; /* SNUG_END: stopped early */
}

/* ---- before and after ----------------------------------------------------------------------------------------- */

/* The identity of this training: a new one, unless it resumes. */
static struct snug_provenance new_training(void) {
    return (struct snug_provenance){.run = snug_random_number(), .started = (int64_t)time(NULL)};
}

static snug_status open_reports(struct snug_trainer *t) {
    const struct snug_process_group *group = t->args->group;
    const struct snug_loader_options *options = &t->session->training->pipeline.options;
    const size_t doubles = (size_t)(snug_parallel_report_doubles(options) * snug_group_size(group));
    RETURN_IF_ERROR(snug_alloc(t->ctx, doubles, sizeof *t->reports, (void **)&t->reports));
    if (!group || !snug_trainer_leads(t)) return SNUG_OK;
    snug_log(t->ctx, SNUG_LOG_INFO,
             "%d ranks, %d on this host, through %s; ZeRO stage %d; in a step each sends and receives %.1f MiB; "
             "each allocates %lld bytes",
             group->ranks.size, group->ranks.local_size, group->collectives->name, (int)t->args->zero_stage,
             (double)snug_parallel_bytes(&t->session->training->program, snug_loader_share(options)) / 0x1p20,
             (long long)t->session->job.plan.layout.total);
    return SNUG_OK;
}

static void tell_no_effect(const struct snug_trainer *t) {
    const struct snug_session *s = t->session;
    const struct snug_effects effects = {.args = t->args,
                                         .calendar = &t->calendar,
                                         .schedule = &s->schedule,
                                         .optimizer = &s->job.plan.optimizer,
                                         .evaluates = s->evaluation,
                                         .step = s->step,
                                         .impatience = t->impatience,
                                         .has_best = t->has_best,
                                         .has_saved = t->best_saved_step >= 0};
    snug_no_effect_tell(t->ctx, &effects);
}

static snug_status begin(struct snug_trainer *t) {
    const struct snug_args *args = t->args;
    const bool refers = t->session->job.setup.train.reference;
    const char *const kept[] = {refers ? SNUG_REFERENCE_TRAIN : NULL, SNUG_REFERENCE_EVAL, NULL};
    t->calendar = snug_calendar_of(args, t->session->max_steps, t->session->steps_per_epoch);
    t->save_total_limit = args->save_total_limit < SNUG_NEVER ? args->save_total_limit : SNUG_NEVER;
    t->from = new_training();
    t->best_saved_step = t->judged_step = -1;
    t->log_history = json_array();
    if (!t->log_history) return snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory before the first step");
    RETURN_IF_ERROR(open_reports(t));
    RETURN_IF_ERROR(snug_reference_find(t->session, t->callbacks, &t->output.folder)); /* of the first weights */
    RETURN_IF_ERROR(snug_checkpoint_resume(t)); /* before anything is written but the copy of a checkpoint */
    RETURN_IF_ERROR(snug_parallel_compare(&t->session->job, &t->session->memory, t->session->step));
    RETURN_IF_ERROR(snug_group_broadcast(t->ctx, args->group, &t->from, sizeof t->from));
    t->left_step = t->session->step;
    if (!snug_trainer_leads(t)) return SNUG_OK;
    if (!t->output.folder.path) RETURN_IF_ERROR(snug_trainer_check_disk(t));
    RETURN_IF_ERROR(snug_output_make(t->ctx, args->output_dir, true, args->overwrite_output_dir,
                                     t->session->job.setup.mode, &t->output));
    RETURN_IF_ERROR(snug_checkpoint_check_best(t));
    RETURN_IF_ERROR(snug_trainer_check_disk(t)); /* including what the cleanup freed */
    RETURN_IF_ERROR(snug_checkpoint_check_way(t));
    RETURN_IF_ERROR(snug_session_check_model(t->session, &t->output));
    RETURN_IF_ERROR(open_events(t));
    if (t->events) RETURN_IF_ERROR(record_arguments(t));
    tell_no_effect(t);
    if (snug_trainer_starts_over(t)) RETURN_IF_ERROR(snug_checkpoint_remove_all(t)); /* all checks have passed */
    if (t->output.from.run != t->from.run) RETURN_IF_ERROR(snug_output_replace(&t->output, kept));
    RETURN_IF_ERROR(snug_output_start(&t->output, &t->from));
    return snug_reference_write(t->session, &t->output);
}

/* Before the data is read, and without creating the folder: a refused run leaves no files. */
static snug_status choose_output(struct snug_args *args) {
    if (!args->output_dir) {
        RETURN_IF_ERROR(snug_strdup(args->ctx, "trainer_output", &args->output_dir));
        snug_log(args->ctx, SNUG_LOG_INFO, "--output_dir is not given: writing to trainer_output");
    }
    if (args->logging_dir && snug_trainer_reports(args))
        RETURN_IF_ERROR(snug_folder_check(args->ctx, args->logging_dir));
    return snug_folder_check(args->ctx, args->output_dir);
}

static snug_status fill_memory(struct snug_trainer *t) {
    struct snug_limits *limits = &t->session->job.limits;
    const struct snug_run_plan *plan = &t->session->job.plan;
    snug_train_result *r = t->result;
    snug_memory_line *memory = t->outcome->memory;
    const bool gpu = snug_device_is_gpu(&limits->device);
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) memory[i] = (snug_memory_line){plan->bytes[i], plan->bytes[i]};
    r->peak_resident = snug_peak_resident_bytes();
    const int64_t used = gpu ? snug_device_used(&limits->device, plan) : r->peak_resident;
    const int64_t planned = gpu ? plan->layout.arena : plan->layout.total + limits->host_bytes;
    /* There is one measured figure: the part that is neither arena nor host was allocated before step 1, or by
     * libraries. */
    memory[SNUG_MEMORY_CONTEXT].measured = used < 0 ? -1 : used - planned;
    r->total = (snug_memory_line){plan->total, used};
    if (!gpu) return SNUG_OK;
    snug_device_learn(&limits->device, plan, used);
    struct snug_device_use *use = &t->outcome->device;
    RETURN_IF_ERROR(snug_device_describe(&limits->device, use));
    r->device = use->name;
    r->device_method = use->method;
    r->device_others = use->others;
    return SNUG_OK;
}

/* What all ranks used; every rank calls it. */
static snug_status gather_use(struct snug_trainer *t) {
    const struct snug_process_group *group = t->args->group;
    struct snug_outcome *o = t->outcome;
    if (!group) return SNUG_OK;
    const size_t count = (size_t)group->ranks.size;
    RETURN_IF_ERROR(snug_alloc(t->ctx, count, sizeof *o->records, (void **)&o->records));
    RETURN_IF_ERROR(snug_alloc(t->ctx, count, sizeof *o->ranks, (void **)&o->ranks));
    struct snug_rank_record *own = &o->records[group->ranks.rank];
    memcpy(own->host, group->ranks.host, sizeof own->host);
    memcpy(own->device, o->device.name, sizeof own->device);
    own->total = o->shown.total;
    RETURN_IF_ERROR(snug_group_all_gather(t->ctx, group, o->records, sizeof *o->records));
    for (size_t i = 0; i < count; i++) {
        const struct snug_rank_record *r = &o->records[i];
        o->ranks[i] = (snug_rank_use){.host = r->host, .device = *r->device ? r->device : NULL, .total = r->total};
    }
    o->shown.ranks = o->ranks;
    o->shown.rank_count = count;
    return SNUG_OK;
}

static snug_status summarise(struct snug_trainer *t) {
    snug_train_result *r = t->result;
    int64_t tokens, padded;
    r->seconds = snug_seconds() - t->started;
    r->epochs = snug_trainer_epoch(t);
    r->train_loss = t->loss_total / (double)t->session->step;
    const double training = fmax(r->seconds - t->idle, TICK);
    r->samples_per_second = (double)r->samples / training;
    r->steps_per_second = (double)r->steps / training;
    r->flops = snug_trainer_flops(t) * (double)r->steps / (double)t->session->step;
    snug_loader_padding(t->session->train_loader, &tokens, &padded);
    r->padding_avoided = padded > 0 ? 1 - (double)tokens / (double)padded : 0;
    r->skipped_steps = t->session->skipped;
    r->loss_scale = t->session->scaler ? (double)t->session->loss_scale : 0;
    r->truncated_texts = snug_dataset_truncated(t->session->job.setup.train.dataset);
    r->infinite_losses = t->infinite_losses;
    r->infinite_gradients = t->infinite_gradients;
    if (t->best_saved_step >= 0) {
        snug_checkpoint_path(t, t->best_saved_step, t->outcome->best_checkpoint);
        r->best_checkpoint = t->outcome->best_checkpoint;
    }
    RETURN_IF_ERROR(snug_strdup(t->ctx, t->args->output_dir, &t->outcome->output_dir));
    r->output_dir = t->outcome->output_dir;
    r->task = snug_task_name(t->session->job.setup.config.task);
    RETURN_IF_ERROR(fill_memory(t));
    return gather_use(t);
}

/* By rank. */
static json_t *ranks_json(const snug_train_result *r) {
    json_t *ranks = json_array();
    for (size_t i = 0; i < r->rank_count; i++) {
        const snug_rank_use *use = &r->ranks[i];
        snug_json_append(&ranks,
                         json_pack("{s:o, s:o, s:{s:I, s:I}}", "host", snug_json_from_text(use->host), "device",
                                   use->device ? snug_json_from_text(use->device) : json_null(), "memory", "planned",
                                   (json_int_t)use->total.planned, "measured", (json_int_t)use->total.measured));
    }
    return ranks;
}

static json_t *results_json(const struct snug_trainer *t) {
    const snug_train_result *r = t->result;
    json_t *memory = json_object();
    for (int i = 0; i <= SNUG_MEMORY_CLASS_COUNT && memory; i++) {
        const bool total = i == SNUG_MEMORY_CLASS_COUNT;
        const snug_memory_line *line = total ? &r->total : &r->memory[i];
        snug_json_add(
            &memory, total ? "total" : snug_memory_class_name((snug_memory_class)i),
            json_pack("{s:I, s:I}", "planned", (json_int_t)line->planned, "measured", (json_int_t)line->measured));
    }
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:I, s:I, s:I, s:I, s:o}", "epoch",
        snug_json_number(r->epochs), "total_flos", snug_json_number(r->flops), "train_loss",
        snug_json_number(r->train_loss), "train_runtime", snug_json_number(r->seconds), "train_samples_per_second",
        snug_json_number(r->samples_per_second), "train_steps_per_second", snug_json_number(r->steps_per_second),
        "train_samples", (json_int_t)t->session->job.setup.train.rows, "start_seconds",
        snug_json_number(r->seconds_to_first_step), "peak_rss_bytes", (json_int_t)r->peak_resident, "padding_avoided",
        snug_json_number(r->padding_avoided), "truncated_texts", (json_int_t)r->truncated_texts, "nan_inf_losses",
        (json_int_t)r->infinite_losses, "nan_inf_gradients", (json_int_t)r->infinite_gradients, "skipped_steps",
        (json_int_t)r->skipped_steps, "memory", memory);
}

static json_t *results_and_device_json(const struct snug_trainer *t) {
    json_t *results = results_json(t);
    const snug_train_result *r = t->result;
    if (results && r->device)
        snug_json_add(&results, "device",
                      json_pack("{s:o, s:s, s:o}", "name", snug_json_from_text(r->device), "method", r->device_method,
                                "others", snug_json_from_text(r->device_others)));
    if (results && r->rank_count) snug_json_add(&results, "ranks", ranks_json(r));
    return results;
}

/* The best model is loaded back, the model is saved and the result files are written, as run_glue.py does. */
static snug_status finish(struct snug_trainer *t) {
    const struct snug_args *args = t->args;
    const bool evaluated_last = t->outcome->list.count > 0 && t->evaluated_step == t->session->step;
    snug_status evaluated = SNUG_OK;
    if (t->streak > 1)
        return snug_fail(t->ctx, SNUG_E_NUMERIC,
                         "the last %lld steps had no finite loss or gradients: the model is not saved",
                         (long long)t->streak);
    RETURN_IF_ERROR(snug_session_flush(t->session));
    RETURN_IF_ERROR(summarise(t));
    if (args->load_best_model_at_end) RETURN_IF_ERROR(snug_best_load(t));
    RETURN_IF_ERROR(record_totals(t));
    t->logged_evaluation =
        !t->outcome->list.count && t->evaluated_step == t->session->step && !args->load_best_model_at_end;
    if (t->session->evaluation && (!evaluated_last || args->load_best_model_at_end)) evaluated = evaluate(t, NULL);
    if (evaluated == SNUG_E_INTERRUPTED)
        t->outcome->list.count = 0; /* the model is trained and must not be lost */
    else
        RETURN_IF_ERROR(evaluated);
    snug_best_summarise(t);
    RETURN_IF_ERROR(snug_session_write_model(t->session, &t->output));
    if (!snug_trainer_leads(t)) return SNUG_OK;
    RETURN_IF_ERROR(snug_output_begin(&t->output, (const char *const[]){"trainer_state.json", SNUG_RUN_REPORT, NULL}));
    RETURN_IF_ERROR(snug_trainer_state_write(t, &t->output.folder));
    RETURN_IF_ERROR(snug_run_report_write(t));
    RETURN_IF_ERROR(snug_model_card_write(&t->session->job, &t->output, t->log_history, t->outcome->list.count > 0));
    json_t *train = results_and_device_json(t);
    snug_status status = train ? snug_results_write(&t->output, "train", NULL, train)
                               : snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while writing the results");
    json_decref(train);
    if (status == SNUG_OK && t->outcome->list.count) {
        json_t *more = snug_session_confusion(t->session);
        status = more ? snug_results_write(&t->output, "eval", &t->outcome->list, more)
                      : snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while writing the results");
        json_decref(more);
    }
    if (status != SNUG_OK || evaluated == SNUG_OK) return status;
    snug_clear_error(t->ctx);
    return snug_fail(t->ctx, evaluated, "interrupted in the last evaluation; the trained model is in %s",
                     args->output_dir);
}

/* Names the last valid checkpoint of a training whose loss or gradients are not finite. */
static snug_status name_last_good(struct snug_trainer *t, snug_status status) {
    char path[SNUG_CHECKPOINT_PATH], why[1024];
    int64_t last;
    if (!snug_trainer_leads(t)) return status;
    if (status != SNUG_E_NUMERIC && !(status == SNUG_E_INTERRUPTED && t->streak)) return status;
    snprintf(why, sizeof why, "%s", snug_context_message(t->ctx));
    const snug_status listed = snug_checkpoint_last(t, &last); /* forgets the error */
    snug_clear_error(t->ctx);
    snug_fail(t->ctx, status, "%s", why);
    if (listed != SNUG_OK) return status;
    snug_checkpoint_path(t, last, path);
    return last < 0 ? snug_add_to_error(t->ctx, status, "; this run has saved no checkpoint")
                    : snug_add_to_error(t->ctx, status, "; its last checkpoint is %s", path);
}

static snug_status keep_log(struct snug_trainer *t) {
    RETURN_IF_ERROR(snug_json_text(t->ctx, t->log_history, JSON_COMPACT, &t->outcome->log_history));
    t->result->log_history = t->outcome->log_history;
    return SNUG_OK;
}

/* Time by kind of operation, with --log_level debug. */
static void log_profile(const struct snug_trainer *t) {
    const struct snug_profile *profile = &t->session->profile;
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
        if (profile->calls[kind])
            snug_log(t->ctx, SNUG_LOG_DEBUG, "%-20s %8lld calls %9.3f s", snug_op_name((enum snug_op_kind)kind),
                     (long long)profile->calls[kind], profile->seconds[kind]);
}

static snug_status run(struct snug_trainer *t, struct snug_args *args, double called) {
    RETURN_IF_ERROR(snug_args_check(args, "train"));
    RETURN_IF_ERROR(choose_output(args));
    RETURN_IF_ERROR(snug_trainer_leads(t)
                        ? snug_output_open(t->ctx, args->output_dir, true, args->overwrite_output_dir, &t->output)
                        : snug_output_look(t->ctx, args->output_dir, &t->output));
    RETURN_IF_ERROR(snug_checkpoint_look(t));
    RETURN_IF_ERROR(snug_session_open(args, SNUG_COMMAND_TRAIN, t->callbacks, &t->session));
    /* Ranks agree to stop in a step: one alone may be asked because another one has failed, which that one reports. */
    if (!args->group && is_asked(t)) return snug_fail(t->ctx, SNUG_E_INTERRUPTED, "interrupted before the first step");
    snug_group_at(args->group, -1, "before the first step");
    RETURN_IF_ERROR(snug_description_tell(t->session, t->callbacks));
    RETURN_IF_ERROR(snug_training_args_compare(&t->session->job));
    RETURN_IF_ERROR(begin(t));
    t->started = snug_seconds();
    t->result->seconds_to_first_step = t->started - called;
    send(t, (snug_event){.kind = SNUG_EVENT_BEGIN});
    snug_status status = train(t);
    snug_group_at(args->group, t->session->step, "at the end");
    if (status == SNUG_OK) status = finish(t);
    if (status == SNUG_OK) status = snug_group_barrier(t->ctx, args->group); /* rank 0 has written the model */
    if (status == SNUG_OK) status = keep_log(t);
    if (status != SNUG_OK) return name_last_good(t, status);
    log_profile(t);
    send(t, (snug_event){.kind = SNUG_EVENT_END});
    return SNUG_OK;
}

static snug_status create_outcome(struct snug_trainer *t) {
    RETURN_IF_ERROR(snug_alloc(t->ctx, 1, sizeof *t->outcome, (void **)&t->outcome));
    t->result = &t->outcome->shown;
    t->result->memory_count = SNUG_MEMORY_CLASS_COUNT;
    t->result->memory = t->outcome->memory;
    t->result->metrics = &t->outcome->metrics;
    return SNUG_OK;
}

void snug_train_result_destroy(snug_train_result *result) {
    struct snug_outcome *outcome = (struct snug_outcome *)result; /* its first member */
    if (!outcome) return;
    free(outcome->log_history);
    free(outcome->records);
    free(outcome->ranks);
    free(outcome->output_dir);
    free(outcome);
}

snug_status snug_train_in(snug_args *args, const snug_callbacks *callbacks, snug_train_result **result,
                          const char *room) {
    const double called = snug_seconds();
    struct snug_trainer t = {.ctx = args->ctx, .args = args, .callbacks = callbacks, .room = room};
    if (result) *result = NULL;
    snug_clear_error(t.ctx);
    snug_status status = create_outcome(&t);
    if (status == SNUG_OK) status = run(&t, args, called);
    if (status != SNUG_OK) status = snug_group_fail(args, callbacks, status, t.session ? t.session->step + 1 : -1);
    free(t.reports);
    snug_events_close(t.events);
    json_decref(t.log_history);
    snug_session_close(t.session);
    snug_output_close(&t.output);
    if (status == SNUG_OK) t.outcome->metrics = snug_metrics_shown(&t.outcome->list);
    if (status == SNUG_OK && result)
        *result = t.result;
    else
        snug_train_result_destroy(t.result);
    return status;
}

static snug_status train_in_group(snug_args *args, const snug_callbacks *callbacks, snug_train_result **result) {
    RETURN_IF_ERROR(snug_group_join(args));
    return snug_train_in(args, callbacks, result, NULL);
}

snug_status snug_train(snug_args *args, const snug_callbacks *callbacks, snug_train_result **result) {
    if (result) *result = NULL;
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, train_in_group(args, callbacks, result));
}
