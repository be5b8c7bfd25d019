/* SPDX-License-Identifier: Apache-2.0 */
/* OpenMP's threads: if the system refuses one, OpenMP's library ends the process, so snug tries first. */
#ifndef SNUG_TRAIN_THREADS_H
#define SNUG_TRAIN_THREADS_H

#include "args/args.h"

/* Compute threads of a run: as requested, or all cores that affinity and the quota of the control group leave. */
int snug_args_threads(const struct snug_args *args);

/* Creates the context's compute thread and OpenMP's threads. Fails if that thread and threads - 1 new ones, with
   OpenMP's stack sizes, cannot run at the same time. Call it before the first parallel region with that many threads;
   later calls for as many or fewer return at once. */
snug_status snug_threads_check(snug_context *ctx, int threads);

#endif
