/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/process_group.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/library.h"
#include "dist/mpi/plugin.h"
#include "dist/tcp.h"

/* That of the launcher: PMI's variables are of MPICH and its relatives, and of srun --mpi=pmi2, which MPICH
   understands. Without it the other one, which then says how many ranks it has. */
static void *open_library(const char **file, char *why, size_t size) {
    const bool pmi = getenv("PMI_RANK") && !getenv("OMPI_COMM_WORLD_RANK");
    const char *const files[] = {pmi ? SNUG_MPI_MPICH : SNUG_MPI_OPENMPI, pmi ? SNUG_MPI_OPENMPI : SNUG_MPI_MPICH};
    void *library = NULL;
    for (int i = 0; i < 2 && !library; i++)
        /* Global: Open MPI opens its own components at run time, and they use its symbols. */
        library = snug_library_open(*file = files[i], RTLD_NOW | RTLD_GLOBAL, why, size);
    return library;
}

static snug_status open_plugin(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_collectives **out) {
    char why[512];
    const char *file;
    void *library = open_library(&file, why, sizeof why);
    if (!library)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s is %d: several ranks on CPUs need MPI, and neither %s nor %s can be opened: %s; install "
                         "Open MPI or MPICH and build with make, or start a single process; GPUs need no MPI where "
                         "MASTER_ADDR and MASTER_PORT are set",
                         ranks->size_source, ranks->size, SNUG_MPI_OPENMPI, SNUG_MPI_MPICH, why);
    void *symbol = dlsym(library, SNUG_MPI_PLUGIN_SYMBOL);
    snug_mpi_plugin_fn *entry;
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from data to function pointers */
    const struct snug_mpi_plugin *plugin = symbol ? entry() : NULL;
    if (!plugin || plugin->version != SNUG_MPI_PLUGIN_VERSION ||
        plugin->collectives_size != sizeof(struct snug_collectives))
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s is of another build of snug: install both from one build", file);
    return plugin->open(ctx, out); /* never closed: MPI does not support unloading */
}

static snug_status open_watch(snug_context *ctx, struct snug_process_group *group, double timeout) {
    RETURN_IF_ERROR(snug_watch_open(ctx, &group->ranks, group->collectives, timeout, &group->watch));
    group->collectives->set_watch(
        &(struct snug_collective_watch){group->watch, snug_watch_enter, snug_watch_poll, snug_watch_leave});
    return SNUG_OK;
}

static snug_status open_mpi(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_collectives **out) {
    RETURN_IF_ERROR(open_plugin(ctx, ranks, out));
    const struct snug_collectives *collectives = *out;
    if (collectives->size != ranks->size || collectives->rank != ranks->rank)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "this is rank %d of %d by the variables of %s, but rank %d of %d in %s: start CPU ranks with "
                         "that MPI's own launcher, as in mpirun -n %d snug train …, or with srun --mpi=pmix; torchrun "
                         "does not start MPI",
                         ranks->rank, ranks->size, ranks->launcher, collectives->rank, collectives->size,
                         collectives->name, ranks->size);
    return SNUG_OK;
}

snug_status snug_process_group_open(snug_context *ctx, const struct snug_ranks *ranks, bool on_cpus, double timeout,
                                    struct snug_process_group **out) {
    const struct snug_collectives *collectives;
    struct snug_rendezvous at = {.host = ""};
    void *memory;
    *out = NULL;
    if (!on_cpus) RETURN_IF_ERROR(snug_rendezvous_find(ctx, ranks, &at));
    RETURN_IF_ERROR(*at.host ? snug_tcp_open(ctx, ranks, &at, timeout, &collectives)
                             : open_mpi(ctx, ranks, &collectives));
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &memory));
    *out = memory;
    **out = (struct snug_process_group){.ranks = *ranks, .collectives = collectives, .hosts = !*at.host};
    (*out)->ranks.local_rank = collectives->local_rank;
    (*out)->ranks.local_size = collectives->local_size;
    return open_watch(ctx, *out, timeout);
}

void snug_process_group_close(struct snug_process_group *group) {
    if (!group) return;
    /* Waits for the other devices, which after a failure may be gone. */
    if (group->devices && !group->failed) group->disconnect(group->devices);
    group->collectives->set_watch(NULL);
    snug_watch_close(group->watch);
    if (!group->failed) group->collectives->close();
    free(group);
}

snug_status snug_group_all_gather(snug_context *ctx, const struct snug_process_group *group, void *values,
                                  int64_t bytes) {
    return group ? snug_all_gather_equal(ctx, group->collectives, values, bytes) : SNUG_OK;
}

snug_status snug_group_broadcast(snug_context *ctx, const struct snug_process_group *group, void *values,
                                 int64_t bytes) {
    return group ? group->collectives->broadcast(ctx, values, bytes, 0) : SNUG_OK;
}

snug_status snug_group_sum(snug_context *ctx, const struct snug_process_group *group, int64_t *values, int64_t count) {
    enum { PIECE = 1 << 12 };
    const int ranks = snug_group_size(group);
    const int64_t piece = count < PIECE ? count : PIECE;
    void *memory;
    if (count == 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(ranks * piece), sizeof *values, &memory));
    int64_t *all = memory;
    snug_status status = SNUG_OK;
    for (int64_t at = 0; at < count && status == SNUG_OK; at += piece) {
        const int64_t n = count - at < piece ? count - at : piece;
        memcpy(all + group->ranks.rank * n, values + at, (size_t)n * sizeof *values);
        status = snug_group_all_gather(ctx, group, all, n * (int64_t)sizeof *values);
        for (int64_t i = 0; i < n && status == SNUG_OK; i++) {
            values[at + i] = all[i];
            for (int r = 1; r < ranks; r++) values[at + i] += all[r * n + i];
        }
    }
    free(memory);
    return status;
}

snug_status snug_group_gather(snug_context *ctx, const struct snug_process_group *group, const void *values,
                              int64_t bytes, void *all) {
    const int64_t piece = 1 << 20;
    const int ranks = group->ranks.size;
    const bool receives = group->ranks.rank == 0;
    void *received = NULL;
    if (receives) RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(ranks * (bytes < piece ? bytes : piece)), 1, &received));
    snug_status status = SNUG_OK;
    for (int64_t at = 0; at < bytes && status == SNUG_OK; at += piece) {
        const int64_t n = bytes - at < piece ? bytes - at : piece;
        const struct snug_shards one = snug_equal_parts(n, n, ranks); /* which is rank 0's */
        status = group->collectives->exchange(ctx, (const char *)values + at, received, &one, 0, n);
        for (int r = 0; r < ranks && receives && status == SNUG_OK; r++)
            memcpy((char *)all + r * bytes + at, (char *)received + r * n, (size_t)n);
    }
    free(received);
    return status;
}

snug_status snug_group_agree(snug_context *ctx, const struct snug_process_group *group, snug_status status) {
    struct outcome {
        int64_t status;
        char host[SNUG_HOST_NAME], why[512];
    };
    void *memory;
    if (!group) return status;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)group->ranks.size, sizeof(struct outcome), &memory));
    struct outcome *all = memory, *own = &all[group->ranks.rank];
    own->status = status;
    memcpy(own->host, group->ranks.host, sizeof own->host);
    snprintf(own->why, sizeof own->why, "%s", status == SNUG_OK ? "" : snug_context_message(ctx));
    snug_status agreed = snug_group_all_gather(ctx, group, all, sizeof *all);
    for (int rank = 0; rank < group->ranks.size && agreed == SNUG_OK; rank++) {
        if (all[rank].status == SNUG_OK) continue;
        snug_clear_error(ctx);
        agreed =
            snug_fail(ctx, (snug_status)all[rank].status, "rank %d on %s: %s", rank, all[rank].host, all[rank].why);
    }
    free(memory);
    return agreed;
}

snug_status snug_group_barrier(snug_context *ctx, const struct snug_process_group *group) {
    return group ? group->collectives->barrier(ctx) : SNUG_OK;
}
