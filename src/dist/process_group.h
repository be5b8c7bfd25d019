/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process group: this process as a rank of a run, connected with the others. A run of one rank has none: wherever a
 * group is passed, NULL is one rank alone, and nothing is exchanged.
 */
#ifndef SNUG_DIST_PROCESS_GROUP_H
#define SNUG_DIST_PROCESS_GROUP_H

#include "dist/collectives.h"
#include "dist/ranks.h"
#include "dist/watch.h"

struct snug_process_group {
    struct snug_ranks ranks; /* local_size is known */
    const struct snug_collectives *collectives;
    struct snug_watch *watch;
    bool failed; /* a rank's run failed: the ranks cannot continue together */
    bool hosts;  /* the collectives may be used for the data of CPU ranks: they are MPI's */
    /* The connection of a backend whose arenas are on devices (backend/backend.h), or NULL; disconnect frees it. */
    void *devices;
    void (*disconnect)(void *devices);
};

/* Connects the hosts of the ranks: on GPUs through TCP where there is a rendezvous (dist/rendezvous.h), else through
 * MPI. SNUG_E_UNSUPPORTED, with what to do, if that is impossible: the plug-in is not there, or the launcher does not
 * start MPI. on_cpus: no rank will use a GPU. timeout: seconds that a rank waits for the others in an operation. */
snug_status snug_process_group_open(snug_context *ctx, const struct snug_ranks *ranks, bool on_cpus, double timeout,
                                    struct snug_process_group **out);
/* Without a failure it waits until all ranks have called it. After one it only frees: snug_end_ranks() ends the ranks.
 */
void snug_process_group_close(struct snug_process_group *group);

static inline int snug_group_rank(const struct snug_process_group *group) { return group ? group->ranks.rank : 0; }
static inline int snug_group_size(const struct snug_process_group *group) { return group ? group->ranks.size : 1; }
static inline int snug_group_local_size(const struct snug_process_group *group) {
    return group ? group->ranks.local_size : 1;
}

/* What this rank does from here on, for messages about it: snug_watch_at(). */
static inline void snug_group_at(const struct snug_process_group *group, int64_t step, const char *phase) {
    if (group) snug_watch_at(group->watch, step, phase);
}

/* Fails if another rank is known to be lost or late; for a long time without an operation of all ranks. */
static inline snug_status snug_group_check(snug_context *ctx, const struct snug_process_group *group) {
    return group ? snug_watch_poll(group->watch, ctx) : SNUG_OK;
}

/* For a few bytes. all_gather: `values` has `bytes` bytes for each rank; each rank has set its own. */
snug_status snug_group_all_gather(snug_context *ctx, const struct snug_process_group *group, void *values,
                                  int64_t bytes);
snug_status snug_group_broadcast(snug_context *ctx, const struct snug_process_group *group, void *values,
                                 int64_t bytes);
/* values[count]: the sums over the ranks, on all of them. */
snug_status snug_group_sum(snug_context *ctx, const struct snug_process_group *group, int64_t *values, int64_t count);
/* To rank 0: `all` gets `bytes` bytes of each rank, in order. Only rank 0 needs `all`. */
snug_status snug_group_gather(snug_context *ctx, const struct snug_process_group *group, const void *values,
                              int64_t bytes, void *all);
/* All ranks fail if one does: with the status of the first that failed, its number, host and message. */
snug_status snug_group_agree(snug_context *ctx, const struct snug_process_group *group, snug_status status);
snug_status snug_group_barrier(snug_context *ctx, const struct snug_process_group *group);

#endif
