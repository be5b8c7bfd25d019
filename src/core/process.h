/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What belongs to the process, not to a context. fork() copies the memory of all threads but only the calling thread,
 * and exit() destroys what libraries hold while other threads still run. So both wait, for a bounded time, until no
 * thread is within an operation, where oneDNN may hold a lock or build a kernel.
 */
#ifndef SNUG_CORE_PROCESS_H
#define SNUG_CORE_PROCESS_H

#include <stdbool.h>

/* Around what a compute thread runs. Between them fork() and exit() may happen: also while the thread waits for a
 * callback, in which a program may fork. */
void snug_operations_begin(void);
void snug_operations_end(void);
/* Whether this process is a child that was forked within an operation of another thread, because it took too long to
 * wait for its end: a library's lock may be held forever. */
bool snug_operations_torn(void);
/* From then on exit() stops operations before it destroys what existed at the time of the call. */
void snug_operations_end_at_exit(void);

/* A lock that no other thread holds in a child of fork(), and a condition of it. Held for a moment. */
void snug_gate_lock(void);
void snug_gate_unlock(void);
void snug_gate_wait(void);
void snug_gate_wake(void);

#endif
