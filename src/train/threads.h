/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that OpenMP will make: where one is refused its library ends the process, so snug tries first. */
#ifndef SNUG_TRAIN_THREADS_H
#define SNUG_TRAIN_THREADS_H

#include "core/context.h"

/* Makes OpenMP's threads. Fails where the caller's thread and threads - 1 new ones, with the stacks that OpenMP gives
   them, cannot run at the same time. To be called before the first parallel region of so many; later calls of the same
   thread for no more return at once. */
snug_status snug_threads_check(snug_context *ctx, int threads);

#endif
