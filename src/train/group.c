/* SPDX-License-Identifier: Apache-2.0 */
#include "train/group.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- joining --------------------------------------------------------------------------------------------------- */

/* Methods that do not support gradient all-reduce yet. */
static snug_status check_methods(const struct snug_args *args, const struct snug_ranks *ranks) {
    const char *alone = snug_args_alone(args);
    if (!alone) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_UNSUPPORTED,
                     "%s is not supported on several ranks yet, and %s is %d: leave it out, or start a single process",
                     alone, ranks->size_source, ranks->size);
}

/* What is for several ranks, on one. */
static void report_unused(const struct snug_args *args) {
    static const char *const names[] = {"ddp_timeout", "zero_stage"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (snug_args_is_chosen(args, names[i]))
            snug_log(args->ctx, SNUG_LOG_INFO, "--%s has no effect: this run has one rank", names[i]);
}

snug_status snug_group_join(struct snug_args *args) {
    struct snug_ranks ranks;
    RETURN_IF_ERROR(snug_ranks_find(args->ctx, &ranks));
    const bool on_cpus = args->use_cpu || strcmp(args->device, "cpu") == 0;
    if (args->gpus && on_cpus)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--gpus and %s contradict each other; start ranks on CPUs with mpirun -n %s",
                         args->use_cpu ? "--use_cpu" : "--device cpu", args->gpus);
    if (args->gpus && !ranks.launcher)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--gpus is for the program snug, which starts its ranks; start those of a program of your own "
                         "with torchrun, mpirun or srun");
    if (ranks.size == 1) {
        report_unused(args);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(check_methods(args, &ranks));
    if (args->group && args->group->failed)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "the last run of these ranks failed, so they cannot train again: call snug_end_ranks()");
    if (!args->group)
        RETURN_IF_ERROR(snug_process_group_open(args->ctx, &ranks, on_cpus, (double)args->ddp_timeout, &args->group));
    snug_context_set_rank(args->ctx, args->group->ranks.rank);
    return SNUG_OK;
}

snug_status snug_group_alone(const struct snug_args *args, const char *command) {
    struct snug_ranks ranks;
    if (args->group || args->alone) return SNUG_OK;
    RETURN_IF_ERROR(snug_ranks_find(args->ctx, &ranks));
    if (ranks.size == 1) return SNUG_OK;
    return snug_fail(
        args->ctx, SNUG_E_UNSUPPORTED,
        "%s runs in a single process, and %s is %d: only snug train, eval, predict, verify and bench anatomy run on "
        "several ranks; start this command without %s, or unset the variable",
        command, ranks.size_source, ranks.size, ranks.launcher);
}

/* ---- failing --------------------------------------------------------------------------------------------------- */

/* Seconds in which a launcher ends a rank: after the end of another one; after SIGTERM. */
enum { REPORTED = 5, ASKED = 10 };

/* One rank reports a failure; when it has ended, its launcher ends the others, which wait for that: `seconds`, or
   longer if they know that another one reports. A launcher may end a rank by SIGTERM and, seconds later, by SIGKILL: a
   rank that was asked to stop leaves the report to the rank that has ended, and waits for asked_seconds. Without a
   launcher each rank reports in turn. Whether it was asked to stop. */
static bool wait_for_others(const struct snug_process_group *group, const snug_callbacks *callbacks, double seconds,
                            double asked_seconds) {
    const double begin = snug_seconds();
    double most = seconds;
    bool asked = false;
    while (seconds > 0 && snug_seconds() - begin < most) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        if (most < REPORTED && snug_watch_is_reported(group->watch)) most = REPORTED;
        asked = asked || (callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user));
        if (asked) most = asked_seconds;
    }
    return asked;
}

/* A rank that is lost or late was found by the watch. Normally rank 0 reports it; where rank 0 is lost, the first rank
   that is left. */
static snug_status fail_by_watch(const struct snug_args *args, const snug_callbacks *callbacks,
                                 enum snug_watch_verdict verdict, const char *why) {
    const struct snug_ranks *ranks = &args->group->ranks;
    snug_clear_error(args->ctx);
    if (verdict == SNUG_WATCH_SILENT) {
        /* A launcher ends this rank, and another one says why: not sooner, since mpirun would end that one, too.
           torchrun waits for 30 s before it sends SIGKILL. */
        if (wait_for_others(args->group, callbacks, REPORTED, REPORTED)) _exit(1);
    } else {
        wait_for_others(args->group, callbacks, snug_watch_turn(args->group->watch), ASKED);
    }
    if (verdict == SNUG_WATCH_REPORT) return snug_fail(args->ctx, SNUG_E_IO, "%s", why);
    return snug_fail(args->ctx, SNUG_E_IO, "rank %d of %d on %s ends with the others: %s", ranks->rank, ranks->size,
                     ranks->host, why);
}

snug_status snug_group_fail(struct snug_args *args, const snug_callbacks *callbacks, snug_status status, int64_t step) {
    enum { TURNS = 4 };
    const struct snug_process_group *group = args->group;
    char why[1536], at[48] = "", lost[SNUG_RANK_MESSAGE];
    if (!group) return status;
    args->group->failed = true;
    /* All ranks have agreed to stop, so one that ends first is no failure. */
    const enum snug_watch_verdict verdict =
        status == SNUG_E_INTERRUPTED ? SNUG_WATCH_NONE : snug_watch_verdict(group->watch, lost);
    if (verdict != SNUG_WATCH_NONE) return fail_by_watch(args, callbacks, verdict, lost);
    snug_watch_fail(group->watch);
    const double turn = 0.5 * (group->ranks.rank < TURNS ? group->ranks.rank : TURNS);
    if (status == SNUG_E_INTERRUPTED) { /* agreed by all ranks: rank 0 reports it, and ends first */
        nanosleep(&(struct timespec){(time_t)turn, (long)(1e9 * (turn - (double)(time_t)turn))}, NULL);
        return status;
    }
    /* Often all ranks fail with the same error, and they report it in the order of their numbers. */
    wait_for_others(group, callbacks, turn, ASKED);
    snprintf(why, sizeof why, "%s", snug_context_message(args->ctx));
    if (step >= 0) snprintf(at, sizeof at, ", step %lld", (long long)step);
    snug_clear_error(args->ctx);
    return snug_fail(args->ctx, status, "rank %d of %d on %s%s: %s", group->ranks.rank, group->ranks.size,
                     group->ranks.host, at, why);
}
