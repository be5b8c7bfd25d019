/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dist/watch_net.h"

/* The first message of a rank, and rank 0's answer. */
struct hello {
    char magic[8];
    uint64_t key;
    int32_t rank, size;
};
static const char magic[8] = "snugTCP1";

/* A process is one rank of one run, so the state belongs to the process, as that of MPI. */
static struct snug_collectives table;
static int *sockets; /* of rank 0: [size], by rank; of others: [1], to rank 0 */
static struct snug_collective_watch watch;

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Another rank's end may be the reason, which the watch knows a moment later. */
static snug_status fail(snug_context *ctx, const char *what, int other, const char *why) {
    enum { TRIES = 200, CENTISECOND = 10000000 };
    /* may be untested: depends on what breaks first */
    for (int i = 0; i < TRIES && watch.user; i++) {
        RETURN_IF_ERROR(watch.poll(watch.user, ctx));
        nanosleep(&(struct timespec){.tv_nsec = CENTISECOND}, NULL);
    }
    return snug_fail(ctx, SNUG_E_IO, "%s: the connection to rank %d: %s", what, other, why);
}

/* Sends or receives all bytes; other: the rank at the other end. */
static snug_status move(snug_context *ctx, const char *what, int other, void *data, int64_t bytes, bool sends) {
    enum { PATIENCE = 50 }; /* milliseconds */
    const int fd = sockets[table.rank == 0 ? other : 0];
    for (int64_t done = 0; done < bytes;) {
        char *at = (char *)data + done;
        const size_t left = (size_t)(bytes - done);
        const ssize_t n = sends ? send(fd, at, left, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(fd, at, left, MSG_DONTWAIT);
        if (n > 0) {
            done += n;
            continue;
        }
        if (n == 0) return fail(ctx, what, other, "it was closed"); /* may be untested: as there */
        /* may be untested: depends on timing */
        if (errno != EAGAIN && errno != EINTR) return fail(ctx, what, other, strerror(errno));
        struct pollfd ready = {.fd = fd, .events = sends ? POLLOUT : POLLIN}; /* may be untested: depends on timing */
        /* The rank at the other end may have sent the rest, and ended. */
        /* may be untested: depends on timing */
        if (poll(&ready, 1, PATIENCE) <= 0 && watch.user) RETURN_IF_ERROR(watch.poll(watch.user, ctx));
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
/* may be untested: a rank that is ended records nothing */
static void abort_all(int code) { _exit(code); }

static void drop_all(void) {
    /* may be untested: the ranks could not meet */
    for (int i = 0; sockets && i < (table.rank == 0 ? table.size : 1); i++)
        if (sockets[i] >= 0) close(sockets[i]); /* may be untested: depends on when a rank is missing */
    free(sockets);
    sockets = NULL;
}

/* Without a context: a rank that has ended already is no failure any more. */
static void close_all(void) {
    char end = 0;
    const int peers = table.rank == 0 ? table.size : 1;
    for (int i = table.rank == 0; i < peers; i++) shutdown(sockets[i], SHUT_WR);
    /* may be untested: depends on timing */
    for (int i = table.rank == 0; i < peers; i++)
        while (recv(sockets[i], &end, 1, 0) < 0 && (errno == EINTR || errno == EAGAIN))
            poll(&(struct pollfd){.fd = sockets[i], .events = POLLIN}, 1, -1);
    drop_all();
}

/* ---- connecting ----------------------------------------------------------------------------------------------------
 */

static struct hello own_hello(const struct snug_rendezvous *at) {
    struct hello h = {.key = at->key, .rank = table.rank, .size = table.size};
    memcpy(h.magic, magic, sizeof h.magic);
    return h;
}

/* A whole message within a second: those of other programs are shorter, or never come. */
static bool receive_hello(int fd, struct hello *out, const struct snug_rendezvous *at) {
    const struct timeval second = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    /* may be untested: another program at this port */
    return recv(fd, out, sizeof *out, MSG_WAITALL) == (ssize_t)sizeof *out &&
           memcmp(out->magic, magic, sizeof magic) == 0 && out->key == at->key && out->size == table.size;
}

static snug_status resolve(snug_context *ctx, const struct snug_rendezvous *at, struct addrinfo **out) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const int error = getaddrinfo(at->host, NULL, &hints, out);
    if (!error) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_IO,
                     "the host of rank 0, %s, cannot be found: %s; set MASTER_ADDR to its name or address", at->host,
                     gai_strerror(error));
}

static void set_port(struct addrinfo *address, int port) {
    /* may be untested: depends on the machine's addresses */
    if (address->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address->ai_addr)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)address->ai_addr)->sin_port = htons((uint16_t)port);
}

/* On the loopback interface alone if all ranks use it. The name of a host may be a loopback address on that host only:
   then on all interfaces. */
static snug_status resolve_listener(snug_context *ctx, const struct snug_rendezvous *at, struct addrinfo **out) {
    const struct addrinfo any = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const char *host = at->host;
    /* may be untested: the tests give 127.0.0.1 and a name */
    if (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0)
        return resolve(ctx, at, out);
    /* untested: a machine without a network */
    if (getaddrinfo(NULL, "0", &any, out) == 0) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_IO, "rank 0 cannot listen: this host has no network");
}

static int listen_at(struct addrinfo *list, const struct snug_rendezvous *at) {
    const int yes = 1;
    for (int port = at->first; port < at->first + at->count; port++)
        for (struct addrinfo *a = list; a; a = a->ai_next) {
            const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            set_port(a, port);
            if (fd < 0) continue; /* untested: a machine without the family */
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
            /* may be untested: a port that is free and cannot be listened at */
            if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, table.size) == 0) return fd;
            close(fd);
        }
    return -1;
}

/* Lets in the rank that says hello, if it is one of this run. */
static bool let_in(int fd, const struct snug_rendezvous *at) {
    struct hello h;
    const struct hello own = own_hello(at);
    /* may be untested: another program at this port, or a rank that is gone at once */
    if (!receive_hello(fd, &h, at) || h.rank < 1 || h.rank >= table.size || sockets[h.rank] >= 0 ||
        send(fd, &own, sizeof own, MSG_NOSIGNAL) != (ssize_t)sizeof own)
        return false;
    sockets[h.rank] = fd;
    return true;
}

static snug_status accept_ranks(snug_context *ctx, int listener, const struct snug_rendezvous *at, double until) {
    for (int missing = table.size - 1; missing > 0;) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        if (snug_seconds() > until) {
            int first = 1;
            while (sockets[first] >= 0) first++; /* may be untested: which rank is missing */
            return snug_fail(ctx, SNUG_E_IO,
                             "%d of %d ranks have not connected to rank 0 at %s, the first of them rank %d: were they "
                             "started, and is there a firewall?",
                             missing, table.size, at->host, first);
        }
        if (poll(&ready, 1, 100) <= 0) continue; /* may be untested: depends on timing */
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue; /* untested: a connection that is gone */
        if (let_in(fd, at))
            missing--;
        else
            close(fd);
    }
    return SNUG_OK;
}

static snug_status lead(snug_context *ctx, struct addrinfo *list, const struct snug_rendezvous *at, double until) {
    const int listener = listen_at(list, at);
    if (listener < 0)
        return snug_fail(ctx, SNUG_E_IO,
                         "rank 0 cannot listen on %s, ports %d to %d: %s; set MASTER_ADDR to an address of "
                         "this host, and MASTER_PORT to a free port",
                         at->host, at->first, at->first + at->count - 1, strerror(errno));
    const snug_status status = accept_ranks(ctx, listener, at, until);
    close(listener);
    return status;
}

/* Tries a port; the socket, or -1. */
static int try_port(struct addrinfo *a, int port, const struct snug_rendezvous *at) {
    const struct hello own = own_hello(at);
    const struct timeval patience = {.tv_sec = 2};
    struct hello answer;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1; /* untested: a machine without the family */
    set_port(a, port);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* also of connect() */
    /* may be untested: depends on timing */
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        send(fd, &own, sizeof own, MSG_NOSIGNAL) == (ssize_t)sizeof own && receive_hello(fd, &answer, at))
        return fd;
    close(fd);
    return -1;
}

static snug_status follow(snug_context *ctx, struct addrinfo *list, const struct snug_rendezvous *at, double until) {
    enum { PAUSE = 50000000 };
    do {
        for (int port = at->first; port < at->first + at->count; port++)
            for (struct addrinfo *a = list; a && sockets[0] < 0; a = a->ai_next) sockets[0] = try_port(a, port, at);
        if (sockets[0] >= 0) return SNUG_OK;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    } while (snug_seconds() < until);
    return snug_fail(ctx, SNUG_E_IO,
                     "rank %d cannot connect to rank 0 at %s, ports %d to %d: was it started, and is there a firewall?",
                     table.rank, at->host, at->first, at->first + at->count - 1);
}

/* Ranks of this host, by its name. */
static snug_status find_local(snug_context *ctx, const struct snug_ranks *ranks) {
    void *memory;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)table.size, SNUG_HOST_NAME, &memory));
    char(*hosts)[SNUG_HOST_NAME] = memory;
    memcpy(hosts[table.rank], ranks->host, SNUG_HOST_NAME);
    const snug_status status = snug_all_gather_equal(ctx, &table, hosts, SNUG_HOST_NAME);
    for (int r = 0; r < table.size && status == SNUG_OK; r++) {
        const bool here = strncmp(hosts[r], ranks->host, SNUG_HOST_NAME) == 0;
        table.local_size += here;
        table.local_rank += here && r < table.rank;
    }
    free(memory);
    return status;
}

static snug_status connect_all(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_rendezvous *at,
                               double timeout) {
    struct addrinfo *list = NULL;
    const int count = table.rank == 0 ? table.size : 1;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)count, sizeof *sockets, (void **)&sockets));
    for (int i = 0; i < count; i++) sockets[i] = -1;
    RETURN_IF_ERROR((table.rank == 0 ? resolve_listener : resolve)(ctx, at, &list));
    const snug_status status = (table.rank == 0 ? lead : follow)(ctx, list, at, snug_seconds() + timeout);
    freeaddrinfo(list);
    if (status != SNUG_OK) return status;
    for (int i = 0; i < count; i++)
        if (sockets[i] >= 0) snug_watch_tune(sockets[i]);
    return find_local(ctx, ranks);
}

snug_status snug_tcp_open(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_rendezvous *at,
                          double timeout, const struct snug_collectives **out) {
    *out = NULL;
    table = (struct snug_collectives){.name = "TCP",
                                      .rank = ranks->rank,
                                      .size = ranks->size,
                                      .exchange = exchange,
                                      .all_gather = all_gather,
                                      .transfer = transfer,
                                      .broadcast = broadcast,
                                      .barrier = barrier,
                                      .set_watch = set_watch,
                                      .abort = abort_all,
                                      .close = close_all};
    const snug_status status = connect_all(ctx, ranks, at, timeout);
    if (status != SNUG_OK)
        drop_all();
    else
        *out = &table;
    return status;
}
