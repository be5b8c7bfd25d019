/* SPDX-License-Identifier: Apache-2.0 */
#include "core/process.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Most operations are shorter; a program that forks notices longer waits. An exit has more time. */
enum { FORK_MILLISECONDS = 200, EXIT_MILLISECONDS = 30000 };

/* State of the process, not of a context: fork() and exit() concern the whole process. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;
/* Who waits for it comes before new readers. */
static pthread_rwlock_t operations = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_once_t watching_forks = PTHREAD_ONCE_INIT, watching_exit = PTHREAD_ONCE_INIT;
static bool quiet; /* within fork(): no thread is within an operation */
static bool torn;

static bool stop_operations(int milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    return pthread_rwlock_timedwrlock(&operations, &until) == 0;
}

static void before_fork(void) {
    const bool stopped = stop_operations(FORK_MILLISECONDS);
    pthread_mutex_lock(&gate);
    quiet = stopped;
}

static void after_fork(void) {
    const bool stopped = quiet;
    pthread_mutex_unlock(&gate);
    if (stopped) pthread_rwlock_unlock(&operations);
}

/* The threads that hold or wait for the locks do not exist here. */
static void in_child(void) {
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t nobody_waits = PTHREAD_COND_INITIALIZER;
    static const pthread_rwlock_t free_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    torn = torn || !quiet;
    gate = unlocked;
    gate_opened = nobody_waits;
    operations = free_lock;
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

void snug_operations_begin(void) {
    pthread_once(&watching_forks, watch_forks);
    pthread_rwlock_rdlock(&operations);
}

void snug_operations_end(void) { pthread_rwlock_unlock(&operations); }

bool snug_operations_torn(void) { return torn; }

/* They stay stopped. */
static void stop_for_exit(void) { stop_operations(EXIT_MILLISECONDS); }

static void watch_exit(void) { atexit(stop_for_exit); }

void snug_operations_end_at_exit(void) { pthread_once(&watching_exit, watch_exit); }

void snug_gate_lock(void) {
    pthread_once(&watching_forks, watch_forks);
    pthread_mutex_lock(&gate);
}

void snug_gate_unlock(void) { pthread_mutex_unlock(&gate); }

void snug_gate_wait(void) { pthread_cond_wait(&gate_opened, &gate); }

void snug_gate_wake(void) { pthread_cond_broadcast(&gate_opened); }
