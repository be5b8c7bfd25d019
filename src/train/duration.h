/* SPDX-License-Identifier: Apache-2.0 */
/* The expected seconds of a training. */
#ifndef SNUG_TRAIN_DURATION_H
#define SNUG_TRAIN_DURATION_H

#include "train/job.h"

/* The rates by which seconds are estimated. */
enum snug_seconds_source {
    SNUG_SECONDS_UNKNOWN,  /* a GPU of which no rates are known */
    SNUG_SECONDS_MEASURED, /* the cached ones of this machine, or those of SNUG_RATES */
    SNUG_SECONDS_SCALED,   /* another GPU's: snug_rates_scale() */
    SNUG_SECONDS_PROBED,   /* snug_rates_probe() */
    SNUG_SECONDS_ASSUMED,  /* snug_rates_assume() */
};

/* step is 0 where they are unknown. */
struct snug_duration {
    double step, evaluation, run; /* seconds; of an evaluation of all its rows; of the run with its evaluations */
    int64_t evaluations;
    enum snug_seconds_source source;
    const char *scaled_from;
    double probed; /* seconds that the probe took */
};

/* By the rates that are known. On a CPU without any it measures some of them if `probes`, unless the run is short or
 * its arena small. Called before the arena is allocated, since a probe allocates less than that, and frees it. */
snug_status snug_duration_estimate(const struct snug_job *job, bool probes, struct snug_duration *out);
/* The source's name in JSON; NULL: unknown. */
const char *snug_duration_source(const struct snug_duration *duration);

#endif
