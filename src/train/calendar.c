/* SPDX-License-Identifier: Apache-2.0 */
#include "train/calendar.h"

#include <math.h>

struct snug_calendar snug_calendar_of(const struct snug_args *args, int64_t steps, int64_t per_epoch) {
    const int64_t logging = snug_args_steps(args->logging_steps, steps);
    struct snug_calendar c = {
        .steps = steps,
        .per_epoch = per_epoch,
        .logging = {.strategy = args->logging_strategy, .every = logging},
        .evaluating = {.strategy = args->eval_strategy,
                       .every = args->eval_steps > 0 ? snug_args_steps(args->eval_steps, steps) : logging,
                       .delay = args->eval_delay},
        .saving = {.strategy = args->save_strategy,
                   .every = snug_args_steps(args->save_steps, steps),
                   .at_end = args->save_strategy == SNUG_INTERVAL_STEPS},
    };
    if (args->save_strategy == SNUG_INTERVAL_BEST) c.saving = c.evaluating;
    return c;
}

bool snug_calendar_is_due(const struct snug_calendar *c, const struct snug_rhythm *r, int64_t step) {
    const bool ends = step == c->steps;
    if (r->strategy == SNUG_INTERVAL_STEPS)
        return (step % r->every == 0 && (double)step >= r->delay) || (ends && r->at_end);
    return r->strategy == SNUG_INTERVAL_EPOCH && (ends || step % c->per_epoch == 0) &&
           (double)step / (double)c->per_epoch >= r->delay;
}

/* The steps of an action are multiples of a unit, from the first one on. */
static int64_t unit_of(const struct snug_calendar *c, const struct snug_rhythm *r) {
    return r->strategy == SNUG_INTERVAL_STEPS ? r->every : c->per_epoch;
}
static double first_of(const struct snug_rhythm *r, int64_t unit, int64_t after) {
    const double delayed = ceil(r->strategy == SNUG_INTERVAL_STEPS ? r->delay / (double)unit : r->delay);
    const int64_t next = after / unit + 1;
    return fmax((double)next, delayed);
}

int64_t snug_calendar_count(const struct snug_calendar *c, const struct snug_rhythm *r, int64_t after, int64_t last) {
    if (last <= after || (r->strategy != SNUG_INTERVAL_STEPS && r->strategy != SNUG_INTERVAL_EPOCH)) return 0;
    const int64_t unit = unit_of(c, r), units = last / unit;
    const double count = (double)units - first_of(r, unit, after) + 1;
    const bool ends = last == c->steps && last % unit != 0 && snug_calendar_is_due(c, r, last);
    return (count > 0 ? (int64_t)count : 0) + ends;
}

int64_t snug_calendar_nth(const struct snug_calendar *c, const struct snug_rhythm *r, int64_t after, int64_t n) {
    if (n > snug_calendar_count(c, r, after, c->steps)) return 0;
    const int64_t unit = unit_of(c, r);
    const double step = (first_of(r, unit, after) + (double)(n - 1)) * (double)unit;
    return step < (double)c->steps ? (int64_t)step : c->steps;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Evaluations and checkpoints have the same strategy, or each evaluation may be saved: --load_best_model_at_end. */
int64_t snug_calendar_candidate(const struct snug_calendar *c, int64_t after) {
    struct snug_rhythm both = c->evaluating;
    if (c->saving.strategy == SNUG_INTERVAL_NO) return 0;
    if (both.strategy == SNUG_INTERVAL_STEPS) {
        const double every =
            (double)both.every / (double)common_divisor(both.every, c->saving.every) * (double)c->saving.every;
        both.every = every < (double)SNUG_NEVER ? (int64_t)every : SNUG_NEVER;
    }
    const int64_t step = snug_calendar_nth(c, &both, after, 1);
    if (step || c->steps <= after || !c->saving.at_end) return step;
    return snug_calendar_is_due(c, &c->evaluating, c->steps) ? c->steps : 0;
}
