/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process group: this process as a rank of a run, connected with the others. A run of one rank has none: wherever a
 * group is passed, NULL is one rank alone, and nothing is exchanged.
 */
#ifndef SNUG_DIST_PROCESS_GROUP_H
#define SNUG_DIST_PROCESS_GROUP_H

#include "dist/collectives.h"
#include "dist/ranks.h"

struct snug_process_group {
    struct snug_ranks ranks; /* local_size is known */
    const struct snug_collectives *collectives;
    bool failed; /* a rank's run failed: the ranks cannot continue together */
};

/* Connects the ranks of a run on CPUs, through MPI. SNUG_E_UNSUPPORTED, with what to do, if that is impossible: the
 * plug-in is not there, or the launcher does not start MPI. */
snug_status snug_process_group_open(snug_context *ctx, const struct snug_ranks *ranks, struct snug_process_group **out);
/* Without a failure it waits until all ranks have called it. After one it only frees: snug_end_ranks() ends the ranks.
 */
void snug_process_group_close(struct snug_process_group *group);

static inline int snug_group_rank(const struct snug_process_group *group) { return group ? group->ranks.rank : 0; }
static inline int snug_group_size(const struct snug_process_group *group) { return group ? group->ranks.size : 1; }
static inline int snug_group_local_size(const struct snug_process_group *group) {
    return group ? group->ranks.local_size : 1;
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
snug_status snug_group_barrier(snug_context *ctx, const struct snug_process_group *group);

#endif
