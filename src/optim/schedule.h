/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules under Hugging Face's names (transformers/optimization.py). */
#ifndef SNUG_OPTIM_SCHEDULE_H
#define SNUG_OPTIM_SCHEDULE_H

#include "core/context.h"

/* The shapes of the warm-up and the decay of warmup_stable_decay. */
enum snug_ramp { SNUG_RAMP_LINEAR, SNUG_RAMP_COSINE, SNUG_RAMP_ONE_MINUS_SQRT };

struct snug_schedule {
    int kind; /* row of the table in schedule.c */
    double base, warmup_steps, total_steps;
    double num_cycles, power, lr_end, min_lr, timescale; /* their names in lr_scheduler_kwargs */
    double num_stable_steps, num_decay_steps;
    double min_lr_ratio;   /* lowest rate / base rate; also set by min_lr and min_lr_rate */
    double warmup_lr_rate; /* NaN where not given */
    enum snug_ramp warmup_type, decay_type;
};

/* type: linear, cosine, cosine_with_restarts, polynomial, constant, constant_with_warmup, inverse_sqrt,
   cosine_with_min_lr, cosine_warmup_with_min_lr, warmup_stable_decay. kwargs: a JSON object as --lr_scheduler_kwargs
   takes it, or NULL. warmup_steps below 1 is a share of total_steps, rounded up, as in Trainer. An unknown type or key
   is SNUG_E_USAGE. */
snug_status snug_schedule_init(snug_context *ctx, const char *type, const char *kwargs, double base,
                               double warmup_steps, double total_steps, struct snug_schedule *out);
/* Learning rate of optimizer step number step, from 0. */
double snug_schedule_rate(const struct snug_schedule *schedule, int64_t step);

#endif
