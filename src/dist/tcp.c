/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dist/handshake.h"
#include "dist/watch_net.h"

/* A process is one rank of one run, so the state belongs to the process, as that of MPI. */
static struct snug_collectives table;
static struct snug_handshake connected;
static int *sockets; /* connected.sockets */
static struct snug_collective_watch watch;
static double patience; /* seconds that an operation waits for another rank while there is no watch */

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Another rank's end may be the reason, which the watch knows a moment later. */
static snug_status fail(snug_context *ctx, const char *what, int other, const char *why) {
    enum { TRIES = 200, CENTISECOND = 10000000 };
    for (int i = 0; i < TRIES && watch.user; i++) {
        RETURN_IF_ERROR(watch.poll(watch.user, ctx));
        nanosleep(&(struct timespec){.tv_nsec = CENTISECOND}, NULL);
    }
    return snug_fail(ctx, SNUG_E_IO, "%s: the connection to rank %d: %s", what, other, why);
}

/* Sends or receives all bytes; other: the rank at the other end. */
static snug_status move(snug_context *ctx, const char *what, int other, void *data, int64_t bytes, bool sends) {
    enum { TICK = 50 }; /* milliseconds */
    const int fd = sockets[table.rank == 0 ? other : 0];
    const double until = snug_seconds() + patience;
    for (int64_t done = 0; done < bytes;) {
        char *at = (char *)data + done;
        const size_t left = (size_t)(bytes - done);
        const ssize_t n = sends ? send(fd, at, left, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(fd, at, left, MSG_DONTWAIT);
        if (n > 0) {
            done += n;
            continue;
        }
        if (n == 0) return fail(ctx, what, other, "it was closed");
        if (errno != EAGAIN && errno != EINTR) return fail(ctx, what, other, strerror(errno));
        struct pollfd ready = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
        /* The rank at the other end may have sent the rest, and ended. */
        if (poll(&ready, 1, TICK) > 0) continue;
        if (watch.user)
            RETURN_IF_ERROR(watch.poll(watch.user, ctx));
        else if (snug_seconds() > until)
            return fail(ctx, what, other, "it has not answered for --ddp_timeout");
    }
    return SNUG_OK;
}

static snug_status give(snug_context *ctx, const char *what, int to, const void *data, int64_t bytes) {
    return move(ctx, what, to, (void *)(uintptr_t)data, bytes, true);
}

static snug_status take(snug_context *ctx, const char *what, int from, void *data, int64_t bytes) {
    return move(ctx, what, from, data, bytes, false);
}

static void enter(const char *what) {
    if (watch.user) watch.enter(watch.user, what);
}

static snug_status leave(snug_status status) {
    if (watch.user) watch.leave(watch.user);
    return status;
}

/* ---- operations: each first to rank 0, then from it, so that no two ranks wait for each other
 * ------------------------ */

static snug_status run_all_gather(snug_context *ctx, char *values, const struct snug_shards *parts) {
    static const char what[] = "gathering of all ranks";
    const int64_t own = snug_shard_begin(parts, table.rank);
    if (table.rank > 0) {
        RETURN_IF_ERROR(give(ctx, what, 0, values + own, snug_shard_size(parts, table.rank)));
        return take(ctx, what, 0, values, parts->elements);
    }
    for (int r = 1; r < table.size; r++)
        RETURN_IF_ERROR(take(ctx, what, r, values + snug_shard_begin(parts, r), snug_shard_size(parts, r)));
    for (int r = 1; r < table.size; r++) RETURN_IF_ERROR(give(ctx, what, r, values, parts->elements));
    return SNUG_OK;
}

static snug_status all_gather(snug_context *ctx, void *values, const struct snug_shards *parts) {
    enter("a gathering of all ranks");
    return leave(run_all_gather(ctx, values, parts));
}

/* The bytes of a rank's part that an exchange sends, and where they are in `from` and among those of all ranks. */
struct piece {
    int64_t bytes, from, packed;
};

static struct piece piece_of(const struct snug_shards *parts, int rank, int64_t first, int64_t most) {
    struct piece p = {.bytes = snug_collective_part(parts, rank, first, most)};
    p.from = p.bytes ? snug_shard_begin(parts, rank) + first : 0;
    for (int r = 0; r < rank; r++) p.packed += snug_collective_part(parts, r, first, most);
    return p;
}

static int64_t sum_of(const struct snug_shards *parts, int64_t first, int64_t most) {
    int64_t sum = 0;
    for (int r = 0; r < table.size; r++) sum += snug_collective_part(parts, r, first, most);
    return sum;
}

/* Rank 0 holds the pieces of all ranks before it passes them on. all: [size, sum of the pieces] */
static snug_status pass_pieces(snug_context *ctx, const char *from, char *to, const struct snug_shards *parts,
                               int64_t first, int64_t most, char *all) {
    static const char what[] = "exchanging shards";
    const int64_t sum = sum_of(parts, first, most);
    for (int r = 1; r < table.size; r++) RETURN_IF_ERROR(take(ctx, what, r, all + r * sum, sum));
    for (int d = 0; d < table.size; d++) {
        const struct piece p = piece_of(parts, d, first, most);
        for (int r = 0; r < table.size; r++) {
            const char *piece = r == 0 ? from + p.from : all + r * sum + p.packed;
            if (d == 0)
                memcpy(to + r * p.bytes, piece, (size_t)p.bytes);
            else
                RETURN_IF_ERROR(give(ctx, what, d, piece, p.bytes));
        }
    }
    return SNUG_OK;
}

static snug_status run_exchange(snug_context *ctx, const char *from, char *to, const struct snug_shards *parts,
                                int64_t first, int64_t most) {
    static const char what[] = "exchanging shards";
    if (table.rank > 0) {
        for (int d = 0; d < table.size; d++) {
            const struct piece p = piece_of(parts, d, first, most);
            RETURN_IF_ERROR(give(ctx, what, 0, from + p.from, p.bytes));
        }
        return take(ctx, what, 0, to, table.size * piece_of(parts, table.rank, first, most).bytes);
    }
    void *all;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(table.size * sum_of(parts, first, most)) + 1, 1, &all));
    const snug_status status = pass_pieces(ctx, from, to, parts, first, most, all);
    free(all);
    return status;
}

static snug_status exchange(snug_context *ctx, const void *from, void *to, const struct snug_shards *parts,
                            int64_t first, int64_t most) {
    enter("an exchange of shards");
    return leave(run_exchange(ctx, from, to, parts, first, most));
}

static snug_status transfer(snug_context *ctx, void *values, int64_t bytes, int from, int to) {
    const int other = table.rank == from ? to : from;
    enter("a transfer");
    return leave(move(ctx, "a transfer", other, values, bytes, table.rank == from));
}

static snug_status run_broadcast(snug_context *ctx, void *values, int64_t bytes, int from) {
    static const char what[] = "a broadcast";
    if (table.rank > 0 && table.rank == from) return give(ctx, what, 0, values, bytes);
    if (table.rank > 0) return take(ctx, what, 0, values, bytes);
    if (from > 0) RETURN_IF_ERROR(take(ctx, what, from, values, bytes));
    for (int r = 1; r < table.size; r++)
        if (r != from) RETURN_IF_ERROR(give(ctx, what, r, values, bytes));
    return SNUG_OK;
}

static snug_status broadcast(snug_context *ctx, void *values, int64_t bytes, int from) {
    enter("a broadcast");
    return leave(run_broadcast(ctx, values, bytes, from));
}

static snug_status barrier(snug_context *ctx) {
    char reached = 0;
    enter("a barrier");
    for (int r = 1; r < table.size && table.rank == 0; r++) {
        const snug_status status = take(ctx, "a barrier", r, &reached, 1);
        if (status != SNUG_OK) return leave(status);
    }
    const snug_status status = table.rank > 0 ? give(ctx, "a barrier", 0, &reached, 1) : SNUG_OK;
    return leave(status == SNUG_OK ? run_broadcast(ctx, &reached, 1, 0) : status);
}

static void set_watch(const struct snug_collective_watch *given) {
    watch = given ? *given : (struct snug_collective_watch){0};
}

/* The watch tells the others, or their launcher ends them. */
static void abort_all(int code) { _exit(code); }

/* Without a context: a rank that has ended already is no failure any more, nor one that does not end. */
static void close_all(void) {
    enum { TICK = 50 }; /* milliseconds */
    char end = 0;
    const int peers = table.rank == 0 ? table.size : 1;
    const double until = snug_seconds() + patience;
    for (int i = table.rank == 0; i < peers; i++) shutdown(sockets[i], SHUT_WR);
    for (int i = table.rank == 0; i < peers; i++)
        while (recv(sockets[i], &end, 1, MSG_DONTWAIT) < 0 && (errno == EINTR || errno == EAGAIN) &&
               snug_seconds() < until)
            poll(&(struct pollfd){.fd = sockets[i], .events = POLLIN}, 1, TICK);
    snug_handshake_free(&connected, peers);
    sockets = NULL;
}

/* ---- connecting ----------------------------------------------------------------------------------------------------
 */

snug_status snug_tcp_open(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_rendezvous *at,
                          double timeout, const struct snug_collectives **out) {
    enum { LONGEST = 300 }; /* seconds: ranks that are missing after five minutes were not started */
    const int peers = ranks->rank == 0 ? ranks->size : 1;
    *out = NULL;
    const snug_status status = snug_handshake_run(ctx, ranks, at, timeout < LONGEST ? timeout : LONGEST, &connected);
    if (status != SNUG_OK) {
        snug_handshake_free(&connected, peers);
        return status;
    }
    sockets = connected.sockets;
    patience = timeout;
    for (int i = 0; i < peers; i++)
        if (sockets[i] >= 0) snug_watch_tune(sockets[i]);
    table = (struct snug_collectives){.name = "TCP",
                                      .rank = ranks->rank,
                                      .size = ranks->size,
                                      .local_rank = connected.local_rank,
                                      .local_size = connected.local_size,
                                      .exchange = exchange,
                                      .all_gather = all_gather,
                                      .transfer = transfer,
                                      .broadcast = broadcast,
                                      .barrier = barrier,
                                      .set_watch = set_watch,
                                      .abort = abort_all,
                                      .close = close_all};
    *out = &table;
    return SNUG_OK;
}
