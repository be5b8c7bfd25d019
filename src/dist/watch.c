/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dist/watch_net.h"

#define BEAT 0.5   /* seconds between two states */
#define GRACE 3.0  /* seconds in which the caller's thread must ask for a verdict */
#define TURN 3.0   /* seconds in which a launcher ends all ranks after the end of one */
#define ENDING 2.0 /* seconds in which the process must end */
#define QUIET 2.0  /* seconds without a state after which a rank may be stopped */
#define NOTICE                                                                                                         \
    30. /* seconds that a rank waits for a late one, at most half of the timeout, before a warning names it */

/* Connections that have not sent a valid message yet, and those of a rank at once, one of which it confirms. */
enum { STRANGERS = 32, CALLS = 2 };

/* A connection, at rank 0 to the rank of its place, at others to rank 0. */
struct peer {
    int fd;       /* -1: none */
    bool greeted; /* rank 0 has answered its hello; the next message confirms it */
    bool counted; /* it was confirmed: from here on its end is the end of the rank */
    bool left;    /* it ends by intention, or reports its own failure */
    bool failed;  /* the latter */
    double heard; /* when the last message came */
    struct snug_watch_message state, in;
    size_t received; /* bytes of in */
};

struct snug_watch {
    snug_context *ctx;
    struct snug_ranks ranks;
    double timeout;
    struct snug_watch_address address; /* of rank 0 */
    int listener, wake[2];
    struct peer *peers; /* [peer_count]: of rank 0, by rank; of others, rank 0 */
    int peer_count;
    struct peer *connections; /* of rank 0: [connection_count] not confirmed */
    int connection_count;
    struct pollfd *polled;
    double sent;
    const char *warned; /* the phase in which a warning has named a late rank; NULL: none */
    pthread_t thread;
    bool running;
    atomic_int counted; /* ranks that rank 0 watches */

    pthread_mutex_t lock; /* of the rest */
    int64_t step, entered;
    const char *phase, *operation;
    double since;                        /* of the operation that the caller waits in; 0: none */
    enum snug_watch_kind farewell, said; /* to be sent, and sent, to those that it is connected with */
    pthread_cond_t sent_it;
    atomic_int verdict;
    atomic_bool reported; /* by another rank, of its own failure */
    bool taken;
    double verdict_at, end_at;
    int end_code;
    char text[SNUG_RANK_MESSAGE];
};

/* ---- verdicts -------------------------------------------------------------------------------------------------- */

static void set_verdict(struct snug_watch *w, enum snug_watch_verdict verdict, const char *text) {
    pthread_mutex_lock(&w->lock);
    /* The first counts: later ones follow from it, or from this rank's own failure. */
    if (atomic_load(&w->verdict) == SNUG_WATCH_NONE && w->farewell == SNUG_WATCH_STATE) {
        snprintf(w->text, sizeof w->text, "%s", text);
        w->verdict_at = snug_seconds();
        atomic_store(&w->verdict, verdict);
    }
    pthread_mutex_unlock(&w->lock);
}

/* "rank 1 of 4 on HOST, step 7, in an evaluation". Ranks are at most a step apart, and states arrive late. */
static void name_rank(struct snug_watch *w, const struct snug_watch_message *state, char *text, size_t size) {
    char at[64] = "";
    pthread_mutex_lock(&w->lock);
    const bool late = state->step < w->step;
    const int64_t step = late ? w->step : state->step;
    const char *phase = late ? w->phase : state->phase;
    pthread_mutex_unlock(&w->lock);
    if (step >= 0) snprintf(at, sizeof at, ", step %lld", (long long)step);
    snprintf(text, size, "rank %d of %d on %s%s (%s)", (int)state->rank, w->ranks.size, state->host, at, phase);
}

/* except: the number of a peer, or -1. */
static void send_all(struct snug_watch *w, enum snug_watch_kind kind, int except);

/* Rank 0 reports what it finds. If it is lost itself, all others find it: rank 1 and the first ranks of other hosts
 * report it. */
static bool reports(const struct snug_watch *w) { return w->ranks.rank <= 1 || w->ranks.local_rank == 0; }

/* Tells those that it is connected with, too; a rank 0 that was stopped reads it when it runs again. */
static void report(struct snug_watch *w, const char *text) {
    set_verdict(w, reports(w) ? SNUG_WATCH_REPORT : SNUG_WATCH_SILENT, text);
    send_all(w, SNUG_WATCH_ENDED, -1);
}

/* error: of the connection; 0: the other side closed it. */
static void lose(struct snug_watch *w, struct peer *peer, int error) {
    char who[256], text[SNUG_RANK_MESSAGE];
    close(peer->fd);
    peer->fd = -1;
    name_rank(w, &peer->state, who, sizeof who);
    if (peer->failed && w->ranks.rank == 0) {
        snprintf(text, sizeof text, "%s has failed", who);
        set_verdict(w, SNUG_WATCH_SILENT, text);
        send_all(w, SNUG_WATCH_ENDED, -1);
    }
    if (peer->left) return;
    if (error == 0 || error == ECONNRESET || error == EPIPE)
        snprintf(text, sizeof text,
                 "%s: its process has ended without a message: it was killed (by the kernel, if memory was short: see "
                 "dmesg), or it crashed",
                 who);
    else
        snprintf(text, sizeof text, "%s: its host does not answer (%s): the host or the network is down", who,
                 strerror(error));
    report(w, text);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static struct snug_watch_message own_message(struct snug_watch *w, enum snug_watch_kind kind) {
    struct snug_watch_message m = {.magic = SNUG_WATCH_MAGIC, .kind = kind, .rank = w->ranks.rank};
    memcpy(m.token, w->address.token, sizeof m.token);
    snprintf(m.host, sizeof m.host, "%s", w->ranks.host);
    pthread_mutex_lock(&w->lock);
    m.step = w->step;
    m.entered = w->entered;
    m.waited = w->since > 0 ? snug_seconds() - w->since : -1;
    snprintf(m.phase, sizeof m.phase, "%s", w->phase);
    snprintf(m.operation, sizeof m.operation, "%s", w->operation);
    snprintf(m.text, sizeof m.text, "%s", w->text);
    pthread_mutex_unlock(&w->lock);
    return m;
}

static void send_all(struct snug_watch *w, enum snug_watch_kind kind, int except) {
    const struct snug_watch_message m = own_message(w, kind);
    for (int i = 0; i < w->peer_count; i++) {
        struct peer *peer = &w->peers[i];
        if (peer->fd < 0 || i == except) continue;
        const int error = snug_watch_send(peer->fd, &m);
        if (error) lose(w, peer, error);
    }
}

static void take_message(struct snug_watch *w, struct peer *peer) {
    const struct snug_watch_message *m = &peer->in;
    peer->heard = snug_seconds();
    switch ((enum snug_watch_kind)m->kind) {
    case SNUG_WATCH_STATE: peer->state = *m; break;
    case SNUG_WATCH_BYE: peer->left = true; break;
    case SNUG_WATCH_FAILS:
        peer->left = peer->failed = true;
        if (w->ranks.rank != 0) set_verdict(w, SNUG_WATCH_SILENT, "rank 0 has failed");
        /* Often several ranks fail with the same error. The first one reports it, and rank 0 tells the others. */
        if (!atomic_exchange(&w->reported, true) && w->ranks.rank == 0)
            send_all(w, SNUG_WATCH_REPORTED, (int)(peer - w->peers));
        break;
    case SNUG_WATCH_REPORTED: atomic_store(&w->reported, true); break;
    case SNUG_WATCH_ENDED:
        peer->left = true;
        set_verdict(w, SNUG_WATCH_SILENT, m->text);
        break;
    case SNUG_WATCH_HELLO: break;
    }
}

/* Whether a whole message is in peer->in. *error: of the connection; -1 for its end. */
static bool receive(struct snug_watch *w, struct peer *peer, int *error) {
    *error = 0;
    const ssize_t n =
        recv(peer->fd, (char *)&peer->in + peer->received, sizeof peer->in - peer->received, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) *error = errno;
    if (n == 0) *error = -1;
    if (n <= 0) return false;
    peer->received += (size_t)n;
    if (peer->received < sizeof peer->in) return false;
    peer->received = 0;
    if (snug_watch_is_valid(&peer->in, &w->address)) return true;
    *error = -1;
    return false;
}

static void read_peer(struct snug_watch *w, struct peer *peer) {
    int error;
    while (peer->fd >= 0 && receive(w, peer, &error)) take_message(w, peer);
    if (peer->fd >= 0 && error) lose(w, peer, error < 0 ? 0 : error);
}

/* ---- rank 0: connecting ----------------------------------------------------------------------------------------- */

static void drop(struct peer *connection) {
    if (connection->fd >= 0) close(connection->fd);
    connection->fd = -1;
}

/* The rank of a connection's message, if that connection may be the one by which rank 0 watches it; 0: it may not. */
static int64_t rank_of(const struct snug_watch *w, const struct peer *connection) {
    const int64_t rank = connection->in.rank;
    return rank > 0 && rank < w->ranks.size && !w->peers[rank].counted ? rank : 0;
}

/* Both sides know of the connection. */
static void count_rank(struct snug_watch *w, struct peer *connection, int64_t rank) {
    struct peer *peer = &w->peers[rank];
    *peer = *connection;
    connection->fd = -1;
    peer->state = peer->in;
    peer->counted = true;
    take_message(w, peer);
    atomic_fetch_add(&w->counted, 1);
}

/* A new connection with the right token is answered; others are dropped. A rank gives up a connection whose answer it
 * did not wait for, and a dead one must not be taken for the rank: so it counts from its next message on. */
static void read_connection(struct snug_watch *w, struct peer *connection, double now) {
    int error;
    const bool whole = receive(w, connection, &error);
    const int64_t rank = whole ? rank_of(w, connection) : 0;
    if (rank && connection->greeted) {
        count_rank(w, connection, rank);
    } else if (rank) {
        const struct snug_watch_message hello = own_message(w, SNUG_WATCH_HELLO);
        connection->greeted = true;
        snug_watch_tune(connection->fd);
        if (snug_watch_send(connection->fd, &hello)) drop(connection);
    } else if (whole || error || (!connection->greeted && now - connection->heard > QUIET)) {
        drop(connection);
    }
}

/* A free place, or that of the connection that has said nothing for the longest time; NULL: all are of ranks, which
 * confirm or close them soon. */
static struct peer *find_place(struct snug_watch *w) {
    struct peer *place = NULL;
    for (int i = 0; i < w->connection_count; i++) {
        struct peer *at = &w->connections[i];
        if (at->fd < 0) return at;
        if (!at->greeted && (!place || at->heard < place->heard)) place = at;
    }
    return place;
}

/* A new connection is read at once, before others could take its place. */
static void accept_connections(struct snug_watch *w, double now) {
    for (int i = 0; i < STRANGERS; i++) { /* of a flood no more */
        struct peer *place = find_place(w);
        const int fd = place ? accept4(w->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (fd < 0) return;
        drop(place);
        *place = (struct peer){.fd = fd, .heard = now};
        read_connection(w, place, now);
    }
}

/* ---- late ranks -------------------------------------------------------------------------------------------------- */

static void describe_late(struct snug_watch *w, const struct peer *late, const struct snug_watch_message *waits,
                          double now, bool warns, char *text, size_t size) {
    char who[256], quiet[96] = "";
    name_rank(w, &late->state, who, sizeof who);
    if (now - late->heard > QUIET)
        snprintf(quiet, sizeof quiet, "; its process has not run for %.0f s: was it stopped, or does its host swap?",
                 now - late->heard);
    snprintf(text, size, "%s: it has not %s %s, in which rank %d waits for %.0f s%s --ddp_timeout %g%s", who,
             late->state.entered < waits->entered ? "reached" : "completed", waits->operation, (int)waits->rank,
             waits->waited, warns ? "; the run ends after" : ": more than", w->timeout, quiet);
}

/* Score of a rank as the likely cause: 3, it sends no states; 2, it does not wait for others itself; 1, it waits in an
   earlier operation; 0, it is not the cause. */
static int blame(const struct peer *peer, const struct snug_watch_message *waits, double now) {
    if (now - peer->heard > QUIET) return 3;
    if (peer->state.entered >= waits->entered) return 0;
    return peer->state.waited < 0 ? 2 : 1;
}

/* Rank 0 knows all states: the latest operation in which a rank waits for longer than this; NULL: none. */
static const struct snug_watch_message *find_waiting(const struct snug_watch *w, double now, double seconds) {
    const struct snug_watch_message *waits = NULL;
    for (int r = 0; r < w->peer_count; r++) {
        const struct peer *peer = &w->peers[r];
        if (peer->left || (r > 0 && peer->fd < 0)) continue;
        const double waited = peer->state.waited + (r > 0 ? now - peer->heard : 0);
        if (peer->state.waited >= 0 && waited > seconds && (!waits || peer->state.entered > waits->entered))
            waits = &peer->state;
    }
    return waits;
}

/* The rank for which it waits; NULL: all have reached the operation. */
static const struct peer *find_cause(const struct snug_watch *w, const struct snug_watch_message *waits, double now) {
    const struct peer *late = NULL;
    for (int r = 0; r < w->peer_count; r++) {
        const struct peer *peer = &w->peers[r];
        if (peer->left || (r > 0 && peer->fd < 0)) continue;
        if (blame(peer, waits, now) > (late ? blame(late, waits, now) : 0)) late = peer;
    }
    return late;
}

/* Long before the timeout, and once in a phase: the rank may only be slow. */
static void warn_of_late(struct snug_watch *w, double now) {
    char text[SNUG_RANK_MESSAGE];
    const struct snug_watch_message *waits = find_waiting(w, now, w->timeout < 2 * NOTICE ? w->timeout / 2 : NOTICE);
    const struct peer *late = waits ? find_cause(w, waits, now) : NULL;
    pthread_mutex_lock(&w->lock);
    const char *phase = w->phase;
    pthread_mutex_unlock(&w->lock);
    if (!late || w->warned == phase) return;
    w->warned = phase;
    describe_late(w, late, waits, now, true, text, sizeof text);
    snug_log(w->ctx, SNUG_LOG_WARNING, "%s", text);
}

/* A process that sends no states does not run, whatever the others do meanwhile: they may be in a long computation, or
 * in a library's call that does not return. */
static bool report_silent(struct snug_watch *w, const struct peer *peer, double now) {
    char text[SNUG_RANK_MESSAGE], who[256];
    const double silent = now - peer->heard;
    if (peer->left || peer->fd < 0 || silent <= w->timeout + QUIET) return false;
    name_rank(w, &peer->state, who, sizeof who);
    snprintf(text, sizeof text,
             "%s: its process has not run for %.0f s, more than --ddp_timeout %g: was it stopped, or does its host "
             "swap?",
             who, silent, w->timeout);
    report(w, text);
    return true;
}

static void find_late(struct snug_watch *w, double now) {
    char text[SNUG_RANK_MESSAGE], who[256];
    w->peers[0] = (struct peer){.fd = -1, .state = own_message(w, SNUG_WATCH_STATE), .heard = now};
    const struct snug_watch_message *waits = find_waiting(w, now, w->timeout);
    if (!waits) {
        for (int r = 1; r < w->peer_count; r++)
            if (report_silent(w, &w->peers[r], now)) return;
        warn_of_late(w, now);
        return;
    }
    const struct peer *late = find_cause(w, waits, now);
    if (late) {
        describe_late(w, late, waits, now, false, text, sizeof text);
        report(w, text);
        return;
    }
    name_rank(w, waits, who, sizeof who);
    snprintf(text, sizeof text,
             "%s: %s has not ended within --ddp_timeout %g, although all ranks have reached it: the network between "
             "the hosts, or a rank that has just been stopped",
             who, waits->operation, w->timeout);
    report(w, text);
}

/* Others leave this to rank 0, unless it has stopped. */
static void find_stopped_leader(struct snug_watch *w, double now) {
    char text[SNUG_RANK_MESSAGE];
    const struct snug_watch_message own = own_message(w, SNUG_WATCH_STATE);
    const struct peer *leader = &w->peers[0];
    if (report_silent(w, leader, now)) return;
    if (leader->left || own.waited <= w->timeout || now - leader->heard <= QUIET) return;
    describe_late(w, leader, &own, now, false, text, sizeof text);
    report(w, text);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* The caller's thread may be in a long computation, or in a library's call that does not return. */
static void end_process(struct snug_watch *w, double now) {
    pthread_mutex_lock(&w->lock);
    const enum snug_watch_verdict verdict = (enum snug_watch_verdict)atomic_load(&w->verdict);
    /* A rank that reports nothing ends after the one that does: a launcher may end all ranks when the first one ends.
     */
    const double patience = GRACE + (verdict == SNUG_WATCH_REPORT ? snug_watch_turn(w) : 1);
    const bool ignored = verdict != SNUG_WATCH_NONE && !w->taken && now > w->verdict_at + patience;
    const bool stuck = w->end_at > 0 && now > w->end_at;
    const int code = stuck ? w->end_code : 1;
    pthread_mutex_unlock(&w->lock);
    if (!ignored && !stuck) return;
    if (ignored && verdict == SNUG_WATCH_REPORT) snug_log(w->ctx, SNUG_LOG_ERROR, "%s", w->text);
    _exit(code);
}

static void listen_for(struct snug_watch *w, nfds_t *count, int fd) {
    /* poll() takes no more than there may be open files */
    if (fd >= 0) w->polled[(*count)++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void await_events(struct snug_watch *w) {
    nfds_t count = 0;
    listen_for(w, &count, w->wake[0]);
    if (find_place(w)) listen_for(w, &count, w->listener);
    for (int i = 0; i < w->peer_count; i++) listen_for(w, &count, w->peers[i].fd);
    for (int i = 0; i < w->connection_count; i++) listen_for(w, &count, w->connections[i].fd);
    poll(w->polled, count, 200);
    char waste[16];
    while (read(w->wake[0], waste, sizeof waste) > 0) continue;
}

static void note_sent(struct snug_watch *w, enum snug_watch_kind kind) {
    pthread_mutex_lock(&w->lock);
    w->said = kind;
    pthread_cond_signal(&w->sent_it);
    pthread_mutex_unlock(&w->lock);
}

static void *watch_ranks(void *argument) {
    struct snug_watch *w = argument;
    for (enum snug_watch_kind said = SNUG_WATCH_STATE; said != SNUG_WATCH_BYE;) {
        await_events(w);
        const double now = snug_seconds();
        if (w->listener >= 0) accept_connections(w, now);
        for (int i = 0; i < w->connection_count; i++)
            if (w->connections[i].fd >= 0) read_connection(w, &w->connections[i], now);
        for (int i = 0; i < w->peer_count; i++) read_peer(w, &w->peers[i]);
        pthread_mutex_lock(&w->lock);
        const enum snug_watch_kind farewell = w->farewell;
        pthread_mutex_unlock(&w->lock);
        if (farewell != said) {
            send_all(w, said = farewell, -1);
            note_sent(w, said);
        }
        if (now - w->sent >= BEAT && said == SNUG_WATCH_STATE) {
            w->sent = now;
            send_all(w, SNUG_WATCH_STATE, -1);
        }
        if (said == SNUG_WATCH_STATE && atomic_load(&w->verdict) == SNUG_WATCH_NONE)
            (w->ranks.rank == 0 ? find_late : find_stopped_leader)(w, now);
        end_process(w, now);
    }
    return NULL;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static snug_status allocate(snug_context *ctx, const struct snug_ranks *ranks, double timeout,
                            struct snug_watch **out) {
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &memory));
    struct snug_watch *w = *out = memory;
    *w = (struct snug_watch){.ctx = ctx,
                             .ranks = *ranks,
                             .timeout = timeout,
                             .listener = -1,
                             .wake = {-1, -1},
                             .step = -1,
                             .phase = "at the start",
                             .operation = "",
                             .farewell = SNUG_WATCH_STATE,
                             .said = SNUG_WATCH_STATE};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->sent_it, NULL);
    const int count = ranks->rank == 0 ? ranks->size : 1;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)count, sizeof *w->peers, (void **)&w->peers));
    w->peer_count = count;
    for (int i = 0; i < count; i++) w->peers[i].fd = -1;
    const int connections = ranks->rank == 0 ? STRANGERS + CALLS * ranks->size : 0;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)connections, sizeof *w->connections, (void **)&w->connections));
    w->connection_count = connections;
    for (int i = 0; i < connections; i++) w->connections[i].fd = -1;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(count + connections) + 2, sizeof *w->polled, (void **)&w->polled));
    if (pipe2(w->wake, O_CLOEXEC | O_NONBLOCK))
        return snug_fail(ctx, SNUG_E_IO, "the connections between ranks: %s", strerror(errno));
    return SNUG_OK;
}

/* The thread takes no signals: they are the program's. */
static snug_status start_thread(struct snug_watch *w) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(&w->thread, NULL, watch_ranks, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    w->running = !error;
    if (!error) return SNUG_OK;
    return snug_fail(w->ctx, SNUG_E_MEMORY, "the thread that watches the ranks cannot be started: %s", strerror(error));
}

/* A rank other than 0, in its own thread: afterwards the state of rank 0 is known. */
static void connect_leader(struct snug_watch *w) {
    struct peer *leader = &w->peers[0];
    const struct snug_watch_message hello = own_message(w, SNUG_WATCH_HELLO);
    leader->fd = snug_watch_connect(&w->address, w->ranks.host, &hello, &leader->state);
    leader->heard = snug_seconds();
}

/* Waits until rank 0's thread watches those that are connected, whose confirmations are on their way. */
static void await_counted(struct snug_watch *w, const char *connected) {
    enum { MILLISECOND = 1000000 };
    const double until = snug_seconds() + QUIET;
    int expected = 0;
    for (int r = 1; r < w->ranks.size; r++) expected += connected[r];
    while (atomic_load(&w->counted) < expected && snug_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = MILLISECOND}, NULL);
}

static void name_unconnected(struct snug_watch *w, const char *connected) {
    for (int r = 1; r < w->ranks.size; r++)
        if (!connected[r])
            snug_log(w->ctx, SNUG_LOG_WARNING,
                     "rank %d cannot connect to rank 0 on %s through TCP: is there a firewall? If it dies or hangs, "
                     "only MPI's launcher reports it",
                     r, w->ranks.host);
}

static snug_status connect_ranks(struct snug_watch *w, const struct snug_collectives *c) {
    const int size = w->ranks.size;
    void *memory;
    if (w->ranks.rank == 0) w->listener = snug_watch_listen(&w->address, w->ranks.host);
    if (w->ranks.rank == 0) RETURN_IF_ERROR(start_thread(w));
    RETURN_IF_ERROR(c->broadcast(w->ctx, &w->address, sizeof w->address, 0));
    if (w->ranks.rank != 0) connect_leader(w);
    if (w->ranks.rank != 0 && w->peers[0].fd >= 0) RETURN_IF_ERROR(start_thread(w));
    RETURN_IF_ERROR(snug_alloc(w->ctx, (size_t)size, 1, &memory));
    char *connected = memory;
    connected[w->ranks.rank] = w->running;
    const snug_status status = snug_all_gather_equal(w->ctx, c, connected, sizeof *connected);
    if (status == SNUG_OK && w->ranks.rank == 0) {
        name_unconnected(w, connected);
        await_counted(w, connected);
    }
    free(memory);
    return status;
}

snug_status snug_watch_open(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_collectives *c,
                            double timeout, struct snug_watch **out) {
    snug_status status = allocate(ctx, ranks, timeout, out);
    if (status == SNUG_OK) status = connect_ranks(*out, c);
    if (status == SNUG_OK) return SNUG_OK;
    snug_watch_close(*out);
    *out = NULL;
    return status;
}

static void say(struct snug_watch *w, enum snug_watch_kind kind) {
    pthread_mutex_lock(&w->lock);
    w->farewell = kind;
    pthread_mutex_unlock(&w->lock);
    while (w->wake[1] >= 0 && write(w->wake[1], "", 1) < 0 && errno == EINTR) continue;
}

void snug_watch_close(struct snug_watch *w) {
    if (!w) return;
    say(w, SNUG_WATCH_BYE);
    if (w->running) pthread_join(w->thread, NULL);
    for (int i = 0; i < w->peer_count; i++)
        if (w->peers[i].fd >= 0) close(w->peers[i].fd);
    for (int i = 0; i < w->connection_count; i++) drop(&w->connections[i]);
    for (int i = 0; i < 2; i++)
        if (w->wake[i] >= 0) close(w->wake[i]);
    if (w->listener >= 0) close(w->listener);
    pthread_cond_destroy(&w->sent_it);
    pthread_mutex_destroy(&w->lock);
    free(w->polled);
    free(w->connections);
    free(w->peers);
    free(w);
}

/* ---- the caller's thread ----------------------------------------------------------------------------------------- */

void snug_watch_at(struct snug_watch *w, int64_t step, const char *phase) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->step = step;
    w->phase = phase;
    pthread_mutex_unlock(&w->lock);
}

static void begin_to_wait(struct snug_watch *w, const char *what, bool counts) {
    pthread_mutex_lock(&w->lock);
    w->entered += counts;
    w->operation = what;
    w->since = snug_seconds();
    pthread_mutex_unlock(&w->lock);
}

void snug_watch_enter(void *watch, const char *operation) { begin_to_wait(watch, operation, true); }

void snug_watch_wait(struct snug_watch *w, const char *what) { begin_to_wait(w, what, false); }

void snug_watch_leave(void *watch) {
    struct snug_watch *w = watch;
    pthread_mutex_lock(&w->lock);
    w->since = 0;
    pthread_mutex_unlock(&w->lock);
}

enum snug_watch_verdict snug_watch_verdict(struct snug_watch *w, char text[SNUG_RANK_MESSAGE]) {
    *text = '\0';
    if (!w) return SNUG_WATCH_NONE;
    pthread_mutex_lock(&w->lock);
    const enum snug_watch_verdict verdict = (enum snug_watch_verdict)atomic_load(&w->verdict);
    w->taken |= verdict != SNUG_WATCH_NONE;
    memcpy(text, w->text, sizeof w->text);
    pthread_mutex_unlock(&w->lock);
    return verdict;
}

double snug_watch_turn(const struct snug_watch *w) {
    enum { TURNS = 2 };
    const int before = w->ranks.rank - 1; /* ranks that have their turn first */
    return before <= 0 ? 0 : TURN * (before < TURNS ? before : TURNS);
}

bool snug_watch_is_reported(struct snug_watch *w) { return atomic_load(&w->reported); }

snug_status snug_watch_poll(void *watch, snug_context *ctx) {
    struct snug_watch *w = watch;
    char text[SNUG_RANK_MESSAGE];
    if (atomic_load(&w->verdict) == SNUG_WATCH_NONE) return SNUG_OK;
    snug_watch_verdict(w, text);
    return snug_fail(ctx, SNUG_E_IO, "%s", text);
}

/* Others would take the end of a process that has not said this for a crash. */
void snug_watch_fail(struct snug_watch *w) {
    enum { MOST = 2 }; /* seconds */
    struct timespec end;
    if (!w) return;
    say(w, SNUG_WATCH_FAILS);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += MOST;
    pthread_mutex_lock(&w->lock);
    while (w->running && w->said == SNUG_WATCH_STATE)
        if (pthread_cond_timedwait(&w->sent_it, &w->lock, &end)) break;
    pthread_mutex_unlock(&w->lock);
}

void snug_watch_end(struct snug_watch *w, int code) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->end_at = snug_seconds() + ENDING;
    w->end_code = code;
    pthread_mutex_unlock(&w->lock);
}
