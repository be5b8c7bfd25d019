/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: setup, plan and limits of a run, opened together, without its arena and weights. `plan` stops here; training,
 * evaluation and prediction then allocate the planned memory (session.h).
 */
#ifndef SNUG_TRAIN_JOB_H
#define SNUG_TRAIN_JOB_H

#include "run/runner.h"
#include "train/fit.h"

struct snug_job {
    snug_context *ctx;
    struct snug_setup setup;
    struct snug_run_plan plan;
    struct snug_limits limits;
    struct snug_runner runner; /* of the plan's programs; its memory is not allocated yet */
    struct snug_fit *fit;      /* result of the search for the budget, if there was one */
};

/* Checks args, opens the setup, plans it, and checks the plan against the limits; with --fit it applies the mix of
   methods that the search finds, and adds it to args. If the plan exceeds the budget or the machine's memory, the
   status is SNUG_E_DOES_NOT_FIT and the job is complete, so that it can be printed. Freed in any case with
   snug_job_close(). */
snug_status snug_job_open(struct snug_args *args, enum snug_command command, struct snug_job *job);
void snug_job_close(struct snug_job *job);

#endif
