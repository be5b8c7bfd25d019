/* SPDX-License-Identifier: Apache-2.0 */
/* A job on a GPU: what it holds there, what is left, and who else is on it. */
#ifndef SNUG_TRAIN_DEVICE_H
#define SNUG_TRAIN_DEVICE_H

#include "train/job.h"

/* Whether the job's arena lies on a device. */
static inline bool snug_job_on_device(const struct snug_job *job) { return job->backend->available != NULL; }

/* Takes the GPU that --device asks for, and begins to watch it before its context is made. "auto" leaves the CPU where
   none works, and says why. */
snug_status snug_device_choose(struct snug_job *job);
/* The failure that says why no GPU works, as that of --device cuda. */
snug_status snug_device_fail(snug_context *ctx, snug_status status);
/* Refuses what the arguments ask for and the chosen device does not have. */
snug_status snug_device_check(const struct snug_job *job);
/* What the driver's context and the libraries take: what they hold now, and what a run like this is known to make them
   load later. */
snug_status snug_device_measure(struct snug_job *job);
/* When the arena could not be had though it fitted the plan: somebody was quicker. The failure, as a refusal. */
snug_status snug_device_refuse(struct snug_job *job);
/* Bytes that the process holds on the device now. Where NVML does not tell: what all processes hold. */
int64_t snug_device_held(struct snug_job *job);
/* At the end of a run that holds so many bytes: remembers what the driver loaded after the plan, for the next plans. */
void snug_device_learn(const struct snug_job *job, int64_t held);
/* Fills in what the summary says of the device. */
snug_status snug_device_describe(struct snug_job *job, snug_device_use *out);

#endif
