/* SPDX-License-Identifier: Apache-2.0 */
/* transformers ignores such arguments silently. */
#include "train/no_effect.h"

#include <stdio.h>
#include <string.h>

typedef struct snug_effects effects;

/* ---- because of another argument -------------------------------------------------------------------------------- */

static bool evaluates_by_steps(const effects *e) { return e->args->eval_strategy == SNUG_INTERVAL_STEPS; }
static bool logs_by_steps(const effects *e) { return e->args->logging_strategy == SNUG_INTERVAL_STEPS; }
/* Evaluations are as frequent, unless --eval_steps says otherwise. */
static bool takes_logging_steps(const effects *e) {
    return logs_by_steps(e) || (evaluates_by_steps(e) && !snug_args_is_set(e->args, "eval_steps"));
}
static bool saves_by_steps(const effects *e) { return e->args->save_strategy == SNUG_INTERVAL_STEPS; }
static bool saves(const effects *e) { return e->args->save_strategy != SNUG_INTERVAL_NO; }
static bool evaluates_within(const effects *e) { return e->args->eval_strategy != SNUG_INTERVAL_NO; }
static bool evaluates(const effects *e) { return e->evaluates; }
static bool has_metric(const effects *e) { return e->args->metric_for_best_model; }
static bool may_stop(const effects *e) { return e->args->early_stopping_patience > 0; }
static bool counts_epochs(const effects *e) { return e->args->max_steps <= 0; }
static bool warms_up(const effects *e) { return strcmp(e->args->lr_scheduler_type, "constant") != 0; }
static bool takes_betas(const effects *e) { return e->optimizer->info->takes_betas; }
static bool takes_epsilon(const effects *e) { return e->optimizer->info->takes_epsilon; }
static bool packs_no_rows(const effects *e) { return e->args->per_device_train_tokens == 0; }
static bool answers(const effects *e) { return e->evaluates && e->args->predict_with_generate; }
static bool writes_events(const effects *e) { return strcmp(e->args->report_to, "none") != 0; }

static const struct {
    const char *arguments; /* separated by spaces */
    bool (*needs)(const effects *e);
    const char *why;
} needs[] = {
    {"logging_steps", takes_logging_steps, "without --logging_strategy steps"},
    {"eval_steps", evaluates_by_steps, "without --eval_strategy steps"},
    {"save_steps", saves_by_steps, "without --save_strategy steps"},
    {"save_total_limit", saves, "with --save_strategy no"},
    {"eval_delay metric_for_best_model", evaluates_within, "without --eval_strategy steps or epoch"},
    {"greater_is_better", has_metric, "without --metric_for_best_model"},
    {"early_stopping_threshold", may_stop, "without --early_stopping_patience"},
    {"per_device_eval_batch_size max_eval_samples class_metrics return_entity_level_metrics", evaluates,
     "without evaluation data"},
    {"num_train_epochs", counts_epochs, "beside --max_steps, which ends the run"},
    {"warmup_steps", warms_up, "with --lr_scheduler_type constant: use constant_with_warmup"},
    {"adam_beta1 adam_beta2", takes_betas, "with this --optim, which has no betas"},
    {"adam_epsilon", takes_epsilon, "with this --optim, which has no epsilon"},
    {"dataloader_drop_last", packs_no_rows, "with --per_device_train_tokens, which fills every micro-batch"},
    {"max_new_tokens min_new_tokens do_sample temperature top_p min_p repetition_penalty no_repeat_ngram_size "
     "num_beams length_penalty generation_max_length",
     answers, "without --predict_with_generate and evaluation data"},
    {"logging_dir", writes_events, "without --report_to tensorboard"},
};

static void tell_needs(snug_context *ctx, const effects *e) {
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        char name[64];
        if (needs[i].needs(e)) continue;
        for (const char *at = needs[i].arguments; *at;) {
            const size_t length = strcspn(at, " ");
            snprintf(name, sizeof name, "%.*s", (int)length, at);
            if (snug_args_is_chosen(e->args, name))
                snug_log(ctx, SNUG_LOG_INFO, "--%s has no effect %s", name, needs[i].why);
            at += length + (at[length] == ' ');
        }
    }
}

/* ---- because of the run's steps --------------------------------------------------------------------------------- */

static int64_t count(const effects *e, const struct snug_rhythm *rhythm, int64_t last) {
    return snug_calendar_count(e->calendar, rhythm, e->step, last);
}

static void tell_logging(snug_context *ctx, const effects *e) {
    const struct snug_calendar *c = e->calendar;
    if (!logs_by_steps(e) || count(e, &c->logging, c->steps)) return;
    if (!snug_args_is_set(e->args, "logging_steps") || (e->args->logging_first_step && e->step == 0)) return;
    snug_log(ctx, SNUG_LOG_INFO, "--logging_steps %g has no effect: the run ends at step %lld", e->args->logging_steps,
             (long long)c->steps);
}

static void tell_evaluating(snug_context *ctx, const effects *e) {
    const struct snug_calendar *c = e->calendar;
    struct snug_rhythm at_once = c->evaluating;
    at_once.delay = 0;
    if (!evaluates_within(e) || count(e, &c->evaluating, c->steps)) return;
    if (!count(e, &at_once, c->steps))
        snug_log(ctx, SNUG_LOG_WARNING, "--eval_steps %g: the run ends at step %lld, and is evaluated only after it",
                 e->args->eval_steps, (long long)c->steps);
    else
        snug_log(ctx, SNUG_LOG_WARNING,
                 "--eval_delay %g: the run ends at %s %.4g, before its first evaluation, and is evaluated only then",
                 e->args->eval_delay, evaluates_by_steps(e) ? "step" : "epoch",
                 evaluates_by_steps(e) ? (double)c->steps : (double)c->steps / (double)c->per_epoch);
}

static void tell_saving(snug_context *ctx, const effects *e) {
    const struct snug_calendar *c = e->calendar;
    if (!saves_by_steps(e) || e->args->load_best_model_at_end || count(e, &c->saving, c->steps - 1)) return;
    if (snug_args_is_set(e->args, "save_steps"))
        snug_log(ctx, SNUG_LOG_INFO, "--save_steps %g: the run ends at step %lld, and only that one is saved",
                 e->args->save_steps, (long long)c->steps);
}

/* "every 5 steps", "after each epoch from 2 on" */
static void describe(char text[64], const struct snug_rhythm *rhythm) {
    char delay[32] = "";
    if (rhythm->delay > 0) snprintf(delay, sizeof delay, " from %g on", rhythm->delay);
    if (rhythm->strategy == SNUG_INTERVAL_STEPS)
        snprintf(text, 64, "every %lld steps%s%s", (long long)rhythm->every, delay,
                 rhythm->at_end ? " and at the end" : "");
    else
        snprintf(text, 64, "after each epoch%s", delay);
}

static void tell_best(snug_context *ctx, const effects *e) {
    const struct snug_calendar *c = e->calendar;
    const int64_t step = snug_calendar_candidate(c, e->step);
    char evaluated[64], saved[64];
    if (!e->args->load_best_model_at_end || e->has_saved || (step > 0 && step < c->steps)) return;
    describe(evaluated, &c->evaluating);
    describe(saved, &c->saving);
    snug_log(ctx, SNUG_LOG_WARNING,
             "--load_best_model_at_end has no effect: of %lld steps %s evaluated (%s) and saved (%s): the last weights "
             "stay",
             (long long)c->steps, step ? "only the last one is both" : "none is both", evaluated, saved);
}

static void tell_early_stopping(snug_context *ctx, const effects *e) {
    const struct snug_args *args = e->args;
    const struct snug_calendar *c = e->calendar;
    const int64_t patience = args->early_stopping_patience;
    const int64_t left = e->has_best ? patience - e->impatience : patience + 1, needed = left > 1 ? left : 1;
    const int64_t stop = snug_calendar_nth(c, &c->evaluating, e->step, needed);
    if (!may_stop(e)) return;
    if (!stop || stop == c->steps)
        snug_log(ctx, SNUG_LOG_WARNING,
                 "--early_stopping_patience %lld has no effect: the run can stop after %lld evaluation%s at the "
                 "earliest, and has %lld until its last step",
                 (long long)args->early_stopping_patience, (long long)needed, needed == 1 ? "" : "s",
                 (long long)count(e, &c->evaluating, c->steps));
    if (!args->load_best_model_at_end)
        snug_log(ctx, SNUG_LOG_WARNING,
                 "--early_stopping_patience %lld without --load_best_model_at_end: the best weights, by %s, are not "
                 "loaded at the end: the last ones stay",
                 (long long)args->early_stopping_patience, args->metric_for_best_model);
}

static void tell_warmup(snug_context *ctx, const effects *e) {
    const struct snug_schedule *schedule = e->schedule;
    const int64_t steps = e->calendar->steps;
    if (!(schedule->warmup_steps > 0) || schedule->warmup_steps < (double)steps || !warms_up(e)) return;
    snug_log(ctx, SNUG_LOG_WARNING,
             "--warmup_steps %g: the warm-up takes %g steps, and the run ends at step %lld: the learning rate ends at "
             "%.3g, below --learning_rate %g",
             e->args->warmup_steps, schedule->warmup_steps, (long long)steps, snug_schedule_rate(schedule, steps - 1),
             e->args->learning_rate);
}

void snug_no_effect_tell(snug_context *ctx, const struct snug_effects *e) {
    if (e->step >= e->calendar->steps) return;
    tell_needs(ctx, e);
    tell_logging(ctx, e);
    tell_evaluating(ctx, e);
    tell_saving(ctx, e);
    tell_best(ctx, e);
    tell_early_stopping(ctx, e);
    tell_warmup(ctx, e);
}
