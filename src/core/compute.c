/* SPDX-License-Identifier: Apache-2.0 */
#include "core/compute.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/process.h"

struct snug_compute {
    pthread_t thread;
    pid_t process; /* a child of fork() has no such thread */
    pthread_mutex_t lock;
    pthread_cond_t to_thread, to_caller;
    /* Given to the thread, until it is done; end: the thread ends. */
    snug_status (*function)(void *user);
    void *user;
    snug_status status;
    bool end;
    /* Given back to the caller, until it is done. */
    void (*left)(void *user);
    void *left_user;
};

/* Threads that wait for each other get on faster, where other programs use the cores, if each takes its share of the
   time in many short slices. Linux 6.12 and later let a thread ask for that (Documentation/scheduler/sched-eevdf.rst);
   before, the request changes nothing. The threads that this one starts inherit it. */
static void take_short_slices(void) {
    enum { NANOSECONDS = 100000 }; /* the least that the kernel takes */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {0}; /* struct sched_attr, which older headers lack */
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 && attributes.policy == SCHED_OTHER) {
        attributes.runtime = NANOSECONDS;
        syscall(SYS_sched_setattr, 0, &attributes, 0);
    }
}

static void *run(void *argument) {
    struct snug_compute *c = argument;
    take_short_slices();
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->function && !c->end) pthread_cond_wait(&c->to_thread, &c->lock);
        if (c->end) break;
        pthread_mutex_unlock(&c->lock);
        snug_operations_begin();
        const snug_status status = c->function(c->user);
        snug_operations_end();
        pthread_mutex_lock(&c->lock);
        c->status = status;
        c->function = NULL;
        pthread_cond_signal(&c->to_caller);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* All signals but those that a thread causes itself: blocked, these would end the process without its handler. */
static void signals_of_others(sigset_t *set) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigfillset(set);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(set, own[i]);
}

static int start(struct snug_compute *c) {
    sigset_t blocked, before;
    c->process = getpid();
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->to_thread, NULL);
    pthread_cond_init(&c->to_caller, NULL);
    signals_of_others(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, &before); /* new threads inherit it */
    const int error = pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int snug_compute_begin(struct snug_compute **compute) {
    if (*compute && (*compute)->process == getpid()) return 0;
    struct snug_compute *made = calloc(1, sizeof *made);
    const int error = made ? start(made) : ENOMEM;
    if (error) {
        free(made);
        return error;
    }
    free(*compute); /* of the parent: the thread does not exist here */
    *compute = made;
    return 0;
}

snug_status snug_compute_run(struct snug_compute *c, snug_status (*function)(void *user), void *user) {
    if (pthread_equal(pthread_self(), c->thread)) return function(user);
    pthread_mutex_lock(&c->lock);
    c->user = user;
    c->function = function;
    pthread_cond_signal(&c->to_thread);
    while (c->function) {
        if (c->left) {
            pthread_mutex_unlock(&c->lock);
            c->left(c->left_user);
            if (c->process != getpid()) return SNUG_E_USAGE;
            pthread_mutex_lock(&c->lock);
            c->left = NULL;
            pthread_cond_signal(&c->to_thread);
        } else {
            pthread_cond_wait(&c->to_caller, &c->lock);
        }
    }
    const snug_status status = c->status;
    pthread_mutex_unlock(&c->lock);
    return status;
}

void snug_compute_leave(struct snug_compute *c, void (*function)(void *user), void *user) {
    if (!c || !pthread_equal(pthread_self(), c->thread)) {
        function(user);
        return;
    }
    snug_operations_end();
    pthread_mutex_lock(&c->lock);
    c->left_user = user;
    c->left = function;
    pthread_cond_signal(&c->to_caller);
    while (c->left) pthread_cond_wait(&c->to_thread, &c->lock);
    pthread_mutex_unlock(&c->lock);
    snug_operations_begin();
}

void snug_compute_end(struct snug_compute *c) {
    if (!c) return;
    if (c->process == getpid()) {
        pthread_mutex_lock(&c->lock);
        c->end = true;
        pthread_cond_signal(&c->to_thread);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
        pthread_cond_destroy(&c->to_thread);
        pthread_cond_destroy(&c->to_caller);
        pthread_mutex_destroy(&c->lock);
    }
    free(c);
}
