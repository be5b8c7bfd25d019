/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives through MPI: Open MPI, MPICH, or another library with MPI 3.0. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/mpi/plugin.h"

/* MPI is started once in a process, so its state belongs to the process too. */
static struct snug_collectives table;
static int *counts, *places; /* [2, size]: of what is sent, of what is received */

static snug_status check(snug_context *ctx, const char *call, int code) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (code == MPI_SUCCESS) return SNUG_OK;
    MPI_Error_string(code, text, &length); /* untested: MPI's own failures */
    return snug_fail(ctx, SNUG_E_IO, "%s failed: %.*s", call, length, text);
}

/* The bytes from `first` on of each part, at most `most`, as counts and displacements. */
static void cut(const struct snug_shards *parts, int64_t first, int64_t most) {
    for (int r = 0; r < table.size; r++) {
        counts[r] = (int)snug_collective_part(parts, r, first, most);
        places[r] = (int)(counts[r] ? snug_shard_begin(parts, r) + first : 0);
    }
}

static snug_status exchange(snug_context *ctx, const void *from, void *to, const struct snug_shards *parts,
                            int64_t first, int64_t most) {
    const int own = (int)snug_collective_part(parts, table.rank, first, most);
    cut(parts, first, most);
    for (int r = 0; r < table.size; r++) {
        counts[table.size + r] = own;
        places[table.size + r] = (int)((int64_t)r * own);
    }
    return check(ctx, "MPI_Alltoallv",
                 MPI_Alltoallv(from, counts, places, MPI_BYTE, to, counts + table.size, places + table.size, MPI_BYTE,
                               MPI_COMM_WORLD));
}

static snug_status all_gather(snug_context *ctx, void *values, const struct snug_shards *parts) {
    cut(parts, 0, SNUG_COLLECTIVE_MOST);
    return check(ctx, "MPI_Allgatherv",
                 MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, values, counts, places, MPI_BYTE, MPI_COMM_WORLD));
}

static snug_status broadcast(snug_context *ctx, void *values, int64_t bytes, int from) {
    return check(ctx, "MPI_Bcast", MPI_Bcast(values, (int)bytes, MPI_BYTE, from, MPI_COMM_WORLD));
}

static snug_status transfer(snug_context *ctx, void *values, int64_t bytes, int from, int to) {
    if (table.rank == from)
        return check(ctx, "MPI_Send", MPI_Send(values, (int)bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD));
    return check(ctx, "MPI_Recv", MPI_Recv(values, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static snug_status barrier(snug_context *ctx) { return check(ctx, "MPI_Barrier", MPI_Barrier(MPI_COMM_WORLD)); }

static void abort_all(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

static void close_all(void) {
    MPI_Finalize();
    free(counts);
    free(places);
    counts = places = NULL;
}

/* The ranks of this host. */
static snug_status find_local(snug_context *ctx) {
    MPI_Comm local;
    RETURN_IF_ERROR(check(ctx, "MPI_Comm_split_type",
                          MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local)));
    MPI_Comm_rank(local, &table.local_rank);
    MPI_Comm_size(local, &table.local_size);
    return check(ctx, "MPI_Comm_free", MPI_Comm_free(&local));
}

static void name_library(void) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0'; /* the rest is about its build */
    snprintf(table.name, sizeof table.name, "%.*s", (int)sizeof table.name - 1, text);
}

static snug_status start(snug_context *ctx) {
    int given;
    RETURN_IF_ERROR(check(ctx, "MPI_Init_thread", MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given)));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (given < MPI_THREAD_FUNNELED) /* untested: every MPI of the distributions has it */
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "this MPI does not support processes with threads");
    table = (struct snug_collectives){.exchange = exchange,
                                      .all_gather = all_gather,
                                      .broadcast = broadcast,
                                      .transfer = transfer,
                                      .barrier = barrier,
                                      .abort = abort_all,
                                      .close = close_all};
    MPI_Comm_rank(MPI_COMM_WORLD, &table.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &table.size);
    name_library();
    void *arrays[2];
    for (int i = 0; i < 2; i++) RETURN_IF_ERROR(snug_alloc(ctx, 2 * (size_t)table.size, sizeof(int), &arrays[i]));
    counts = arrays[0];
    places = arrays[1];
    return find_local(ctx);
}

static snug_status open_mpi(snug_context *ctx, const struct snug_collectives **out) {
    int started = 0, ended = 0;
    *out = NULL;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (ended)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "MPI was closed with the arguments of an earlier run, and cannot be started again in this "
                         "process: keep the first snug_args until the last run has ended");
    if (started && !counts)
        return snug_fail(ctx, SNUG_E_USAGE, "this process has started MPI itself: snug starts and ends it");
    if (!started) RETURN_IF_ERROR(start(ctx));
    *out = &table;
    return SNUG_OK;
}

__attribute__((visibility("default"))) snug_mpi_plugin_fn snug_mpi_plugin;
const struct snug_mpi_plugin *snug_mpi_plugin(void) {
    static const struct snug_mpi_plugin plugin = {SNUG_MPI_PLUGIN_VERSION, sizeof(struct snug_collectives), open_mpi};
    return &plugin;
}
