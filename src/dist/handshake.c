/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/handshake.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/dial.h"
#include "dist/watch_net.h"
#include "io/file.h"

enum {
    STRANGERS = 64, /* connections that have not said hello yet */
    CALLS = 4,      /* of a rank at once: the addresses of a host */
    WAITING = 4096, /* connections that have not been accepted yet; the kernel lowers it */
    TICK = 50,      /* milliseconds */
};
static const double hello_seconds = 3;  /* in which a connection must say hello: a rank sends it at once */
static const double taken_seconds = 3;  /* in which another process must give up this one's rank: it may just end */
static const double refuse_seconds = 2; /* in which a run that cannot begin says so to ranks that start later */
static const double told_seconds = 0.2; /* the same, if all have been told: they read it before the connection ends */
static const double stagger = 0.05; /* between the first calls of two addresses: the first one is nearly always right */

/* A connection to rank 0 that is not confirmed. A rank may have several, for an address each, and confirms one. */
struct caller {
    int fd; /* -1: none */
    double since;
    bool welcomed;
    size_t received; /* bytes of in */
    struct snug_handshake_message in;
};

/* What rank 0 knows of another rank, which has confirmed its connection. */
struct seat {
    int fd; /* -1: it is missing */
    bool started;
    bool contested; /* another process claims it, too, and that was logged */
    uint64_t process;
    int32_t pid, attempt;
    char host[SNUG_HOST_NAME];
};

struct handshake {
    snug_context *ctx;
    const struct snug_ranks *ranks;
    const struct snug_rendezvous *at;
    struct snug_handshake *out;
    struct snug_handshake_message hello; /* this process's */
    double seconds, until;
    struct snug_dial *dials; /* [dial_count] each address with each port */
    struct snug_handshake_message *answers;
    size_t dial_count;
    struct pollfd *polled;
    bool other_run; /* rank 0 of another run has answered */

    /* rank 0 */
    int listener; /* -1: none */
    struct caller *callers;
    int caller_count;
    struct seat *seats; /* [size] */
    bool reached_self;
    char refusal[SNUG_RANK_MESSAGE]; /* "": the run may begin */
    int told, to_tell;               /* processes that know or should know the refusal */

    /* other ranks */
    struct snug_dial *leader; /* of dials: it has said welcome; NULL: none */
    double taken_since;       /* 0: not taken */
};

/* ---- messages ------------------------------------------------------------------------------------------------------
 */

static bool is_ours(const struct snug_handshake_message *in) {
    return memcmp(in->magic, SNUG_HANDSHAKE_MAGIC, sizeof in->magic) == 0 && memchr(in->host, 0, sizeof in->host) &&
           memchr(in->text, 0, sizeof in->text);
}

static struct snug_handshake_message message_of(const struct handshake *h, enum snug_handshake_kind kind,
                                                const char *text) {
    struct snug_handshake_message out = h->hello;
    out.kind = kind;
    snprintf(out.text, sizeof out.text, "%s", text);
    return out;
}

/* A message fits the buffer of a connection that has sent hardly anything. */
static bool send_message(int fd, const struct snug_handshake_message *out) {
    return send(fd, out, sizeof *out, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *out;
}

enum received { WAITS, WHOLE, ENDED };

/* Ends a connection that sends anything else. */
static enum received receive(struct caller *from) {
    struct snug_handshake_message *in = &from->in;
    const ssize_t n = recv(from->fd, (char *)in + from->received, sizeof *in - from->received, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return WAITS;
    if (n <= 0) return ENDED;
    from->received += (size_t)n;
    const size_t begin = from->received < sizeof in->magic ? from->received : sizeof in->magic;
    if (memcmp(in->magic, SNUG_HANDSHAKE_MAGIC, begin) != 0) return ENDED;
    if (from->received < sizeof *in) return WAITS;
    from->received = 0;
    return is_ours(in) ? WHOLE : ENDED;
}

static void hang_up(struct caller *caller) {
    if (caller->fd >= 0) close(caller->fd);
    caller->fd = -1;
}

/* ---- addresses -----------------------------------------------------------------------------------------------------
 */

static snug_status resolve(snug_context *ctx, const struct snug_rendezvous *at, struct addrinfo **out) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const int error = getaddrinfo(at->host, NULL, &hints, out);
    if (!error) return SNUG_OK;
    *out = NULL;
    return snug_fail(ctx, SNUG_E_IO,
                     "the host of rank 0, %s, cannot be found: %s; set MASTER_ADDR to its name or address", at->host,
                     gai_strerror(error));
}

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}

static void set_port(struct sockaddr *address, int port) {
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
}

static snug_status prepare_calls(struct handshake *h, const struct addrinfo *list) {
    const double now = snug_seconds();
    size_t addresses = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next) addresses++;
    const size_t count = addresses * (size_t)h->at->count;
    RETURN_IF_ERROR(snug_alloc(h->ctx, count + 1, sizeof *h->answers, (void **)&h->answers));
    RETURN_IF_ERROR(snug_alloc(h->ctx, count + 1, sizeof *h->dials, (void **)&h->dials));
    h->dial_count = count;
    struct snug_dial *dial = h->dials;
    for (int i = 0; i < h->at->count; i++)
        for (const struct addrinfo *a = list; a; a = a->ai_next, dial++) {
            snug_dial_prepare(dial, a->ai_addr, now + stagger * (double)(dial - h->dials));
            set_port((struct sockaddr *)&dial->to, h->at->first + i);
            dial->hello = &h->hello;
            dial->hello_size = sizeof h->hello;
            dial->answer = &h->answers[dial - h->dials];
            dial->answer_size = sizeof *h->answers;
        }
    return SNUG_OK;
}

/* Whether a dial's whole answer is one of this run, or, of another run, says so. */
static bool is_answer(struct handshake *h, const struct snug_handshake_message *answer) {
    if (!is_ours(answer)) return false;
    if (answer->kind != SNUG_HANDSHAKE_OTHER_RUN) return answer->key == h->hello.key;
    if (!h->other_run)
        snug_log(h->ctx, SNUG_LOG_WARNING,
                 "rank %d: at %s, ports %d to %d, there is rank 0 of another run, whose MASTER_ADDR, MASTER_PORT or "
                 "number is not that of this run; waiting for the right one",
                 h->ranks->rank, h->at->host, h->at->first, h->at->first + h->at->count - 1);
    h->other_run = true;
    return true;
}

/* ---- rank 0: listening ---------------------------------------------------------------------------------------------
 */

static int listen_at(struct addrinfo *list, const struct snug_rendezvous *at) {
    const int yes = 1;
    for (int port = at->first; port < at->first + at->count; port++)
        for (struct addrinfo *a = list; a; a = a->ai_next) {
            const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            set_port(a->ai_addr, port);
            if (fd < 0) continue;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
            if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, WAITING) == 0) return fd;
            close(fd);
        }
    return -1;
}

/* On the loopback interface alone if all ranks use it. The name of a host may be a loopback address on that host only:
 * then on all interfaces. */
static snug_status begin_to_listen(struct handshake *h) {
    const struct snug_rendezvous *at = h->at;
    const struct addrinfo any = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    if (is_loopback(at->host))
        RETURN_IF_ERROR(resolve(h->ctx, at, &list));
    else if (getaddrinfo(NULL, "0", &any, &list))
        return snug_fail(h->ctx, SNUG_E_IO, "rank 0 cannot listen: this host has no network");
    h->listener = listen_at(list, at);
    const int error = errno;
    freeaddrinfo(list);
    if (h->listener >= 0) return SNUG_OK;
    return snug_fail(h->ctx, SNUG_E_IO,
                     "rank 0 cannot listen on %s, ports %d to %d: %s; set MASTER_ADDR to an address of this host, and "
                     "MASTER_PORT to a free port",
                     at->host, at->first, at->first + at->count - 1, strerror(error));
}

/* A free place, or that of the connection that has said nothing for the longest time; NULL: all are of ranks, which
 * confirm or close them soon. */
static struct caller *find_place(struct handshake *h) {
    struct caller *place = NULL;
    for (int i = 0; i < h->caller_count; i++) {
        struct caller *at = &h->callers[i];
        if (at->fd < 0) return at;
        if (!at->welcomed && (!place || at->since < place->since)) place = at;
    }
    return place;
}

/* ---- rank 0: seats -------------------------------------------------------------------------------------------------
 */

static void leave_seat(struct handshake *h, int rank) {
    struct seat *seat = &h->seats[rank];
    if (!*h->refusal)
        snug_log(h->ctx, SNUG_LOG_WARNING,
                 "rank %d on %s has left before all ranks were there: waiting until it comes again", rank, seat->host);
    close(seat->fd);
    seat->fd = -1;
    seat->started = false;
}

/* Why two processes cannot be of one run; "" if they can. */
static void compare(const struct handshake *h, const struct snug_handshake_message *other,
                    char text[SNUG_RANK_MESSAGE]) {
    const char *variable = h->ranks->size_source;
    *text = '\0';
    if (other->rank == 0)
        snprintf(text, SNUG_RANK_MESSAGE,
                 "two processes are rank 0 of this run: process %d on %s, and process %d on %s: each process needs its "
                 "own rank, and MASTER_ADDR must be the host of rank 0",
                 (int)h->hello.pid, h->ranks->host, (int)other->pid, other->host);
    else if (other->size != h->ranks->size)
        snprintf(text, SNUG_RANK_MESSAGE,
                 "rank %d on %s was started as one of %d ranks, but rank 0 on %s as one of %d: %s must be the same for "
                 "all",
                 (int)other->rank, other->host, (int)other->size, h->ranks->host, h->ranks->size,
                 variable ? variable : "their number");
}

static void refuse(struct handshake *h, const char *text, int to_tell) {
    if (*h->refusal) return;
    snprintf(h->refusal, sizeof h->refusal, "%s", text);
    h->to_tell = to_tell;
    const struct snug_handshake_message out = message_of(h, SNUG_HANDSHAKE_REFUSED, h->refusal);
    for (int r = 1; r < h->ranks->size; r++)
        if (h->seats[r].fd >= 0) h->told += send_message(h->seats[r].fd, &out);
    for (int i = 0; i < h->caller_count; i++)
        if (h->callers[i].fd >= 0 && h->callers[i].welcomed) send_message(h->callers[i].fd, &out);
}

/* Whether another process has the caller's rank; text then names both. */
static bool is_taken(struct handshake *h, const struct snug_handshake_message *in, char text[SNUG_RANK_MESSAGE]) {
    struct seat *seat = &h->seats[in->rank];
    if (seat->fd < 0 || seat->process == in->process) return false;
    snprintf(
        text, SNUG_RANK_MESSAGE,
        "rank %d is process %d on %s already, and process %d on %s has the same number: each process needs its own "
        "rank",
        (int)in->rank, (int)seat->pid, seat->host, (int)in->pid, in->host);
    if (!seat->contested) snug_log(h->ctx, SNUG_LOG_WARNING, "%s", text);
    seat->contested = true;
    return true;
}

/* The answer to a caller's hello, or to its confirmation, which it then gets in place of a seat. */
static enum snug_handshake_kind answer_to(struct handshake *h, const struct snug_handshake_message *in,
                                          char text[SNUG_RANK_MESSAGE]) {
    *text = '\0';
    if (in->key != h->hello.key) return SNUG_HANDSHAKE_OTHER_RUN;
    if (in->process == h->hello.process) {
        h->reached_self = true;
        return SNUG_HANDSHAKE_SELF;
    }
    compare(h, in, text);
    if (*text) refuse(h, text, (in->size > h->ranks->size ? in->size : h->ranks->size) - (in->rank > 0));
    memcpy(text, h->refusal, SNUG_RANK_MESSAGE);
    if (*h->refusal) return SNUG_HANDSHAKE_REFUSED;
    return is_taken(h, in, text) ? SNUG_HANDSHAKE_TAKEN : SNUG_HANDSHAKE_WELCOME;
}

/* The rank is counted. A process that comes again has lost its connection of before. */
static void take_seat(struct handshake *h, struct caller *caller) {
    const struct snug_handshake_message *in = &caller->in;
    struct seat *seat = &h->seats[in->rank];
    if (seat->fd >= 0 && seat->attempt > in->attempt) {
        hang_up(caller);
        return;
    }
    if (seat->fd >= 0) close(seat->fd);
    *seat = (struct seat){.fd = caller->fd, .process = in->process, .pid = in->pid, .attempt = in->attempt};
    memcpy(seat->host, in->host, sizeof seat->host);
    caller->fd = -1;
}

static void take_message(struct handshake *h, struct caller *caller) {
    const struct snug_handshake_message *in = &caller->in;
    char text[SNUG_RANK_MESSAGE];
    if (in->kind != (caller->welcomed ? SNUG_HANDSHAKE_CONFIRM : SNUG_HANDSHAKE_HELLO) || in->rank < 0 ||
        in->rank >= in->size) {
        hang_up(caller);
        return;
    }
    const enum snug_handshake_kind kind = answer_to(h, in, text);
    if (caller->welcomed && kind == SNUG_HANDSHAKE_WELCOME) {
        take_seat(h, caller);
        return;
    }
    struct snug_handshake_message out = message_of(h, kind, text);
    if (kind == SNUG_HANDSHAKE_OTHER_RUN) out.key = 0;
    h->told += kind == SNUG_HANDSHAKE_REFUSED;
    caller->welcomed = send_message(caller->fd, &out) && kind == SNUG_HANDSHAKE_WELCOME;
    if (!caller->welcomed) hang_up(caller);
}

/* The connection of a rank that waits for the start; -1: it is missing, or has started. */
static int waiting_fd(const struct seat *seat) { return seat->started ? -1 : seat->fd; }

/* A rank that waits says nothing: its connection has ended. */
static void check_seat(struct handshake *h, int rank) {
    char byte;
    const ssize_t n = recv(h->seats[rank].fd, &byte, 1, MSG_DONTWAIT);
    if (n >= 0 || (errno != EAGAIN && errno != EINTR)) leave_seat(h, rank);
}

/* Those that have left since then come again, while the others wait for the first operation. */
static bool start_all(struct handshake *h) {
    const int size = h->ranks->size;
    bool all = true;
    h->out->local_size = 0;
    for (int r = 0; r < size; r++) h->out->local_size += strcmp(h->seats[r].host, h->ranks->host) == 0;
    for (int r = 1; r < size; r++) {
        struct seat *seat = &h->seats[r];
        struct snug_handshake_message out = message_of(h, SNUG_HANDSHAKE_START, "");
        if (seat->started) continue;
        for (int i = 0; i < size; i++) {
            const bool here = strcmp(h->seats[i].host, seat->host) == 0;
            out.local_size += here;
            out.local_rank += here && i < r;
        }
        seat->started = send_message(seat->fd, &out);
        all &= seat->started;
        if (!seat->started) leave_seat(h, r);
    }
    return all;
}

/* ---- rank 0: the loop ----------------------------------------------------------------------------------------------
 */

static void listen_for(struct handshake *h, nfds_t *count, struct pollfd one) {
    if (one.fd >= 0) h->polled[(*count)++] = one; /* poll() takes no more than there may be open files */
}

static void await_events(struct handshake *h) {
    nfds_t count = 0;
    for (size_t i = 0; i < h->dial_count; i++) listen_for(h, &count, snug_dial_events(&h->dials[i]));
    if (h->seats) {
        if (find_place(h)) listen_for(h, &count, (struct pollfd){.fd = h->listener, .events = POLLIN});
        for (int i = 0; i < h->caller_count; i++)
            listen_for(h, &count, (struct pollfd){.fd = h->callers[i].fd, .events = POLLIN});
        for (int r = 1; r < h->ranks->size; r++)
            listen_for(h, &count, (struct pollfd){.fd = waiting_fd(&h->seats[r]), .events = POLLIN});
    }
    poll(h->polled, count, TICK);
}

static void read_caller(struct handshake *h, struct caller *caller, double now) {
    const enum received got = receive(caller);
    if (got == WHOLE)
        take_message(h, caller);
    else if (got == ENDED || (!caller->welcomed && now > caller->since + hello_seconds))
        hang_up(caller);
}

/* A new connection is read at once, before others could take its place. */
static void accept_callers(struct handshake *h, double now) {
    for (int i = 0; i < STRANGERS; i++) { /* of a flood no more */
        struct caller *place = find_place(h);
        const int fd = place ? accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (fd < 0) return;
        hang_up(place);
        snug_watch_tune(fd);
        *place = (struct caller){.fd = fd, .since = now};
        read_caller(h, place, now);
    }
}

/* Rank 0's own calls find another rank 0. */
static void work_dials(struct handshake *h, double now) {
    for (size_t i = 0; i < h->dial_count; i++) {
        struct snug_dial *dial = &h->dials[i];
        const struct snug_handshake_message *answer = dial->answer;
        if (!snug_dial_work(dial, now)) continue;
        const bool known = is_answer(h, answer);
        if (known && answer->kind == SNUG_HANDSHAKE_REFUSED) refuse(h, answer->text, h->ranks->size);
        if (known && answer->kind == SNUG_HANDSHAKE_SELF)
            snug_dial_close(dial);
        else
            snug_dial_again(dial, now);
    }
}

static void serve(struct handshake *h, double now) {
    accept_callers(h, now);
    for (int i = 0; i < h->caller_count; i++)
        if (h->callers[i].fd >= 0) read_caller(h, &h->callers[i], now);
    for (int r = 1; r < h->ranks->size; r++)
        if (waiting_fd(&h->seats[r]) >= 0) check_seat(h, r);
    work_dials(h, now);
}

static int count_missing(const struct handshake *h, int *first) {
    int missing = 0;
    for (int r = h->ranks->size - 1; r > 0; r--)
        if (h->seats[r].fd < 0) {
            missing++;
            *first = r;
        }
    return missing;
}

static snug_status fail_missing(struct handshake *h, int missing, int first) {
    char elsewhere[SNUG_RENDEZVOUS_HOST + 128] = "";
    if (!h->reached_self)
        snprintf(elsewhere, sizeof elsewhere,
                 "; from this host %s does not lead to this process: MASTER_ADDR must be the host of rank 0",
                 h->at->host);
    return snug_fail(h->ctx, SNUG_E_IO,
                     "%d of %d ranks have not connected to rank 0 at %s, the first of them rank %d: were they started, "
                     "and is there a firewall?%s",
                     missing, h->ranks->size, h->at->host, first, elsewhere);
}

static snug_status gather_ranks(struct handshake *h) {
    double end = INFINITY; /* of a run that cannot begin */
    for (;;) {
        const double now = snug_seconds();
        int first = 0;
        const int missing = count_missing(h, &first);
        if (*h->refusal) {
            end = fmin(end, now + (h->told >= h->to_tell ? told_seconds : refuse_seconds));
            if (now > end) return snug_fail(h->ctx, SNUG_E_IO, "%s", h->refusal);
        } else if (missing == 0) {
            if (start_all(h)) return SNUG_OK;
        } else if (now > h->until) {
            return fail_missing(h, missing, first);
        }
        await_events(h);
        serve(h, snug_seconds());
    }
}

static snug_status lead(struct handshake *h) {
    const int size = h->ranks->size;
    struct addrinfo *list = NULL;
    RETURN_IF_ERROR(begin_to_listen(h));
    /* Without an address it cannot look for another rank 0 there. */
    if (resolve(h->ctx, h->at, &list) != SNUG_OK) snug_clear_error(h->ctx);
    snug_status status = prepare_calls(h, list);
    if (list) freeaddrinfo(list);
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(snug_alloc(h->ctx, (size_t)size, sizeof *h->seats, (void **)&h->seats));
    for (int r = 0; r < size; r++) h->seats[r].fd = -1;
    memcpy(h->seats[0].host, h->ranks->host, sizeof h->seats[0].host);
    const size_t callers = STRANGERS + CALLS * (size_t)size;
    RETURN_IF_ERROR(snug_alloc(h->ctx, callers, sizeof *h->callers, (void **)&h->callers));
    h->caller_count = (int)callers;
    for (int i = 0; i < h->caller_count; i++) h->callers[i].fd = -1;
    const size_t most = h->dial_count + 1 + callers + (size_t)size;
    RETURN_IF_ERROR(snug_alloc(h->ctx, most, sizeof *h->polled, (void **)&h->polled));
    RETURN_IF_ERROR(gather_ranks(h));
    for (int r = 1; r < size; r++) {
        h->out->sockets[r] = h->seats[r].fd;
        h->seats[r].fd = -1;
    }
    return SNUG_OK;
}

/* ---- other ranks ---------------------------------------------------------------------------------------------------
 */

/* Rank 0 has said welcome. The other ports are left until this connection breaks. */
static void confirm(struct handshake *h, struct snug_dial *dial, double now) {
    const struct snug_handshake_message out = message_of(h, SNUG_HANDSHAKE_CONFIRM, "");
    if (!send_message(dial->fd, &out)) {
        snug_dial_again(dial, now);
        return;
    }
    snug_watch_tune(dial->fd);
    h->leader = dial;
    h->taken_since = 0;
    for (size_t i = 0; i < h->dial_count; i++)
        if (&h->dials[i] != dial) snug_dial_close(&h->dials[i]);
}

static void find_again(struct handshake *h, double now) {
    snug_log(h->ctx, SNUG_LOG_WARNING,
             "rank %d: the connection to rank 0 has ended before all ranks were there; looking for rank 0 again",
             h->ranks->rank);
    h->leader = NULL;
    h->hello.attempt++;
    for (size_t i = 0; i < h->dial_count; i++) h->dials[i].due = now + h->dials[i].pause;
}

/* SNUG_END: all ranks are there. */
static snug_status take_answer(struct handshake *h, struct snug_dial *dial, double now) {
    const struct snug_handshake_message *in = dial->answer;
    if (!is_answer(h, in)) {
        snug_dial_again(dial, now);
        return SNUG_OK;
    }
    if (in->kind == SNUG_HANDSHAKE_REFUSED) return snug_fail(h->ctx, SNUG_E_IO, "%s", in->text);
    if (in->kind == SNUG_HANDSHAKE_START && dial == h->leader) return SNUG_END;
    if (in->kind == SNUG_HANDSHAKE_WELCOME && !h->leader) {
        confirm(h, dial, now);
        return SNUG_OK;
    }
    if (in->kind == SNUG_HANDSHAKE_TAKEN) {
        if (h->taken_since == 0) h->taken_since = now;
        if (now > h->taken_since + taken_seconds) return snug_fail(h->ctx, SNUG_E_IO, "%s", in->text);
    }
    snug_dial_again(dial, now);
    return SNUG_OK;
}

static snug_status fail_alone(struct handshake *h) {
    const struct snug_rendezvous *at = h->at;
    bool connected = false;
    for (size_t i = 0; i < h->dial_count; i++) connected |= snug_dial_is_connected(&h->dials[i]);
    if (h->leader)
        return snug_fail(h->ctx, SNUG_E_IO,
                         "rank %d has waited for %.0f s: rank 0 at %s is there, but not all ranks are, or rank 0 was "
                         "stopped",
                         h->ranks->rank, h->seconds, at->host);
    return snug_fail(h->ctx, SNUG_E_IO, "rank %d cannot connect to rank 0 at %s, ports %d to %d: %s", h->ranks->rank,
                     at->host, at->first, at->first + at->count - 1,
                     h->other_run ? "there is rank 0 of another run: give this one another MASTER_PORT"
                     : connected  ? "what listens there does not answer: was rank 0 stopped, or is it another program?"
                                  : "was it started, and is there a firewall?");
}

static snug_status find_leader(struct handshake *h) {
    snug_status status = SNUG_OK;
    while (status == SNUG_OK) {
        const double now = snug_seconds();
        if (now > h->until) return fail_alone(h);
        await_events(h);
        for (size_t i = 0; i < h->dial_count && status == SNUG_OK; i++) {
            struct snug_dial *dial = &h->dials[i];
            if (snug_dial_work(dial, snug_seconds())) status = take_answer(h, dial, snug_seconds());
            if (dial == h->leader && dial->fd < 0) find_again(h, now);
        }
    }
    return status == SNUG_END ? SNUG_OK : status;
}

static snug_status follow(struct handshake *h) {
    struct addrinfo *list;
    RETURN_IF_ERROR(resolve(h->ctx, h->at, &list));
    snug_status status = prepare_calls(h, list);
    freeaddrinfo(list);
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(snug_alloc(h->ctx, h->dial_count, sizeof *h->polled, (void **)&h->polled));
    RETURN_IF_ERROR(find_leader(h));
    const struct snug_handshake_message *start = h->leader->answer;
    h->out->local_rank = start->local_rank;
    h->out->local_size = start->local_size;
    h->out->sockets[0] = snug_dial_take(h->leader);
    return SNUG_OK;
}

/* ---- both ----------------------------------------------------------------------------------------------------------
 */

snug_status snug_handshake_run(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_rendezvous *at,
                               double seconds, struct snug_handshake *out) {
    void *memory;
    *out = (struct snug_handshake){0};
    const int count = ranks->rank == 0 ? ranks->size : 1;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)count, sizeof *out->sockets, (void **)&out->sockets));
    for (int i = 0; i < count; i++) out->sockets[i] = -1;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct handshake), &memory));
    struct handshake *h = memory;
    *h = (struct handshake){.ctx = ctx,
                            .ranks = ranks,
                            .at = at,
                            .out = out,
                            .hello = {.key = at->key,
                                      .process = snug_random_number(),
                                      .kind = SNUG_HANDSHAKE_HELLO,
                                      .rank = ranks->rank,
                                      .size = ranks->size,
                                      .pid = (int32_t)getpid()},
                            .seconds = seconds,
                            .until = snug_seconds() + seconds,
                            .listener = -1};
    memcpy(h->hello.magic, SNUG_HANDSHAKE_MAGIC, sizeof h->hello.magic);
    snprintf(h->hello.host, sizeof h->hello.host, "%s", ranks->host);
    const snug_status status = ranks->rank == 0 ? lead(h) : follow(h);
    for (size_t i = 0; i < h->dial_count; i++) snug_dial_close(&h->dials[i]);
    for (int i = 0; i < h->caller_count; i++) hang_up(&h->callers[i]);
    for (int r = 1; h->seats && r < ranks->size; r++)
        if (h->seats[r].fd >= 0) close(h->seats[r].fd);
    if (h->listener >= 0) close(h->listener);
    free(h->dials);
    free(h->answers);
    free(h->polled);
    free(h->callers);
    free(h->seats);
    free(h);
    return status;
}

void snug_handshake_free(struct snug_handshake *out, int size) {
    for (int i = 0; out->sockets && i < size; i++)
        if (out->sockets[i] >= 0) close(out->sockets[i]);
    free(out->sockets);
    *out = (struct snug_handshake){0};
}
