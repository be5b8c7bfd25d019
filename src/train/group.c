/* SPDX-License-Identifier: Apache-2.0 */
#include "train/group.h"

#include <stdio.h>
#include <time.h>

/* ---- joining --------------------------------------------------------------------------------------------------- */

/* Methods whose programs have no place yet for the sums over ranks, or whose choice may differ between ranks. */
static snug_status check_methods(const struct snug_args *args, const struct snug_ranks *ranks) {
    const struct {
        bool given;
        const char *name;
    } methods[] = {{args->update_in_backward, "update_in_backward"}, {args->offload, "offload"}, {args->fit, "fit"}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].given)
            return snug_fail(
                args->ctx, SNUG_E_UNSUPPORTED,
                "--%s is not supported on several ranks yet, and %s is %d: leave it out, or start a single "
                "process",
                methods[i].name, ranks->size_source, ranks->size);
    return SNUG_OK;
}

snug_status snug_group_join(struct snug_args *args) {
    struct snug_ranks ranks;
    RETURN_IF_ERROR(snug_ranks_find(args->ctx, &ranks));
    if (ranks.size == 1) return SNUG_OK;
    RETURN_IF_ERROR(check_methods(args, &ranks));
    if (args->group && args->group->failed) /* untested: a program of your own that goes on after a failure */
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "the last run of these ranks failed, so they cannot train again: call snug_end_ranks()");
    /* untested: a second training of a process */
    if (!args->group) RETURN_IF_ERROR(snug_process_group_open(args->ctx, &ranks, &args->group));
    snug_context_set_rank(args->ctx, args->group->ranks.rank);
    return SNUG_OK;
}

snug_status snug_group_alone(const struct snug_args *args, const char *command) {
    struct snug_ranks ranks;
    if (args->group) return SNUG_OK;
    RETURN_IF_ERROR(snug_ranks_find(args->ctx, &ranks));
    if (ranks.size == 1) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_UNSUPPORTED,
                     "%s runs in a single process, and %s is %d: only snug train, eval and predict run on several "
                     "ranks; start this command without %s, or unset the variable",
                     command, ranks.size_source, ranks.size, ranks.launcher);
}

int snug_args_rank(const snug_args *args) { return snug_group_rank(args->group); }

/* ---- failing --------------------------------------------------------------------------------------------------- */

/* Often all ranks fail with the same error. The first rank that reports it ends the others, so they wait in the order
   of their numbers, and the error is reported once. A launcher ends a rank by SIGTERM and, seconds later, by SIGKILL: a
   rank that was asked to stop leaves the report to the rank that ended it. */
/* may be untested: a rank that is ended records nothing */
static void wait_for_others(int rank, const snug_callbacks *callbacks) {
    enum { TURN = 5, TURNS = 4, LONGEST = 100, TENTH_OF_A_SECOND = 100000000 };
    const int own = TURN * (rank < TURNS ? rank : TURNS);
    for (int waited = 0; rank > 0 && waited < LONGEST; waited++) {
        const bool asked = callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user);
        if (waited >= own && !asked) return;
        nanosleep(&(struct timespec){.tv_nsec = TENTH_OF_A_SECOND}, NULL);
    }
}

/* may be untested: a rank that is ended records nothing */
snug_status snug_group_fail(struct snug_args *args, const snug_callbacks *callbacks, snug_status status, int64_t step) {
    const struct snug_process_group *group = args->group;
    char why[1536], at[48] = "";
    if (!group) return status; /* may be untested: a rank that is ended records nothing */
    args->group->failed = true;
    wait_for_others(group->ranks.rank, callbacks);
    if (status == SNUG_E_INTERRUPTED) return status; /* agreed by all ranks */
    snprintf(why, sizeof why, "%s", snug_error_message(args->ctx));
    if (step >= 0) snprintf(at, sizeof at, ", step %lld", (long long)step);
    snug_clear_error(args->ctx);
    return snug_fail(args->ctx, status, "rank %d of %d on %s%s: %s", group->ranks.rank, group->ranks.size,
                     group->ranks.host, at, why);
}

/* may be untested: a rank that is ended records nothing */
void snug_end_ranks(snug_args *args, int code) {
    /* may be untested: a rank that is ended records nothing */
    if (args && args->group) args->group->collectives->abort(code);
}
