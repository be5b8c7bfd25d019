/* SPDX-License-Identifier: Apache-2.0 */
#include "train/threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/cgroup.h"

int snug_args_threads(const struct snug_args *args) {
    if (args->threads > 0) return (int)args->threads;
    const int all = snug_affinity_cores();
    const int sharing = snug_group_local_size(args->group);
    struct snug_cgroup group;
    snug_cgroup_read("", &group);
    /* A launcher that binds its ranks to cores has divided them already. */
    const int own = all < sysconf(_SC_NPROCESSORS_ONLN) ? all : all < sharing ? 1 : all / sharing;
    return snug_cgroup_threads(&group, own, sharing);
}

/* Bytes of an OpenMP thread's stack from OMP_STACKSIZE or GOMP_STACKSIZE, as "512", "64M" or "2 g", by default in KiB;
   0 if neither is valid, for the system's default, as in GCC's OpenMP. */
static size_t stack_size(void) {
    const char *text = getenv("OMP_STACKSIZE"), *units = "bkmg";
    if (!text) text = getenv("GOMP_STACKSIZE");
    char *end;
    const unsigned long long number = text ? strtoull(text, &end, 10) : 0;
    if (number == 0 || *text == '-') return 0;
    end += strspn(end, " \t");
    const char *unit = *end ? strchr(units, *end | 0x20) : units + 1;
    const size_t shift = unit ? 10 * (size_t)(unit - units) : 0, bytes = (size_t)number << shift;
    return unit && bytes >> shift == number ? bytes : 0;
}

/* Ends when the caller releases the mutex: until then all threads exist. */
static void *wait_for_all(void *mutex) {
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    return NULL;
}

/* Creates up to so many threads that exist at the same time; *error is the reason if there are fewer. */
static int make_threads(pthread_t *made, int wanted, int *error) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t attributes;
    const size_t stack = stack_size();
    int count = 0;
    *error = pthread_attr_init(&attributes);
    if (*error) return 0;
    if (stack) pthread_attr_setstacksize(&attributes, stack); /* OpenMP ignores an invalid one, too */
    pthread_mutex_lock(&mutex);
    while (count < wanted && !(*error = pthread_create(&made[count], &attributes, wait_for_all, &mutex))) count++;
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < count; i++) pthread_join(made[i], NULL);
    pthread_attr_destroy(&attributes);
    return count;
}

/* Immediately, before other allocations use the memory of the trial threads. */
static int open_region(int threads) {
    int running = 0;
#pragma omp parallel num_threads(threads) reduction(+ : running)
    running++;
    return running;
}

struct check {
    snug_context *ctx;
    int threads;
};

static snug_status check_here(void *user) {
    const struct check *check = user;
    snug_context *ctx = check->ctx;
    const int threads = check->threads;
    /* OpenMP keeps its threads, a team for each thread that opens parallel regions: no check is needed for these. */
    static _Thread_local int checked = 1;
    void *made;
    int error;
    if (threads <= checked) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)threads - 1, sizeof(pthread_t), &made));
    const int count = 1 + make_threads(made, threads - 1, &error);
    free(made);
    if (count < threads)
        return snug_fail(ctx, SNUG_E_MEMORY,
                         "%d threads are needed, but only %d can run at the same time (%s): a limit on processes "
                         "(ulimit -u), of the container (pids.max) or on memory (ulimit -v) prevents it; raise it, or "
                         "use fewer --threads",
                         threads, count, strerror(error));
    const int running = open_region(threads);
    if (running < threads)
        snug_log(ctx, SNUG_LOG_WARNING, "OpenMP runs %d of %d threads: is OMP_THREAD_LIMIT or OMP_DYNAMIC set?",
                 running, threads);
    checked = threads;
    return SNUG_OK;
}

snug_status snug_threads_check(snug_context *ctx, int threads) {
    return snug_compute(ctx, check_here, &(struct check){ctx, threads});
}
