/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compute thread: a context has one (snug_compute() in core/context.h), in which the library opens parallel regions
 * and calls oneDNN, while the caller's thread waits. It and the OpenMP threads that it starts block all signals that a
 * thread does not cause itself, so that a handler of the program never runs on their stacks: oneDNN's kernels point the
 * stack pointer into heap buffers, and the kernel would write a handler's frame there. And all parallel regions have
 * one team of threads.
 */
#ifndef SNUG_CORE_COMPUTE_H
#define SNUG_CORE_COMPUTE_H

#include "snug.h"

struct snug_compute;

/* Makes the thread, unless *compute is one of this process: a child of fork() gets a new one. 0, or errno. */
int snug_compute_begin(struct snug_compute **compute);
/* Runs function(user) in the thread and returns its status; within that thread it is a plain call. One caller at a
 * time. */
snug_status snug_compute_run(struct snug_compute *compute, snug_status (*function)(void *user), void *user);
/* Runs function(user) in the thread that called snug_compute_run(), if the caller of this function is the compute
 * thread; else, and without one, at once. For the program's callbacks. */
void snug_compute_leave(struct snug_compute *compute, void (*function)(void *user), void *user);
/* Ends the thread, and those of its parallel regions. NULL is allowed. */
void snug_compute_end(struct snug_compute *compute);

#endif
