/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives through MPI: Open MPI, MPICH, or another library with MPI 3.0. */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "dist/mpi/plugin.h"

/* MPI is started once in a process, so its state belongs to the process too. */
static struct snug_collectives table;
static int *counts, *places; /* [2, size]: of what is sent, of what is received */
static struct snug_collective_watch watch;
static bool sleeps;                /* while it waits for others */
enum { AT_ONCE = 1000, FEW = 50 }; /* tests of an operation */

static snug_status check(snug_context *ctx, const char *call, int code) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (code == MPI_SUCCESS) return SNUG_OK;
    MPI_Error_string(code, text, &length);
    return snug_fail(ctx, SNUG_E_IO, "%s failed: %.*s", call, length, text);
}

/* Another rank's end may be the reason, which the watch knows a moment later. */
static snug_status fail(snug_context *ctx, const char *call, int code) {
    enum { TRIES = 200, CENTISECOND = 10000000 };
    for (int i = 0; i < TRIES && watch.user; i++) {
        RETURN_IF_ERROR(watch.poll(watch.user, ctx));
        nanosleep(&(struct timespec){.tv_nsec = CENTISECOND}, NULL);
    }
    return check(ctx, call, code);
}

/* Sleeps as threads that wait do, where OMP_WAIT_POLICY is passive. */
static void let_others_run(void) {
    enum { PAUSE = 50000 }; /* nanoseconds */
    if (sleeps)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    else
        sched_yield();
}

/* Waits for an operation that was started with this code. MPI's own waiting calls would not return if a rank is lost.
   The first tests follow each other at once, since most operations are short; later ones let other processes run. */
static snug_status complete(snug_context *ctx, const char *call, int code, MPI_Request *request) {
    const int64_t at_once = sleeps ? FEW : AT_ONCE;
    snug_status status = SNUG_OK;
    int done = 0;
    for (int64_t tests = 0; code == MPI_SUCCESS && !done && status == SNUG_OK; tests++) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (watch.user) status = watch.poll(watch.user, ctx);
        if (!done && tests >= at_once) let_others_run();
    }
    /* The rank that ended may have done its part before. No more tests: where ranks are more than cores, Open MPI lets
       other processes run in each, which takes long on a busy machine. */
    for (int tests = 0; status != SNUG_OK && !done && tests < FEW; tests++)
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
    if (watch.user) watch.leave(watch.user);
    if (done || status != SNUG_OK) return done ? SNUG_OK : status;
    return fail(ctx, call, code);
}

static void enter(const char *call) {
    if (watch.user) watch.enter(watch.user, call);
}

/* MPI counts with 32 bits: larger values take a call for each piece. */
static snug_status broadcast(snug_context *ctx, void *values, int64_t bytes, int from) {
    snug_status status = SNUG_OK;
    for (int64_t at = 0; at < bytes && status == SNUG_OK; at += table.piece) {
        const int count = (int)(bytes - at < table.piece ? bytes - at : table.piece);
        MPI_Request request;
        enter("MPI_Ibcast");
        const int code = MPI_Ibcast((char *)values + at, count, MPI_BYTE, from, MPI_COMM_WORLD, &request);
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): it looks for MPI_Wait; complete() tests instead */
        status = complete(ctx, "MPI_Ibcast", code, &request);
    }
    return status;
}

static snug_status transfer(snug_context *ctx, void *values, int64_t bytes, int from, int to) {
    const bool sends = table.rank == from;
    const char *call = sends ? "MPI_Isend" : "MPI_Irecv";
    snug_status status = SNUG_OK;
    for (int64_t at = 0; at < bytes && status == SNUG_OK; at += table.piece) {
        const int count = (int)(bytes - at < table.piece ? bytes - at : table.piece);
        char *values_at = (char *)values + at;
        MPI_Request request;
        enter(call);
        const int code = sends ? MPI_Isend(values_at, count, MPI_BYTE, to, 0, MPI_COMM_WORLD, &request)
                               : MPI_Irecv(values_at, count, MPI_BYTE, from, 0, MPI_COMM_WORLD, &request);
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): as above */
        status = complete(ctx, call, code, &request);
    }
    return status;
}

/* Gathers large values by one call for each rank's parts. */
static snug_status gather_parts(snug_context *ctx, const char *from, void *to, const struct snug_shards *parts,
                                int64_t first, int64_t most) {
    snug_status status = SNUG_OK;
    for (int r = 0; r < table.size && status == SNUG_OK; r++) {
        const int count = (int)snug_collective_part(parts, r, first, most);
        MPI_Request request;
        if (!count) continue;
        enter("MPI_Igather");
        const int code = MPI_Igather(from + snug_shard_begin(parts, r) + first, count, MPI_BYTE, to, count, MPI_BYTE, r,
                                     MPI_COMM_WORLD, &request);
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): as above */
        status = complete(ctx, "MPI_Igather", code, &request);
    }
    return status;
}

static snug_status exchange(snug_context *ctx, const void *from, void *to, const struct snug_shards *parts,
                            int64_t first, int64_t most) {
    const int64_t largest = snug_shard_largest(parts), own = snug_collective_part(parts, table.rank, first, most);
    MPI_Request request;
    if (parts->elements > table.piece || (largest < most ? largest : most) * table.size > table.piece)
        return gather_parts(ctx, from, to, parts, first, most);
    for (int r = 0; r < table.size; r++) {
        counts[r] = (int)snug_collective_part(parts, r, first, most);
        places[r] = (int)(counts[r] ? snug_shard_begin(parts, r) + first : 0);
        counts[table.size + r] = (int)own;
        places[table.size + r] = (int)(r * own);
    }
    enter("MPI_Ialltoallv");
    const int code = MPI_Ialltoallv(from, counts, places, MPI_BYTE, to, counts + table.size, places + table.size,
                                    MPI_BYTE, MPI_COMM_WORLD, &request);
    return complete(ctx, "MPI_Ialltoallv", code, &request);
}

static snug_status all_gather(snug_context *ctx, void *values, const struct snug_shards *parts) {
    MPI_Request request;
    snug_status status = SNUG_OK;
    if (parts->elements > table.piece) {
        for (int r = 0; r < table.size && status == SNUG_OK; r++)
            status = broadcast(ctx, (char *)values + snug_shard_begin(parts, r), snug_shard_size(parts, r), r);
        return status;
    }
    for (int r = 0; r < table.size; r++) {
        counts[r] = (int)snug_shard_size(parts, r);
        places[r] = (int)snug_shard_begin(parts, r);
    }
    enter("MPI_Iallgatherv");
    const int code =
        MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, values, counts, places, MPI_BYTE, MPI_COMM_WORLD, &request);
    return complete(ctx, "MPI_Iallgatherv", code, &request);
}

static snug_status barrier(snug_context *ctx) {
    MPI_Request request;
    enter("MPI_Ibarrier");
    return complete(ctx, "MPI_Ibarrier", MPI_Ibarrier(MPI_COMM_WORLD, &request), &request);
}

static void set_watch(const struct snug_collective_watch *given) {
    watch = given ? *given : (struct snug_collective_watch){0};
}

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
    for (char *tab = text; (tab = strchr(tab, '\t'));) *tab = ' ';
    snprintf(table.name, sizeof table.name, "%.*s", (int)sizeof table.name - 1, text);
}

static snug_status start(snug_context *ctx) {
    int given; /* the caller's thread and the compute thread call it in turn */
    RETURN_IF_ERROR(check(ctx, "MPI_Init_thread", MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given)));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (given < MPI_THREAD_SERIALIZED)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "this MPI does not support processes with threads");
    table = (struct snug_collectives){.piece = INT_MAX,
                                      .exchange = exchange,
                                      .all_gather = all_gather,
                                      .broadcast = broadcast,
                                      .transfer = transfer,
                                      .barrier = barrier,
                                      .set_watch = set_watch,
                                      .abort = abort_all,
                                      .close = close_all};
    MPI_Comm_rank(MPI_COMM_WORLD, &table.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &table.size);
    name_library();
    const char *policy = getenv("OMP_WAIT_POLICY");
    sleeps = policy && strcasecmp(policy, "passive") == 0;
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
