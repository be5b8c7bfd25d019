/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that tell a job to save and end. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

/* SIGHUP: the terminal was closed. SIGUSR1, SIGXCPU: a batch system's warning before it kills the job. */
static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU};

static atomic_bool stop_asked; /* written by the signal thread, read by all others */

/* Only these two end the program when they are repeated: the kernel repeats SIGXCPU every second, and a batch system
   sends SIGTERM after SIGUSR1, while the job is still saving. */
static bool repetition_ends(int number) { return number == SIGINT || number == SIGTERM; }

/* Signals of one kind within 0.2 s count as one: timeout(1) signals its child and then its group. */
static void drop_repetitions(int number) {
    const struct timespec moment = {.tv_nsec = 200000000}, now = {0};
    sigset_t same;
    sigemptyset(&same);
    sigaddset(&same, number);
    nanosleep(&moment, NULL);
    while (sigtimedwait(&same, NULL, &now) > 0) continue;
}

static void *await_signals(void *signals) {
    sigset_t seen;
    sigemptyset(&seen);
    for (int number; sigwait(signals, &number) == 0; sigaddset(&seen, number)) {
        atomic_store(&stop_asked, true);
        if (repetition_ends(number) && sigismember(&seen, number)) _exit(EXIT_INTERRUPTED);
        drop_repetitions(number);
    }
    return NULL;
}

static bool should_stop(void *user) {
    (void)user;
    return atomic_load(&stop_asked);
}

/* Linux queues a blocked signal even where it is ignored, so that sigwait() would return it. A signal that the parent
   process ignores (nohup, a shell's background job) is therefore neither blocked nor waited for. */
static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* One thread takes the signals and all others block them: it can wait a moment for repetitions, and end a program that
   does not reach its next step. */
void cli_catch_signals(struct cli *cli) {
    static sigset_t signals;
    pthread_t thread;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof stop_signals / sizeof *stop_signals; i++)
        if (!is_ignored(stop_signals[i])) sigaddset(&signals, stop_signals[i]);
    cli->callbacks.should_stop = should_stop;
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* inherited by threads that are created later */
    if (pthread_create(&thread, NULL, await_signals, &signals) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* a signal then ends the program at once */
}
