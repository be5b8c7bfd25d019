/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks find each other through TCP. Each rank is a thread of this process; a scripted one is the test itself,
 * which says what it wants, when it wants, and ends its connection when it wants.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dist/handshake.h"
#include "test.h"

typedef struct snug_handshake_message message;

static uint64_t key;             /* of this process's runs: tests may run at the same time */
static const double stall = 0.2; /* seconds */

static void nap(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}

/* ---- a rank --------------------------------------------------------------------------------------------------------
 */

struct rank {
    pthread_t thread;
    struct snug_ranks ranks;
    struct snug_rendezvous at;
    double seconds, took;
    snug_status status;
    struct snug_handshake connected;
    char error[SNUG_RANK_MESSAGE + 256], log[4096];
};

static void keep_log(void *user, snug_log_level level, const char *text) {
    struct rank *rank = user;
    const size_t used = strlen(rank->log);
    (void)level;
    snprintf(rank->log + used, sizeof rank->log - used, "%s\n", text);
}

static void *run_rank(void *user) {
    struct rank *rank = user;
    snug_context *ctx;
    const double began = snug_seconds();
    if (snug_context_create(&ctx) != SNUG_OK) abort();
    snug_context_set_log(ctx, keep_log, rank, SNUG_LOG_WARNING);
    rank->status = snug_handshake_run(ctx, &rank->ranks, &rank->at, rank->seconds, &rank->connected);
    snprintf(rank->error, sizeof rank->error, "%s", snug_error_message(ctx));
    rank->took = snug_seconds() - began;
    snug_context_destroy(ctx);
    return NULL;
}

static void start(struct rank *rank, int number, int size, const struct snug_rendezvous *at) {
    *rank =
        (struct rank){.ranks = {.rank = number, .size = size, .size_source = "WORLD_SIZE"}, .at = *at, .seconds = 20};
    snprintf(rank->ranks.host, sizeof rank->ranks.host, "host%d", number / 2); /* two ranks on each */
    assert_int_equal(pthread_create(&rank->thread, NULL, run_rank, rank), 0);
}

static void start_for(struct rank *rank, int number, int size, const struct snug_rendezvous *at, double seconds) {
    *rank = (struct rank){.ranks = {.rank = number, .size = size}, .at = *at, .seconds = seconds};
    snprintf(rank->ranks.host, sizeof rank->ranks.host, "here");
    assert_int_equal(pthread_create(&rank->thread, NULL, run_rank, rank), 0);
}

static void end(struct rank *rank) {
    snug_handshake_free(&rank->connected, rank->ranks.rank == 0 ? rank->ranks.size : 1);
}

static void assert_met(struct rank *rank) {
    pthread_join(rank->thread, NULL);
    if (rank->status != SNUG_OK) fail_msg("rank %d: %s", rank->ranks.rank, rank->error);
}

static void assert_failed(struct rank *rank, const char *part) {
    pthread_join(rank->thread, NULL);
    assert_int_equal(rank->status, SNUG_E_IO);
    if (!strstr(rank->error, part))
        fail_msg("rank %d: \"%s\" does not contain \"%s\"", rank->ranks.rank, rank->error, part);
    end(rank);
}

/* A byte goes from rank 0 to the other one, and back. */
static void assert_connected(const struct rank *leader, const struct rank *other) {
    const int ends[2] = {leader->connected.sockets[other->ranks.rank], other->connected.sockets[0]};
    for (int i = 0; i < 2; i++) {
        char byte = 0;
        struct pollfd ready = {.fd = ends[1 - i], .events = POLLIN};
        assert_int_equal(send(ends[i], &(char){(char)(7 + i)}, 1, MSG_NOSIGNAL), 1);
        assert_int_equal(poll(&ready, 1, 5000), 1);
        assert_int_equal(recv(ends[1 - i], &byte, 1, 0), 1);
        assert_int_equal(byte, 7 + i);
    }
}

/* Rank 0 and rank 1 have met, within these seconds. */
static void assert_both(struct rank *ranks, double seconds) {
    for (int r = 0; r < 2; r++) assert_met(&ranks[r]);
    assert_connected(&ranks[0], &ranks[1]);
    if (ranks[0].took > seconds) fail_msg("it took %.1f s", ranks[0].took);
    for (int r = 0; r < 2; r++) end(&ranks[r]);
}

/* ---- a script ------------------------------------------------------------------------------------------------------
 */

static struct sockaddr_in address_of(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listen_at(int port) {
    struct sockaddr_in address = address_of(port);
    const int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 200), 0);
    return fd;
}

/* Ports that are free now, of which none belongs to another test. */
static struct snug_rendezvous rendezvous(int count) {
    static int next = 0;
    struct snug_rendezvous at = {.host = "127.0.0.1", .count = count, .key = key};
    if (next == 0) next = 10000 + (int)getpid() % 100 * 200;
    for (int free = 0; free < count; next++) {
        struct sockaddr_in address = address_of(next);
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        free = bind(fd, (struct sockaddr *)&address, sizeof address) == 0 ? free + 1 : 0;
        close(fd);
        at.first = next + 1 - count;
    }
    return at;
}

/* Connects as soon as something listens. */
static int call(const struct snug_rendezvous *at) {
    for (int i = 0; i < 500; i++) {
        struct sockaddr_in address = address_of(at->first);
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
        close(fd);
        nap(0.01);
    }
    fail_msg("nothing listens");
    return -1;
}

static message message_of(enum snug_handshake_kind kind, int rank, int size) {
    message m = {.key = key, .process = 1000 + (uint64_t)rank, .kind = kind, .rank = rank, .size = size, .pid = 77};
    memcpy(m.magic, SNUG_HANDSHAKE_MAGIC, sizeof m.magic);
    snprintf(m.host, sizeof m.host, "scripted");
    return m;
}

static void say(int fd, enum snug_handshake_kind kind, int rank, int size) {
    const message m = message_of(kind, rank, size);
    assert_int_equal(send(fd, &m, sizeof m, MSG_NOSIGNAL), sizeof m);
}

/* False at the end of the connection. */
static bool hear(int fd, message *m) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    for (size_t got = 0; got < sizeof *m;) {
        assert_int_equal(poll(&ready, 1, 10000), 1);
        const ssize_t n = recv(fd, (char *)m + got, sizeof *m - got, 0);
        if (n <= 0) return false;
        got += (size_t)n;
    }
    assert_memory_equal(m->magic, SNUG_HANDSHAKE_MAGIC, sizeof m->magic);
    return true;
}

static void assert_hears(int fd, enum snug_handshake_kind kind) {
    message m;
    assert_true(hear(fd, &m));
    assert_int_equal(m.kind, kind);
}

static void assert_closed(int fd) {
    message m;
    assert_false(hear(fd, &m));
    close(fd);
}

/* ---- all is well ---------------------------------------------------------------------------------------------------
 */

TEST(ranks_meet) {
    enum { RANKS = 5 };
    struct rank ranks[RANKS];
    for (int order = 0; order < 3; order++) { /* rank 0 first, last, in the middle */
        const struct snug_rendezvous at = rendezvous(SNUG_RENDEZVOUS_PORTS);
        for (int i = 0; i < RANKS; i++) {
            const int r = (i + 2 * order) % RANKS;
            start(&ranks[r], r, RANKS, &at);
            if (order) nap(0.05);
        }
        for (int r = 0; r < RANKS; r++) assert_met(&ranks[r]);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].connected.local_rank, r % 2);
            assert_int_equal(ranks[r].connected.local_size, r < 4 ? 2 : 1);
            assert_string_equal(ranks[r].log, "");
            if (r) assert_connected(&ranks[0], &ranks[r]);
        }
        for (int r = 0; r < RANKS; r++) end(&ranks[r]);
    }
}

/* All interfaces, by a name that is not a loopback's; rank 0 finds itself there. */
TEST(by_the_name_of_the_host) {
    struct rank ranks[2];
    struct snug_rendezvous at = rendezvous(2);
    struct addrinfo *list;
    if (gethostname(at.host, sizeof at.host) || getaddrinfo(at.host, NULL, NULL, &list)) {
        print_message("skipped: this machine does not know its own name\n");
        return;
    }
    freeaddrinfo(list);
    for (int r = 0; r < 2; r++) start(&ranks[r], r, 2, &at);
    assert_both(ranks, 3);
}

/* ---- a rank that stalls or goes away, at each step
 * ------------------------------------------------------------------- */

enum step { CALLED, HALF_HELLO, HELLO, HALF_ANSWER, WELCOMED, HALF_CONFIRM, CONFIRMED, STARTED, STEPS };

/* Goes to this step as rank 1 of 3. */
static int go_to(const struct snug_rendezvous *at, enum step from, enum step to, int fd) {
    const message hello = message_of(SNUG_HANDSHAKE_HELLO, 1, 3), confirm = message_of(SNUG_HANDSHAKE_CONFIRM, 1, 3);
    static message answer;
    enum { HALF = sizeof hello / 2, REST = sizeof hello - HALF };
    for (enum step step = from; step <= to; step++) switch (step) {
        case CALLED: fd = call(at); break;
        case HALF_HELLO: assert_int_equal(send(fd, &hello, HALF, 0), HALF); break;
        case HELLO: assert_int_equal(send(fd, (const char *)&hello + HALF, REST, 0), REST); break;
        case HALF_ANSWER: assert_int_equal(recv(fd, &answer, HALF, MSG_WAITALL), HALF); break;
        case WELCOMED:
            assert_int_equal(recv(fd, (char *)&answer + HALF, REST, MSG_WAITALL), REST);
            assert_int_equal(answer.kind, SNUG_HANDSHAKE_WELCOME);
            break;
        case HALF_CONFIRM: assert_int_equal(send(fd, &confirm, HALF, 0), HALF); break;
        case CONFIRMED: assert_int_equal(send(fd, (const char *)&confirm + HALF, REST, 0), REST); break;
        case STARTED: assert_hears(fd, SNUG_HANDSHAKE_START); break;
        case STEPS: break;
        }
    return fd;
}

TEST(a_rank_that_stalls_delays_nothing_else) {
    for (enum step step = CALLED; step < STARTED; step++) {
        const struct snug_rendezvous at = rendezvous(1);
        struct rank leader, other;
        start(&leader, 0, 3, &at);
        int fd = go_to(&at, CALLED, step, -1);
        start(&other, 2, 3, &at); /* is let in meanwhile */
        nap(stall);
        fd = go_to(&at, step + 1, STARTED, fd);
        assert_met(&other);
        assert_met(&leader);
        assert_string_equal(leader.log, "");
        assert_connected(&leader, &other);
        assert_int_equal(send(fd, "x", 1, 0), 1);
        char byte = 0;
        assert_int_equal(poll(&(struct pollfd){.fd = leader.connected.sockets[1], .events = POLLIN}, 1, 5000), 1);
        assert_int_equal(recv(leader.connected.sockets[1], &byte, 1, 0), 1);
        close(fd);
        end(&leader);
        end(&other);
    }
}

/* And comes again, as the same process or as another one. */
TEST(a_rank_that_goes_away_may_come_again) {
    for (enum step step = CALLED; step < STARTED; step++) {
        const struct snug_rendezvous at = rendezvous(1);
        struct rank ranks[3];
        start(&ranks[0], 0, 3, &at);
        close(go_to(&at, CALLED, step, -1));
        const int fd = go_to(&at, CALLED, step, -1);
        close(go_to(&at, step + 1, CONFIRMED, fd));
        start(&ranks[1], 1, 3, &at);
        start(&ranks[2], 2, 3, &at);
        for (int r = 0; r < 3; r++) assert_met(&ranks[r]);
        assert_connected(&ranks[0], &ranks[1]);
        assert_connected(&ranks[0], &ranks[2]);
        assert_true(ranks[0].took < 3);
        if (step == CONFIRMED)
            assert_non_null(strstr(ranks[0].log, "rank 1 on scripted has left before all ranks were"));
        for (int r = 0; r < 3; r++) end(&ranks[r]);
    }
}

/* The connections that it gave up are in rank 0's queue, with all that it had said. */
TEST(dead_connections_are_not_counted) {
    const struct snug_rendezvous at = rendezvous(1);
    struct rank ranks[2];
    const int queue = listen_at(at.first); /* rank 0 is stopped after it listens */
    start(&ranks[1], 1, 2, &at);
    nap(1.6);
    close(queue);
    start(&ranks[0], 0, 2, &at);
    assert_both(ranks, 3);
    /* Said hello, and ended, before rank 0 takes the first of them. */
    const struct snug_rendezvous next = rendezvous(1);
    int dead[20];
    start(&ranks[0], 0, 2, &next);
    for (int i = 0; i < 20; i++) {
        dead[i] = call(&next);
        say(dead[i], SNUG_HANDSHAKE_HELLO, 1, 2);
        if (i % 2) close(dead[i]);
    }
    start(&ranks[1], 1, 2, &next);
    assert_both(ranks, 3);
    for (int i = 0; i < 20; i += 2) close(dead[i]);
}

/* A newer connection of a process takes the place of the one before, whose end did not arrive. */
TEST(a_process_that_comes_again_is_the_same) {
    const struct snug_rendezvous at = rendezvous(1);
    struct rank leader, other;
    start(&leader, 0, 3, &at);
    const int lost = go_to(&at, CALLED, CONFIRMED, -1), second = go_to(&at, CALLED, CONFIRMED, -1);
    assert_closed(lost);
    start(&other, 2, 3, &at);
    assert_hears(second, SNUG_HANDSHAKE_START);
    assert_met(&leader);
    assert_met(&other);
    close(second);
    end(&leader);
    end(&other);
}

/* ---- rank 0 stalls or goes away, at each step
 * ------------------------------------------------------------------------ */

enum leader_step { L_LISTENED, L_ACCEPTED, L_HEARD, L_HALF_WELCOME, L_WELCOMED, L_CONFIRMED, L_HALF_START, L_STARTED };

static int lead_to(int listener, enum leader_step from, enum leader_step to, int fd) {
    const message welcome = message_of(SNUG_HANDSHAKE_WELCOME, 0, 2);
    message begin = message_of(SNUG_HANDSHAKE_START, 0, 2);
    enum { HALF = sizeof welcome / 2, REST = sizeof welcome - HALF };
    begin.local_rank = 1;
    begin.local_size = 2;
    for (enum leader_step step = from; step <= to; step++) switch (step) {
        case L_LISTENED: break;
        case L_ACCEPTED: assert_true((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0); break;
        case L_HEARD: assert_hears(fd, SNUG_HANDSHAKE_HELLO); break;
        case L_HALF_WELCOME: assert_int_equal(send(fd, &welcome, HALF, 0), HALF); break;
        case L_WELCOMED: assert_int_equal(send(fd, (const char *)&welcome + HALF, REST, 0), REST); break;
        case L_CONFIRMED: assert_hears(fd, SNUG_HANDSHAKE_CONFIRM); break;
        case L_HALF_START: assert_int_equal(send(fd, &begin, HALF, 0), HALF); break;
        case L_STARTED: assert_int_equal(send(fd, (const char *)&begin + HALF, REST, 0), REST); break;
        }
    return fd;
}

static bool has_caller(int listener) { return poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 0) == 1; }

TEST(a_rank_waits_for_rank_0_that_stalls) {
    for (enum leader_step step = L_LISTENED; step < L_STARTED; step++) {
        const struct snug_rendezvous at = rendezvous(1);
        const int listener = listen_at(at.first);
        struct rank other;
        start(&other, 1, 2, &at);
        int fd = lead_to(listener, L_LISTENED, step, -1);
        nap(step == L_LISTENED ? 1.6 : stall);
        fd = lead_to(listener, step + 1, L_STARTED, fd);
        assert_met(&other);
        assert_false(has_caller(listener)); /* it has called once */
        assert_int_equal(other.connected.local_rank, 1);
        assert_int_equal(other.connected.local_size, 2);
        assert_string_equal(other.log, "");
        close(fd);
        close(listener);
        end(&other);
    }
}

TEST(a_rank_finds_rank_0_again) {
    for (enum leader_step step = L_ACCEPTED; step < L_STARTED; step++) {
        const struct snug_rendezvous at = rendezvous(1);
        int listener = listen_at(at.first);
        struct rank other;
        start(&other, 1, 2, &at);
        for (int again = 0; again < 2; again++) close(lead_to(listener, L_LISTENED, step, -1));
        close(listener); /* its process is started again */
        listener = listen_at(at.first);
        const int fd = lead_to(listener, L_LISTENED, L_STARTED, -1);
        assert_met(&other);
        assert_true(other.took < 5);
        if (step > L_WELCOMED)
            assert_non_null(strstr(other.log, "rank 1: the connection to rank 0 has ended before all"));
        close(fd);
        close(listener);
        end(&other);
    }
}

/* Answers in another order: the connection has broken. */
TEST(a_rank_drops_what_makes_no_sense) {
    static const enum snug_handshake_kind first[] = {SNUG_HANDSHAKE_START, SNUG_HANDSHAKE_HELLO, SNUG_HANDSHAKE_SELF,
                                                     99};
    const struct snug_rendezvous at = rendezvous(1);
    const int listener = listen_at(at.first);
    struct rank other;
    start(&other, 1, 2, &at);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        const int fd = lead_to(listener, L_LISTENED, L_HEARD, -1);
        say(fd, first[i], 0, 2);
        assert_closed(fd);
    }
    int fd = lead_to(listener, L_LISTENED, L_CONFIRMED, -1);
    say(fd, SNUG_HANDSHAKE_WELCOME, 0, 2);
    assert_closed(fd);
    fd = lead_to(listener, L_LISTENED, L_STARTED, -1);
    assert_met(&other);
    close(fd);
    close(listener);
    end(&other);
}

/* ---- strangers -----------------------------------------------------------------------------------------------------
 */

static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n",
                  tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

/* At rank 0's port: silent, slow, garbage, another version, half a hello, a hello of another run, with a text that does
 * not end. */
TEST(strangers_at_rank_0) {
    enum { MANY = 150 };
    const struct snug_rendezvous at = rendezvous(1);
    struct rank ranks[2];
    int silent[MANY];
    message odd[6];
    for (int i = 0; i < 6; i++) odd[i] = message_of(SNUG_HANDSHAKE_HELLO, 1, 2);
    odd[0].magic[7] = '1';
    odd[1].kind = SNUG_HANDSHAKE_CONFIRM;
    memset(odd[2].host, 'x', sizeof odd[2].host);
    memset(odd[3].text, 'x', sizeof odd[3].text);
    odd[4].rank = -1;
    odd[5].rank = 2;
    start(&ranks[0], 0, 2, &at);
    for (int i = 0; i < MANY; i++) silent[i] = call(&at);
    const int slow = call(&at), other = call(&at);
    assert_int_equal(send(slow, SNUG_HANDSHAKE_MAGIC, 3, 0), 3);
    for (int i = 0; i < 6; i++) {
        const int fd = call(&at);
        assert_int_equal(send(fd, &odd[i], sizeof odd[i], MSG_NOSIGNAL), sizeof odd[i]);
        assert_closed(fd);
    }
    const char *const garbage[] = {http, tls, "\n", "SSH-2.0-OpenSSH_9.2\r\n"};
    for (int i = 0; i < 4; i++) {
        const int fd = call(&at);
        assert_true(send(fd, garbage[i], strlen(garbage[i]), MSG_NOSIGNAL) > 0);
        assert_closed(fd);
    }
    message m = message_of(SNUG_HANDSHAKE_HELLO, 1, 3), answer; /* another number of ranks is another run's matter */
    m.key = key + 1;
    assert_int_equal(send(other, &m, sizeof m, MSG_NOSIGNAL), sizeof m);
    assert_true(hear(other, &answer));
    assert_int_equal(answer.kind, SNUG_HANDSHAKE_OTHER_RUN);
    assert_int_equal(answer.key, 0); /* is not told to it */
    assert_closed(other);
    assert_int_equal(send(slow, &SNUG_HANDSHAKE_MAGIC[3], 1, MSG_NOSIGNAL), 1);
    start(&ranks[1], 1, 2, &at);
    assert_both(ranks, 3);
    close(slow);
    for (int i = 0; i < MANY; i++) close(silent[i]);
}

static bool floods;
static void *flood(void *user) {
    while (__atomic_load_n(&floods, __ATOMIC_SEQ_CST)) {
        int fds[20];
        for (int i = 0; i < 20; i++) fds[i] = call(user);
        for (int i = 0; i < 20; i++) close(fds[i]);
    }
    return NULL;
}

/* Connections that come and go all the time. */
TEST(a_flood_at_rank_0) {
    struct snug_rendezvous at = rendezvous(1);
    struct rank ranks[3];
    pthread_t thread;
    start(&ranks[0], 0, 3, &at);
    floods = true;
    assert_int_equal(pthread_create(&thread, NULL, flood, &at), 0);
    nap(0.2);
    start(&ranks[1], 1, 3, &at);
    nap(0.2);
    __atomic_store_n(&floods, false, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    start(&ranks[2], 2, 3, &at);
    for (int r = 0; r < 3; r++) assert_met(&ranks[r]);
    for (int r = 0; r < 3; r++) end(&ranks[r]);
}

/* One that says nothing is dropped, in the end. */
TEST(a_silent_stranger_is_dropped) {
    const struct snug_rendezvous at = rendezvous(1);
    struct rank ranks[2];
    start(&ranks[0], 0, 2, &at);
    const int silent = call(&at);
    assert_closed(silent);
    start(&ranks[1], 1, 2, &at);
    assert_both(ranks, 8);
}

struct stranger {
    pthread_t thread;
    int listener;
    const char *text; /* NULL: it closes the connection */
    size_t size;
};

static void *speak(void *user) {
    const struct stranger *stranger = user;
    int fds[64], count = 0;
    while (count < 64 && (fds[count] = accept4(stranger->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (stranger->text) send(fds[count], stranger->text, stranger->size, MSG_NOSIGNAL);
        if (stranger->text)
            count++;
        else
            close(fds[count]);
    }
    while (count > 0) close(fds[--count]);
    return NULL;
}

/* At the ports where a rank looks for rank 0. */
TEST(strangers_where_rank_0_should_be) {
    static char long_text[sizeof(message)];
    static message wrong;
    struct stranger strangers[] = {{.text = ""},
                                   {.text = NULL},
                                   {.text = http, .size = sizeof http},
                                   {.text = long_text, .size = sizeof long_text},
                                   {.text = (const char *)&wrong, .size = sizeof wrong}};
    enum { STRANGERS = sizeof strangers / sizeof *strangers };
    const struct snug_rendezvous at = rendezvous(STRANGERS + 1);
    struct rank ranks[2];
    memset(long_text, 'x', sizeof long_text);
    wrong = message_of(SNUG_HANDSHAKE_WELCOME, 0, 2);
    wrong.key = key + 1;
    for (int i = 0; i < STRANGERS; i++) {
        strangers[i].listener = listen_at(at.first + i);
        assert_int_equal(pthread_create(&strangers[i].thread, NULL, speak, &strangers[i]), 0);
    }
    for (int r = 1; r >= 0; r--) start(&ranks[r], r, 2, &at);
    assert_both(ranks, 3);
    for (int i = 0; i < STRANGERS; i++) {
        shutdown(strangers[i].listener, SHUT_RDWR);
        pthread_join(strangers[i].thread, NULL);
        close(strangers[i].listener);
    }
}

/* Two runs at the same ports. */
TEST(another_run_is_left_alone) {
    struct snug_rendezvous at = rendezvous(3), other = at;
    struct rank ranks[2], others[2];
    other.key = key + 1;
    start(&others[0], 0, 2, &other);
    close(call(&at)); /* it listens at the first port */
    start(&ranks[1], 1, 2, &at);
    nap(stall);
    start(&ranks[0], 0, 2, &at);
    assert_both(ranks, 3);
    assert_non_null(strstr(ranks[1].log, "there is rank 0 of another run"));
    start(&others[1], 1, 2, &other);
    assert_both(others, 5);
}

/* ---- what cannot become a run
 * ---------------------------------------------------------------------------------------- */

TEST(another_number_of_ranks) {
    static const char says[] =
        "rank 2 on host1 was started as one of 4 ranks, but rank 0 on host0 as one of 3: WORLD_SIZE "
        "must be the same for all";
    const struct snug_rendezvous at = rendezvous(2);
    struct rank ranks[4];
    start(&ranks[0], 0, 3, &at);
    start(&ranks[1], 1, 3, &at);
    nap(stall);
    const int welcomed = call(&at);
    say(welcomed, SNUG_HANDSHAKE_HELLO, 2, 3);
    assert_hears(welcomed, SNUG_HANDSHAKE_WELCOME);
    start(&ranks[2], 2, 4, &at);
    assert_hears(welcomed, SNUG_HANDSHAKE_REFUSED);
    close(welcomed);
    nap(stall);
    start(&ranks[3], 3, 4, &at); /* comes later */
    for (int r = 0; r < 4; r++) {
        assert_failed(&ranks[r], says);
        assert_true(ranks[r].took < 4);
    }
    /* Rank 0 last, and one of a single other. */
    const struct snug_rendezvous next = rendezvous(2);
    start(&ranks[1], 1, 3, &next);
    start_for(&ranks[0], 0, 2, &next, 20);
    for (int r = 0; r < 2; r++) {
        assert_failed(&ranks[r],
                      "rank 1 on host0 was started as one of 3 ranks, but rank 0 on here as one of 2: their number "
                      "must be the same for all");
        assert_true(ranks[r].took < 4);
    }
}

TEST(two_are_rank_0) {
    struct rank ranks[4];
    for (int order = 0; order < 3; order++) {
        struct snug_rendezvous at = rendezvous(4);
        if (order == 2) snprintf(at.host, sizeof at.host, "localhost");
        start(&ranks[1], 1, 3, &at);
        start(&ranks[0], 0, 3, &at);
        if (order) nap(stall);
        start(&ranks[2], 0, 3, &at);
        nap(stall);
        start(&ranks[3], 2, 3, &at); /* comes later */
        for (int r = 0; r < 4; r++) {
            assert_failed(&ranks[r], "two processes are rank 0 of this run: process ");
            assert_true(ranks[r].took < 4);
        }
    }
}

TEST(two_are_one_rank) {
    const struct snug_rendezvous at = rendezvous(1);
    struct rank leader, second, last;
    start(&leader, 0, 3, &at);
    const int fd = go_to(&at, CALLED, CONFIRMED, -1);
    start(&second, 1, 3, &at);
    assert_failed(&second, "rank 1 is process 77 on scripted already, and process ");
    assert_non_null(strstr(leader.log, "rank 1 is process 77 on scripted already, and process "));
    /* Both are welcome, and confirm at the same time. */
    start(&second, 1, 3, &at);
    nap(stall);
    close(fd); /* the first one ends */
    start(&last, 2, 3, &at);
    assert_met(&second);
    assert_met(&leader);
    assert_met(&last);
    end(&leader);
    end(&second);
    end(&last);
}

/* Two processes with one number that both have been welcomed: the first one that confirms has it. */
TEST(the_first_confirmation_counts) {
    const struct snug_rendezvous at = rendezvous(1);
    struct rank leader;
    start(&leader, 0, 3, &at);
    const int first = go_to(&at, CALLED, WELCOMED, -1), second = call(&at);
    message hello = message_of(SNUG_HANDSHAKE_HELLO, 1, 3), confirm = message_of(SNUG_HANDSHAKE_CONFIRM, 1, 3);
    hello.process = confirm.process = 5;
    assert_int_equal(send(second, &hello, sizeof hello, 0), sizeof hello);
    assert_hears(second, SNUG_HANDSHAKE_WELCOME);
    say(first, SNUG_HANDSHAKE_CONFIRM, 1, 3);
    nap(0.2);
    assert_int_equal(send(second, &confirm, sizeof confirm, 0), sizeof confirm);
    assert_hears(second, SNUG_HANDSHAKE_TAKEN);
    assert_closed(second);
    /* A rank that speaks out of turn has broken its connection. */
    assert_int_equal(send(first, "x", 1, 0), 1);
    assert_closed(first);
    struct rank ranks[2];
    for (int r = 0; r < 2; r++) start(&ranks[r], r + 1, 3, &at);
    for (int r = 0; r < 2; r++) assert_met(&ranks[r]);
    assert_met(&leader);
    for (int r = 0; r < 2; r++) end(&ranks[r]);
    end(&leader);
}

/* ---- the end of the time
 * --------------------------------------------------------------------------------------------- */

TEST(time_ends) {
    struct snug_rendezvous at = rendezvous(1), other;
    struct rank rank, foreign;
    int fd;
    /* Rank 0, whatever the others have said. */
    static const enum step steps[] = {CALLED, HELLO, WELCOMED, CONFIRMED};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const enum step step = steps[i];
        at = rendezvous(1);
        start_for(&rank, 0, 4, &at, 0.4);
        fd = go_to(&at, CALLED, CALLED, -1);
        message hello = message_of(SNUG_HANDSHAKE_HELLO, 1, 4), answer;
        if (step >= HELLO) assert_int_equal(send(fd, &hello, sizeof hello, 0), sizeof hello);
        if (step >= WELCOMED) assert_true(hear(fd, &answer));
        if (step >= CONFIRMED) say(fd, SNUG_HANDSHAKE_CONFIRM, 1, 4);
        assert_failed(&rank, step == CONFIRMED
                                 ? "2 of 4 ranks have not connected to rank 0 at 127.0.0.1, the first of them rank 2"
                                 : "3 of 4 ranks have not connected");
        assert_null(strstr(rank.error, "does not lead to this process"));
        assert_true(rank.took < 1);
        close(fd);
    }
    /* Another rank. */
    at = rendezvous(1);
    start_for(&rank, 1, 2, &at, 0.3);
    assert_failed(&rank, "rank 1 cannot connect to rank 0 at 127.0.0.1, ports ");
    assert_true(rank.took < 1);
    const int listener = listen_at(at.first);
    start_for(&rank, 1, 2, &at, 0.3);
    assert_failed(&rank, "what listens there does not answer");
    close(accept(listener, NULL, NULL));
    start_for(&rank, 1, 2, &at, 0.3);
    fd = lead_to(listener, L_LISTENED, L_CONFIRMED, -1);
    assert_failed(&rank, "rank 0 at 127.0.0.1 is there, but not all ranks are, or rank 0 was stopped");
    assert_true(rank.took < 1);
    close(fd);
    close(listener);
    /* Rank 0 of another run alone. */
    other = at = rendezvous(1);
    other.key = key + 1;
    start_for(&foreign, 0, 2, &other, 1);
    start_for(&rank, 1, 2, &at, 0.5);
    assert_failed(&rank, "there is rank 0 of another run: give this one another MASTER_PORT");
    assert_failed(&foreign, "1 of 2 ranks have not connected");
    /* An address that is not this host's: one that no host has (RFC 5737). */
    at = rendezvous(1);
    snprintf(at.host, sizeof at.host, "192.0.2.1");
    start_for(&rank, 0, 2, &at, 0.3);
    assert_failed(&rank,
                  "from this host 192.0.2.1 does not lead to this process: MASTER_ADDR must be the host of rank 0");
    snprintf(at.host, sizeof at.host, "no-such-host.invalid");
    start_for(&rank, 0, 2, &at, 0.3);
    assert_failed(&rank, "no-such-host.invalid does not lead to this process");
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    key = (uint64_t)getpid() << 8;
    return run_registered(NULL, NULL);
}
