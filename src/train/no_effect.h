/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that can have no effect in a run, by its steps and its other arguments. */
#ifndef SNUG_TRAIN_NO_EFFECT_H
#define SNUG_TRAIN_NO_EFFECT_H

#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/calendar.h"

struct snug_effects {
    const struct snug_args *args;
    const struct snug_calendar *calendar;
    const struct snug_schedule *schedule;
    const struct snug_optimizer *optimizer;
    bool evaluates; /* there is evaluation data */
    /* A resumed run's steps that are done, evaluations without improvement, whether there was an evaluation, and a
       checkpoint of one. */
    int64_t step, impatience;
    bool has_best, has_saved;
};

/* Logs them: as warnings where the model is another one than the argument promises. */
void snug_no_effect_tell(snug_context *ctx, const struct snug_effects *effects);

#endif
