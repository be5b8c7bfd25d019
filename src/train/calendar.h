/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps of a training are logged, evaluated and saved, without visiting each: a run may have 10^12. */
#ifndef SNUG_TRAIN_CALENDAR_H
#define SNUG_TRAIN_CALENDAR_H

#include "args/args.h"

/* When an action is due. */
struct snug_rhythm {
    enum snug_interval strategy; /* steps: every so many; epoch: at the end of each epoch, the last one included */
    int64_t every;
    double delay; /* not before this step, or this epoch */
    bool at_end;  /* by steps: also at the last step */
};

struct snug_calendar {
    int64_t steps, per_epoch;                       /* of the run; of an epoch */
    struct snug_rhythm logging, evaluating, saving; /* saving by `best`: the evaluations, each of which may be saved */
};

struct snug_calendar snug_calendar_of(const struct snug_args *args, int64_t steps, int64_t per_epoch);
bool snug_calendar_is_due(const struct snug_calendar *calendar, const struct snug_rhythm *rhythm, int64_t step);
/* The number of steps after `after` up to last in which the action is due. */
int64_t snug_calendar_count(const struct snug_calendar *calendar, const struct snug_rhythm *rhythm, int64_t after,
                            int64_t last);
/* The n-th such step, from 1; 0: the run has fewer. */
int64_t snug_calendar_nth(const struct snug_calendar *calendar, const struct snug_rhythm *rhythm, int64_t after,
                          int64_t n);
/* The first step after `after` that is evaluated and saved; 0: none. */
int64_t snug_calendar_candidate(const struct snug_calendar *calendar, int64_t after);

#endif
