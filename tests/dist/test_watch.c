/* SPDX-License-Identifier: Apache-2.0 */
/* The watch of ranks, without MPI: the test is the other rank, and the library that connects them. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dist/watch.h"
#include "dist/watch_net.h"
#include "test.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum { RANKS = 3 };

struct fixture {
    snug_context *ctx;
    struct snug_watch *watch;
    struct snug_watch_address address; /* of rank 0 */
    int listener;                      /* of the test as rank 0 */
    int others[RANKS];                 /* the test's connections as rank r; as rank 0, others[0] */
    int connecting;                    /* ranks that the test connects while rank 0 opens its watch, from 1 on */
    double delay;                      /* seconds before the test as rank 0 answers */
    bool garbles;                      /* it answers something else first */
    char log[2048];
};

static struct fixture *current; /* a table of collective operations has no user pointer */

static void keep_log(void *user, snug_log_level level, const char *message) {
    struct fixture *f = user;
    (void)level;
    snprintf(f->log + strlen(f->log), sizeof f->log - strlen(f->log), "%s\n", message);
}

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(snug_context_create(&f->ctx), SNUG_OK);
    snug_context_set_log(f->ctx, keep_log, f, SNUG_LOG_WARNING);
    for (int r = 0; r < RANKS; r++) f->others[r] = -1;
    f->listener = -1;
    f->connecting = RANKS - 1;
    *state = current = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    snug_watch_close(f->watch);
    for (int r = 0; r < RANKS; r++)
        if (f->others[r] >= 0) close(f->others[r]);
    if (f->listener >= 0) close(f->listener);
    snug_context_destroy(f->ctx);
    free(f);
    return 0;
}

static struct snug_watch_message message_of(int rank, enum snug_watch_kind kind) {
    struct snug_watch_message m = {
        .magic = SNUG_WATCH_MAGIC, .kind = kind, .rank = rank, .step = 7, .entered = 0, .waited = -1};
    memcpy(m.token, current->address.token, sizeof m.token);
    snprintf(m.host, sizeof m.host, "host%d", rank);
    snprintf(m.phase, sizeof m.phase, "in a test");
    snprintf(m.operation, sizeof m.operation, "their operation");
    snprintf(m.text, sizeof m.text, "the text of rank %d", rank);
    return m;
}

static void send_as(struct fixture *f, int rank, struct snug_watch_message m) {
    assert_int_equal(snug_watch_send(f->others[rank], &m), 0);
}

/* False at the end of the connection. */
static bool receive(int fd, struct snug_watch_message *m) {
    size_t received = 0;
    while (received < sizeof *m) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        assert_true(poll(&one, 1, 10000) > 0);
        const ssize_t n = recv(fd, (char *)m + received, sizeof *m - received, 0);
        if (n <= 0) return false;
        received += (size_t)n;
    }
    assert_true(snug_watch_is_valid(m, &current->address));
    return true;
}

/* Whether the test receives a message of this kind before the connection ends. */
static bool gets(int fd, enum snug_watch_kind kind) {
    struct snug_watch_message m;
    do
        if (!receive(fd, &m)) return false;
    while (m.kind != (int32_t)kind);
    return true;
}

static void wait_seconds(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}

/* Within 8 s; text has the message. */
static enum snug_watch_verdict verdict_of(struct fixture *f, char text[SNUG_RANK_MESSAGE]) {
    enum snug_watch_verdict verdict = SNUG_WATCH_NONE;
    for (int i = 0; i < 800 && verdict == SNUG_WATCH_NONE; i++) {
        wait_seconds(0.01);
        verdict = snug_watch_verdict(f->watch, text);
    }
    return verdict;
}

static void assert_reported(struct fixture *f, const char *const *parts) {
    char text[SNUG_RANK_MESSAGE];
    assert_int_equal(verdict_of(f, text), SNUG_WATCH_REPORT);
    for (; *parts; parts++)
        if (!strstr(text, *parts)) fail_msg("\"%s\" does not contain \"%s\"", text, *parts);
    assert_int_equal(snug_watch_poll(f->watch, f->ctx), SNUG_E_IO);
    assert_string_equal(snug_error_message(f->ctx), text);
}

static void assert_quiet(struct fixture *f, double seconds) {
    char text[SNUG_RANK_MESSAGE];
    wait_seconds(seconds);
    if (snug_watch_verdict(f->watch, text) != SNUG_WATCH_NONE) fail_msg("%s", text);
    assert_int_equal(snug_watch_poll(f->watch, f->ctx), SNUG_OK);
}

/* ---- the test as ranks 1 and 2 -------------------------------------------------------------------------------------
 */

static snug_status keep_address(snug_context *ctx, void *values, int64_t bytes, int from) {
    (void)ctx;
    (void)from;
    memcpy(&current->address, values, (size_t)bytes);
    for (int r = 1; r <= current->connecting; r++) {
        const struct snug_watch_message hello = message_of(r, SNUG_WATCH_HELLO);
        struct snug_watch_message answer;
        current->others[r] = snug_watch_connect(&current->address, r == 1 ? "leader" : "elsewhere", &hello, &answer);
        assert_int_equal(answer.rank, 0);
    }
    return SNUG_OK;
}

static snug_status gather(snug_context *ctx, void *values, const struct snug_shards *parts) {
    (void)ctx;
    memset(values, 0, (size_t)parts->elements);
    memset(values, 1, (size_t)current->connecting + 1);
    return SNUG_OK;
}

static void connect_as(struct fixture *f, int rank) {
    const struct snug_watch_message hello = message_of(rank, SNUG_WATCH_HELLO);
    struct snug_watch_message answer;
    f->others[rank] = snug_watch_connect(&f->address, "leader", &hello, &answer);
    assert_true(f->others[rank] >= 0);
}

static void lead(struct fixture *f, double timeout) {
    const struct snug_collectives c = {.size = RANKS, .broadcast = keep_address, .all_gather = gather};
    const struct snug_ranks ranks = {.size = RANKS, .host = "leader"};
    if (snug_watch_open(f->ctx, &ranks, &c, timeout, &f->watch) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    if (f->connecting < 2) return;
    if (f->others[2] < 0) connect_as(f, 2); /* a machine that has the loopback alone */
    assert_true(f->others[1] >= 0 && f->others[2] >= 0);
    assert_string_equal(f->log, "");
}

static void drop(struct fixture *f, int rank) {
    close(f->others[rank]);
    f->others[rank] = -1;
}

FIXTURE_TEST(test_lost_rank) {
    lead(f, 100);
    snug_watch_at(f->watch, 6, "elsewhere");
    send_as(f, 1, message_of(1, SNUG_WATCH_STATE));
    assert_true(gets(f->others[2], SNUG_WATCH_STATE));
    assert_quiet(f, 0.5);
    drop(f, 1);
    assert_reported(
        f, (const char *const[]){"rank 1 of 3 on host1, step 7 (in a test): ", "ended without a message", NULL});
    assert_true(gets(f->others[2], SNUG_WATCH_ENDED));
}

/* Messages arrive in parts; a rank says nothing of its step before the first one. */
FIXTURE_TEST(test_lost_at_the_start) {
    lead(f, 100);
    struct snug_watch_message m = message_of(2, SNUG_WATCH_STATE);
    m.step = -1;
    for (int half = 0; half < 2; half++) {
        const size_t size = sizeof m / 2;
        assert_int_equal(send(f->others[2], (const char *)&m + half * size, size, 0), size);
        wait_seconds(0.3);
    }
    drop(f, 2);
    assert_reported(f, (const char *const[]){"rank 2 of 3 on host2 (in a test): ", NULL});
}

FIXTURE_TEST(test_ends_by_intention) {
    lead(f, 100);
    send_as(f, 1, message_of(1, SNUG_WATCH_BYE));
    drop(f, 1);
    assert_quiet(f, 0.6);
}

/* A rank that reports its own failure has ended: no launcher may be there that ends the others. */
FIXTURE_TEST(test_failed_rank) {
    char text[SNUG_RANK_MESSAGE];
    lead(f, 100);
    send_as(f, 2, message_of(2, SNUG_WATCH_FAILS));
    drop(f, 2);
    assert_int_equal(verdict_of(f, text), SNUG_WATCH_SILENT);
    assert_non_null(strstr(text, "rank 2 of 3 on host2"));
    assert_non_null(strstr(text, "has failed"));
    assert_true(gets(f->others[1], SNUG_WATCH_ENDED));
}

/* A rank that has failed reports nothing else, and tells the others. */
FIXTURE_TEST(test_own_failure) {
    lead(f, 100);
    snug_watch_fail(f->watch);
    assert_true(gets(f->others[1], SNUG_WATCH_FAILS));
    drop(f, 1);
    assert_quiet(f, 0.5);
}

/* Two ranks fail with the same error. The first one reports it; rank 0 tells the second one, and not the first. */
FIXTURE_TEST(test_reported_once) {
    struct snug_watch_message m;
    lead(f, 100);
    send_as(f, 1, message_of(1, SNUG_WATCH_FAILS));
    assert_true(gets(f->others[2], SNUG_WATCH_REPORTED));
    assert_true(snug_watch_is_reported(f->watch));
    send_as(f, 2, message_of(2, SNUG_WATCH_FAILS));
    assert_quiet(f, 0.3);
    snug_watch_fail(f->watch);
    do {
        assert_true(receive(f->others[1], &m));
        assert_int_not_equal(m.kind, SNUG_WATCH_REPORTED);
    } while (m.kind != SNUG_WATCH_FAILS);
}

/* Others wait for the rank that has not reached the operation and does not wait itself. */
FIXTURE_TEST(test_late_rank) {
    lead(f, 1);
    struct snug_watch_message m = message_of(1, SNUG_WATCH_STATE);
    snug_watch_enter(f->watch, "an earlier operation");
    m.entered = 2;
    m.waited = 3;
    send_as(f, 1, m);
    send_as(f, 2, message_of(2, SNUG_WATCH_STATE));
    assert_reported(
        f, (const char *const[]){"rank 2 of 3 on host2, step 7 (in a test): it has not reached their operation",
                                 "rank 1 waits for 3 s: more than --ddp_timeout 1", NULL});
}

/* Half a minute is no failure yet: a warning names the rank once in a phase. */
FIXTURE_TEST(test_warning_of_late_rank) {
    static const char says[] = "rank 2 of 3 on host2, step 7 (in a test): it has not reached their operation, in which "
                               "rank 1 waits for 31 s; the run ends after --ddp_timeout 100\n";
    char expected[2 * sizeof says] = "";
    lead(f, 100);
    struct snug_watch_message m = message_of(1, SNUG_WATCH_STATE);
    snug_watch_enter(f->watch, "an earlier operation");
    m.entered = 2;
    m.waited = 29;
    for (int i = 0; i < 4; i++) {
        if (i == 1) m.waited = 31;
        if (i == 3) snug_watch_at(f->watch, 7, "in another phase");
        send_as(f, 2, message_of(2, SNUG_WATCH_STATE));
        send_as(f, 1, m);
        assert_quiet(f, 0.2);
    }
    snug_watch_close(f->watch);
    f->watch = NULL;
    snprintf(expected, sizeof expected, "%s%s", says, says);
    assert_string_equal(f->log, expected);
}

FIXTURE_TEST(test_late_leader) {
    lead(f, 1);
    snug_watch_at(f->watch, 8, "reading");
    for (int r = 1; r < RANKS; r++) {
        struct snug_watch_message m = message_of(r, SNUG_WATCH_STATE);
        m.entered = 2;
        m.waited = r == 1 ? 3 : 0;
        send_as(f, r, m);
    }
    assert_reported(f, (const char *const[]){"rank 0 of 3 on leader, step 8 (reading): ", NULL});
}

/* All have reached the operation; then none of the others sends states any more. */
FIXTURE_TEST(test_stuck_operation) {
    lead(f, 1);
    snug_watch_enter(f->watch, "an operation");
    for (int i = 0; i < 10; i++) {
        char text[SNUG_RANK_MESSAGE];
        for (int r = 1; r < RANKS; r++) {
            struct snug_watch_message m = message_of(r, SNUG_WATCH_STATE);
            m.entered = 1;
            m.waited = 0.1;
            send_as(f, r, m);
        }
        if (snug_watch_verdict(f->watch, text) != SNUG_WATCH_NONE) break;
        wait_seconds(0.3);
    }
    assert_reported(f, (const char *const[]){"rank 0 of 3 on leader", "an operation has not ended within", NULL});
}

/* In an operation of all ranks, or while this one waits for a device. */
static void stop_rank(struct fixture *f, bool counts) {
    lead(f, 2.5);
    struct snug_watch_message m = message_of(1, SNUG_WATCH_STATE);
    m.entered = counts;
    send_as(f, 1, m);
    if (counts)
        snug_watch_enter(f->watch, "an operation");
    else
        snug_watch_wait(f->watch, "an operation");
    for (int i = 0; i < 11; i++) {
        struct snug_watch_message its = message_of(2, SNUG_WATCH_STATE);
        its.entered = counts;
        send_as(f, 2, its);
        wait_seconds(0.25);
    }
    assert_reported(f,
                    (const char *const[]){"rank 1 of 3 on host1, step 7 (in a test): it has not completed an operation",
                                          "has not run for ", NULL});
}

TEST_IN(test_stopped_rank, void *fixture, set_up, tear_down) { stop_rank(fixture, true); }
TEST_IN(test_stopped_device, void *fixture, set_up, tear_down) { stop_rank(fixture, false); }

/* No rank waits in an operation, as in a call of another library. */
FIXTURE_TEST(test_silent_rank) {
    lead(f, 1);
    send_as(f, 2, message_of(2, SNUG_WATCH_STATE));
    for (int i = 0; i < 8; i++) {
        send_as(f, 1, message_of(1, SNUG_WATCH_STATE));
        assert_quiet(f, 0.3);
    }
    assert_reported(f, (const char *const[]){"rank 2 of 3 on host2, step 7 (in a test): its process has not run for 3 "
                                             "s, more than --ddp_timeout 1: was it stopped",
                                             NULL});
}

FIXTURE_TEST(test_operation_that_ends) {
    lead(f, 1);
    snug_watch_enter(f->watch, "an operation");
    wait_seconds(0.3);
    snug_watch_leave(f->watch);
    assert_quiet(f, 1.2);
}

/* ---- strangers -----------------------------------------------------------------------------------------------------
 */

static bool is_closed(int fd) {
    char byte;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, 5000) > 0 && recv(fd, &byte, 1, 0) <= 0;
}

static int knock(const struct fixture *f) {
    for (int i = 0; i < f->address.count; i++) {
        const struct sockaddr_storage *to = &f->address.addresses[i];
        const socklen_t size = to->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        const int fd = socket(to->ss_family, SOCK_STREAM, 0);
        assert_true(fd >= 0);
        if (connect(fd, (const struct sockaddr *)to, size) == 0) return fd;
        close(fd);
    }
    fail_msg("rank 0 does not listen");
    return -1;
}

FIXTURE_TEST(test_strangers) {
    lead(f, 100);
    struct snug_watch_message wrong[4];
    for (int i = 0; i < 4; i++) wrong[i] = message_of(1, SNUG_WATCH_HELLO); /* 0: rank 1 has its connection */
    wrong[1].token[3] ^= 1;
    wrong[2].rank = RANKS;
    wrong[3].rank = 0;
    for (int i = 0; i < 4; i++) {
        const int fd = knock(f);
        assert_int_equal(snug_watch_send(fd, &wrong[i]), 0);
        assert_true(is_closed(fd));
        close(fd);
    }
    const int silent = knock(f), gone = knock(f);
    close(gone);
    assert_true(is_closed(silent));
    close(silent);
    assert_quiet(f, 0.3);
    /* A rank whose messages make no sense is lost. */
    struct snug_watch_message m = message_of(1, SNUG_WATCH_STATE);
    memset(m.phase, 'x', sizeof m.phase);
    send_as(f, 1, m);
    assert_reported(f, (const char *const[]){"rank 1 of 3 on host1", NULL});
}

/* A rank that gave up a connection is not taken for one that has died, and may come again. */
FIXTURE_TEST(test_dead_connections) {
    f->connecting = 1;
    lead(f, 100);
    assert_non_null(strstr(f->log, "rank 2 cannot connect to rank 0"));
    const struct snug_watch_message hello = message_of(2, SNUG_WATCH_HELLO);
    struct snug_watch_message answer;
    for (int i = 0; i < 3; i++) { /* gone before its hello is read, after it, and after the answer */
        const int fd = knock(f);
        assert_int_equal(snug_watch_send(fd, &hello), 0);
        if (i > 0) assert_true(receive(fd, &answer));
        if (i > 1) assert_quiet(f, 0.6);
        close(fd);
        assert_quiet(f, 0.3);
    }
    const int first = knock(f), second = knock(f); /* two addresses of the same host: one of them is confirmed */
    assert_int_equal(snug_watch_send(first, &hello), 0);
    assert_true(receive(first, &answer));
    assert_int_equal(snug_watch_send(second, &hello), 0);
    assert_true(receive(second, &answer));
    f->others[2] = first;
    send_as(f, 2, message_of(2, SNUG_WATCH_STATE));
    assert_true(gets(first, SNUG_WATCH_STATE));
    close(second);
    assert_quiet(f, 0.3);
    drop(f, 2);
    assert_reported(f, (const char *const[]){"rank 2 of 3 on host2, step 7 (in a test): its process has ended", NULL});
}

/* More silent connections than rank 0 keeps. */
FIXTURE_TEST(test_many_strangers) {
    enum { MANY = 100 };
    int strangers[MANY];
    f->connecting = 1;
    lead(f, 100);
    for (int i = 0; i < MANY; i++) strangers[i] = knock(f);
    const double began = snug_seconds();
    connect_as(f, 2);
    assert_true(snug_seconds() - began < 1);
    send_as(f, 2, message_of(2, SNUG_WATCH_STATE));
    assert_true(gets(f->others[2], SNUG_WATCH_STATE));
    for (int i = 0; i < MANY; i++) close(strangers[i]);
    assert_quiet(f, 0.3);
}

FIXTURE_TEST(test_valid_messages) {
    struct snug_watch_message m[9];
    for (int i = 0; i < 9; i++) {
        m[i] = message_of(1, SNUG_WATCH_BYE);
        assert_true(snug_watch_is_valid(&m[i], &f->address));
    }
    m[0].magic++;
    m[1].token[0]++;
    m[2].kind = -1;
    m[3].kind = SNUG_WATCH_ENDED + 1;
    memset(m[4].host, 'x', sizeof m[4].host);
    memset(m[5].phase, 'x', sizeof m[5].phase);
    memset(m[6].operation, 'x', sizeof m[6].operation);
    memset(m[7].text, 'x', sizeof m[7].text);
    m[8].token[SNUG_WATCH_TOKEN - 1]++;
    for (int i = 0; i < 9; i++) assert_false(snug_watch_is_valid(&m[i], &f->address));
}

/* ---- the test as rank 0 --------------------------------------------------------------------------------------------
 */

static void *answer_hello(void *user) {
    struct fixture *f = user;
    struct snug_watch_message m, hello = message_of(0, SNUG_WATCH_HELLO);
    struct pollfd one = {.fd = f->listener, .events = POLLIN};
    if (poll(&one, 1, 10000) <= 0) return NULL;
    wait_seconds(f->delay);
    f->others[0] = accept(f->listener, NULL, NULL);
    if (f->garbles && recv(f->others[0], &m, sizeof m, MSG_WAITALL) == sizeof m) {
        memset(&m, 'x', sizeof m);
        snug_watch_send(f->others[0], &m);
        close(f->others[0]);
        f->others[0] = accept(f->listener, NULL, NULL);
    }
    if (recv(f->others[0], &m, sizeof m, MSG_WAITALL) == sizeof m) snug_watch_send(f->others[0], &hello);
    return NULL;
}

static snug_status give_address(snug_context *ctx, void *values, int64_t bytes, int from) {
    (void)ctx;
    (void)from;
    memcpy(values, &current->address, (size_t)bytes);
    return SNUG_OK;
}

static void follow(struct fixture *f, int rank, int local_rank, double timeout, bool listens) {
    const struct snug_collectives c = {.size = RANKS, .rank = rank, .broadcast = give_address, .all_gather = gather};
    const struct snug_ranks ranks = {.size = RANKS, .rank = rank, .local_rank = local_rank, .host = "leader"};
    pthread_t thread;
    if (listens) {
        f->listener = snug_watch_listen(&f->address, "leader");
        assert_true(f->listener >= 0);
        assert_int_equal(pthread_create(&thread, NULL, answer_hello, f), 0);
    }
    assert_int_equal(snug_watch_open(f->ctx, &ranks, &c, timeout, &f->watch), SNUG_OK);
    if (listens) assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Another rank's failure is not this one's, but is not reported twice either. */
FIXTURE_TEST(test_reported_by_another) {
    char text[SNUG_RANK_MESSAGE];
    follow(f, 2, 2, 100, true);
    assert_false(snug_watch_is_reported(f->watch));
    send_as(f, 0, message_of(0, SNUG_WATCH_REPORTED));
    for (int i = 0; i < 500 && !snug_watch_is_reported(f->watch); i++) wait_seconds(0.01);
    assert_true(snug_watch_is_reported(f->watch));
    assert_quiet(f, 0);
    send_as(f, 0, message_of(0, SNUG_WATCH_FAILS));
    assert_int_equal(verdict_of(f, text), SNUG_WATCH_SILENT);
    assert_string_equal(text, "rank 0 has failed");
}

/* All ranks find that rank 0 is lost. Rank 1 reports it; later, if they still run, the first ranks of other hosts do.
 */
REGISTER_TEST(test_lost_leader_of_three, set_up, tear_down)
static void test_lost_leader_of_three(void **state) {
    for (int local_rank = 0; local_rank <= 2; local_rank += 2) {
        struct fixture *f = *state;
        char text[SNUG_RANK_MESSAGE];
        follow(f, 2, local_rank, 100, true);
        drop(f, 0);
        assert_int_equal(verdict_of(f, text), local_rank == 0 ? SNUG_WATCH_REPORT : SNUG_WATCH_SILENT);
        assert_non_null(strstr(text, "rank 0 of 3 on "));
        assert_true(snug_watch_turn(f->watch) > 0);
        assert_int_equal(tear_down(state), 0);
        assert_int_equal(set_up(state), 0);
    }
}

/* Rank 0 was stopped when it was called, or another program is at one of its addresses: the rank waits, and is watched.
 */
REGISTER_TEST(test_slow_leader, set_up, tear_down)
static void test_slow_leader(void **state) {
    for (int i = 0; i < 2; i++) {
        struct fixture *f = *state;
        f->delay = i ? 0 : 2.6;
        f->garbles = i;
        follow(f, 1, 1, 100, true);
        assert_true(gets(f->others[0], SNUG_WATCH_STATE));
        assert_quiet(f, 0.2);
        drop(f, 0);
        assert_reported(f, (const char *const[]){"rank 0 of 3 on host0", "ended without a message", NULL});
        assert_int_equal(tear_down(state), 0);
        assert_int_equal(set_up(state), 0);
    }
}

FIXTURE_TEST(test_lost_leader) {
    follow(f, 1, 1, 100, true);
    snug_watch_at(f->watch, 9, "in a step");
    assert_true(gets(f->others[0], SNUG_WATCH_STATE));
    drop(f, 0);
    assert_reported(f, (const char *const[]){"rank 0 of 3 on host0, step 9 (in a step): its process has ended", NULL});
}

FIXTURE_TEST(test_leader_reports) {
    char text[SNUG_RANK_MESSAGE];
    follow(f, 1, 1, 100, true);
    send_as(f, 0, message_of(0, SNUG_WATCH_ENDED));
    assert_int_equal(verdict_of(f, text), SNUG_WATCH_SILENT);
    assert_string_equal(text, "the text of rank 0");
    drop(f, 0);
}

FIXTURE_TEST(test_leader_fails) {
    char text[SNUG_RANK_MESSAGE];
    follow(f, 1, 1, 100, true);
    send_as(f, 0, message_of(0, SNUG_WATCH_FAILS));
    drop(f, 0);
    assert_int_equal(verdict_of(f, text), SNUG_WATCH_SILENT);
}

FIXTURE_TEST(test_leader_ends) {
    follow(f, 1, 1, 1, true);
    snug_watch_enter(f->watch, "an operation");
    send_as(f, 0, message_of(0, SNUG_WATCH_BYE));
    drop(f, 0);
    assert_quiet(f, 1.5);
}

/* A leader that sends states decides itself; one that is stopped is reported, and told so. */
FIXTURE_TEST(test_stopped_leader) {
    follow(f, 1, 1, 1, true);
    snug_watch_enter(f->watch, "an operation");
    for (int i = 0; i < 6; i++) {
        send_as(f, 0, message_of(0, SNUG_WATCH_STATE));
        assert_quiet(f, 0.3);
    }
    assert_reported(f, (const char *const[]){"rank 0 of 3 on host0",
                                             "it has not reached an operation, in which rank 1 waits",
                                             "has not run for ", NULL});
    assert_true(gets(f->others[0], SNUG_WATCH_ENDED));
}

FIXTURE_TEST(test_silent_leader) {
    follow(f, 1, 1, 1, true);
    send_as(f, 0, message_of(0, SNUG_WATCH_STATE));
    assert_quiet(f, 2.5);
    assert_reported(f, (const char *const[]){"rank 0 of 3 on host0", "its process has not run for 3 s", NULL});
}

/* Without a connection nothing is found, and nothing fails. */
FIXTURE_TEST(test_unconnected) {
    close(snug_watch_listen(&f->address, "leader")); /* nothing listens there any more */
    const struct snug_watch_address nowhere = {.host = "leader"};
    struct snug_watch_message m = message_of(1, SNUG_WATCH_HELLO);
    assert_int_equal(snug_watch_connect(&nowhere, "leader", &m, &m), -1);
    follow(f, 1, 1, 1, false);
    snug_watch_enter(f->watch, "an operation");
    assert_quiet(f, 1.2);
    snug_watch_leave(f->watch);
    snug_watch_at(NULL, 1, "");
    snug_watch_fail(NULL);
    snug_watch_end(NULL, 1);
    snug_watch_close(NULL);
    char text[SNUG_RANK_MESSAGE];
    assert_int_equal(snug_watch_verdict(NULL, text), SNUG_WATCH_NONE);
}

TEST_MAIN(NULL, NULL)
