/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of a run: the memory of the machine or GPU that has the arena, the process's memory in addition to the
 * arena, and the maximum bytes of a plan.
 */
#ifndef SNUG_TRAIN_LIMITS_H
#define SNUG_TRAIN_LIMITS_H

#include "train/device.h"

struct snug_limits {
    struct snug_device device;
    int64_t own_bytes;  /* CPU: resident memory before the run, and of the opened backend */
    int64_t host_bytes; /* tokenizer, data index, … */
    /* Host memory that is available for a backing store; INT64_MAX: unknown, as for a GPU that is not installed. */
    int64_t backing_limit;
};

/* Fills in plan's bytes by class and total, from its layout and the process's other memory. */
void snug_limits_account(const struct snug_limits *limits, struct snug_run_plan *plan);

/* Memory of the machine or device that has the arena, and its available part, which on a device includes what the
   process already uses; -1 if unknown. */
int64_t snug_limits_memory(const struct snug_limits *limits);
int64_t snug_limits_available(const struct snug_limits *limits);

/* The maximum bytes of a plan. */
struct snug_limit {
    int64_t bytes;
    bool budgeted; /* set by --memory_budget; else by the available memory */
};
/* *over: the plan exceeds it, and the run is refused. */
snug_status snug_limits_find(const struct snug_limits *limits, const struct snug_setup *setup,
                             const struct snug_run_plan *plan, struct snug_limit *out, bool *over);
/* Host memory that the plan's backing store takes; on a CPU it is a file. */
int64_t snug_limits_backing(const struct snug_limits *limits, const struct snug_run_plan *plan);
/* Fails with SNUG_E_DOES_NOT_FIT if host memory lacks the space for what a plan offloads to it. */
snug_status snug_limits_check_backing(const struct snug_limits *limits, const struct snug_setup *setup,
                                      const struct snug_run_plan *plan);
/* What needs less memory. */
struct snug_advice {
    char *text;   /* in words; freed by the caller */
    char add[64]; /* the arguments to add to the command, so that it fits or needs the least; "" if there are none */
};
/* Fails with SNUG_E_DOES_NOT_FIT, names the class that does not fit, and ends with the arguments to add: "; add --fit",
   from which the command line makes a command to copy. */
snug_status snug_limits_refuse(struct snug_limits *limits, const struct snug_run_plan *plan,
                               const struct snug_limit *limit, const struct snug_advice *advice);

#endif
