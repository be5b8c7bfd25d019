/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives through TCP, between processes of this host, and where ranks find each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collectives.h"
#include "dist/tcp.h"
#include "test.h"

enum { RANKS = 3 };

static int free_port(int *out) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(listen(fd, 1), 0);
    *out = ntohs(address.sin_port);
    return fd;
}

/* ---- operations ---------------------------------------------------------------------------------------------------
 */

static int entered, left;
static void enter(void *user, const char *operation) {
    (void)user, (void)operation;
    entered++;
}
static void leave(void *user) {
    (void)user;
    left++;
}
static snug_status poll_nothing(void *user, snug_context *ctx) {
    (void)user, (void)ctx;
    return SNUG_OK;
}
static snug_status poll_lost(void *user, snug_context *ctx) {
    (void)user;
    return snug_fail(ctx, SNUG_E_IO, "the watch says who is lost");
}

static void run_rank(const struct snug_ranks *ranks, const struct snug_rendezvous *at) {
    snug_context *ctx;
    const struct snug_collectives *c = &(struct snug_collectives){.rank = ranks->rank}, *opened;
    CHECK(snug_context_create(&ctx) == SNUG_OK);
    CHECK(snug_tcp_open(ctx, ranks, at, 20, &opened) == SNUG_OK);
    c = opened;
    CHECK(c->rank == ranks->rank && c->size == RANKS && c->local_size == (ranks->rank < 2 ? 2 : 1));
    CHECK(c->local_rank == (ranks->rank == 1 ? 1 : 0));
    check_operations(ctx, c);
    c->set_watch(&(struct snug_collective_watch){&entered, enter, poll_nothing, leave});
    check_operations(ctx, c);
    CHECK(entered > 5 && entered == left);
    /* A rank that ends is reported as the watch says. */
    c->set_watch(&(struct snug_collective_watch){&entered, enter, poll_lost, leave});
    if (c->rank == 2) exit(0);
    char byte = 0;
    const snug_status status = c->rank == 0 ? c->transfer(ctx, &byte, 1, 2, 0) : c->barrier(ctx);
    CHECK(status == SNUG_E_IO && strstr(snug_error_message(ctx), "the watch says"));
    c->set_watch(NULL);
    snug_context_destroy(ctx);
    exit(0);
}

static pid_t fork_rank(int rank, const struct snug_rendezvous *at) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    struct snug_ranks ranks = {.rank = rank, .size = RANKS, .launcher = "torchrun"};
    snprintf(ranks.host, sizeof ranks.host, rank < 2 ? "here" : "there"); /* as if on two hosts */
    run_rank(&ranks, at);
    exit(1);
}

/* The first port is taken, and another program connects first. */
TEST(test_operations) {
    struct snug_rendezvous at = {.host = "127.0.0.1", .count = SNUG_RENDEZVOUS_PORTS, .key = 99};
    const int taken = free_port(&at.first);
    pid_t ranks[RANKS];
    int status;
    for (int r = 0; r < RANKS; r++) ranks[r] = fork_rank(r, &at);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    close(taken);
}

/* All close together, and a second run of the same processes can connect again. */
TEST(test_closing) {
    struct snug_rendezvous at = {.host = "localhost", .count = SNUG_RENDEZVOUS_PORTS, .key = 5};
    struct snug_ranks ranks = {.size = 2, .launcher = "torchrun", .host = "here"};
    const struct snug_collectives *c;
    snug_context *ctx;
    close(free_port(&at.first));
    const pid_t other = fork();
    assert_true(other >= 0);
    ranks.rank = other == 0;
    if (snug_context_create(&ctx) != SNUG_OK) exit(1);
    for (int again = 0; again < 2; again++) {
        if (snug_tcp_open(ctx, &ranks, &at, 1000, &c) != SNUG_OK) {
            fprintf(stderr, "%s\n", snug_error_message(ctx));
            exit(1);
        }
        c->close();
    }
    snug_context_destroy(ctx);
    if (other == 0) exit(0);
    int status;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- ranks that are stopped -----------------------------------------------------------------------------------------
 */

/* Connects, and passes a barrier a few times. */
static pid_t fork_short(int rank, const struct snug_rendezvous *at, double timeout) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    const struct snug_ranks ranks = {.rank = rank, .size = RANKS, .launcher = "torchrun", .host = "here"};
    const struct snug_collectives *c = &(struct snug_collectives){.rank = rank}, *opened;
    snug_context *ctx;
    CHECK(snug_context_create(&ctx) == SNUG_OK);
    CHECK(snug_tcp_open(ctx, &ranks, at, timeout, &opened) == SNUG_OK);
    c = opened;
    for (int i = 0; i < 3; i++) CHECK(c->barrier(ctx) == SNUG_OK);
    c->close();
    snug_context_destroy(ctx);
    exit(0);
}

static void wait_for_ranks(const pid_t *ranks) {
    int status;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void sleep_for(int milliseconds) {
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
}

static bool listens(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool is = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return is;
}

/* Rank 0 is stopped as soon as it listens, for longer than a rank would once wait for its answer; then any of them at
 * any moment. */
TEST(test_stopped) {
    unsigned seed = 1;
    for (int round = 0; round < 8; round++) {
        struct snug_rendezvous at = {.host = "127.0.0.1", .count = SNUG_RENDEZVOUS_PORTS, .key = 7};
        pid_t ranks[RANKS];
        close(free_port(&at.first));
        ranks[0] = fork_short(0, &at, 20);
        while (!round && !listens(at.first)) sleep_for(1);
        if (!round) assert_int_equal(kill(ranks[0], SIGSTOP), 0);
        for (int r = 1; r < RANKS; r++) ranks[r] = fork_short(r, &at, 20);
        seed = seed * 1664525u + 1013904223u;
        const pid_t stopped = ranks[round ? (seed >> 10) % RANKS : 0];
        if (round) {
            sleep_for((int)(seed >> 20) % 60);
            kill(stopped, SIGSTOP); /* which may have ended */
        }
        sleep_for(round ? 100 + (int)(seed >> 16) % 200 : 1600);
        kill(stopped, SIGCONT);
        wait_for_ranks(ranks);
    }
}

/* Without a watch an operation ends after the timeout, and so does the closing of the connections. */
TEST(test_timeout) {
    struct snug_rendezvous at = {.host = "127.0.0.1", .count = 1, .key = 3};
    const struct snug_collectives *c;
    struct snug_ranks ranks = {.size = 2, .launcher = "torchrun", .host = "here"};
    snug_context *ctx;
    int status;
    close(free_port(&at.first));
    const pid_t other = fork();
    assert_true(other >= 0);
    ranks.rank = other == 0;
    if (snug_context_create(&ctx) != SNUG_OK || snug_tcp_open(ctx, &ranks, &at, 0.5, &c) != SNUG_OK) exit(1);
    if (other == 0) {
        sleep_for(10000);
        exit(0);
    }
    const double began = snug_seconds();
    assert_int_equal(c->barrier(ctx), SNUG_E_IO);
    assert_non_null(strstr(snug_error_message(ctx), "the connection to rank 1: it has not answered for --ddp_timeout"));
    c->close();
    assert_true(snug_seconds() - began < 3);
    snug_context_destroy(ctx);
    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(waitpid(other, &status, 0), other);
}

/* ---- what cannot be connected -------------------------------------------------------------------------------------
 */

static void assert_refused(struct snug_rendezvous at, int rank, const char *says) {
    const struct snug_ranks ranks = {.rank = rank, .size = 2, .launcher = "torchrun", .host = "here"};
    const struct snug_collectives *c;
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    assert_int_equal(snug_tcp_open(ctx, &ranks, &at, 0.2, &c), SNUG_E_IO);
    assert_null(c);
    if (!strstr(snug_error_message(ctx), says)) fail_msg("%s", snug_error_message(ctx));
    snug_context_destroy(ctx);
}

TEST(test_refused) {
    struct snug_rendezvous at = {.host = "127.0.0.1", .count = 1};
    const int taken = free_port(&at.first);
    assert_refused(at, 0, "rank 0 cannot listen on 127.0.0.1, ports ");
    close(taken);
    assert_refused(at, 0, "1 of 2 ranks have not connected to rank 0 at 127.0.0.1, the first of them rank 1");
    assert_refused(at, 1, "rank 1 cannot connect to rank 0 at 127.0.0.1");
    snprintf(at.host, sizeof at.host, "no-such-host.invalid");
    assert_refused(at, 1, "the host of rank 0, no-such-host.invalid, cannot be found");
}

/* A process of another run, or of no run, is rejected. */
TEST(test_strangers) {
    struct snug_rendezvous at = {.host = "127.0.0.1", .count = 1, .key = 1}, other;
    close(free_port(&at.first));
    other = at;
    other.key = 2;
    const pid_t stranger = fork();
    assert_true(stranger >= 0);
    if (stranger == 0) {
        const struct snug_ranks ranks = {.rank = 1, .size = 2, .launcher = "torchrun", .host = "here"};
        const struct snug_collectives *c;
        snug_context *ctx;
        if (snug_context_create(&ctx) != SNUG_OK) exit(2);
        const snug_status status = snug_tcp_open(ctx, &ranks, &other, 0.2, &c);
        snug_context_destroy(ctx);
        exit(status == SNUG_E_IO ? 0 : 1);
    }
    assert_refused(at, 0, "1 of 2 ranks have not connected");
    int status;
    assert_int_equal(waitpid(stranger, &status, 0), stranger);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- the rendezvous -----------------------------------------------------------------------------------------------
 */

static snug_status find(const char *const *variables, const char *launcher, struct snug_rendezvous *out, char *message,
                        size_t size) {
    static const char *const all[] = {"MASTER_ADDR",         "MASTER_PORT",          "TORCHELASTIC_USE_AGENT_STORE",
                                      "SLURM_STEP_NODELIST", "SLURM_JOB_ID",         "SLURM_STEP_ID",
                                      "PMIX_RANK",           SNUG_RENDEZVOUS_SECRET, "TORCHELASTIC_RUN_ID"};
    const struct snug_ranks ranks = {.size = 2, .launcher = launcher, .size_source = "WORLD_SIZE"};
    snug_context *ctx;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]);
    for (; *variables; variables++) {
        char name[64];
        const char *equals = strchr(*variables, '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - *variables), *variables);
        setenv(name, equals + 1, 1);
    }
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    const snug_status status = snug_rendezvous_find(ctx, &ranks, out);
    snprintf(message, size, "%s", snug_error_message(ctx));
    snug_context_destroy(ctx);
    return status;
}

TEST(test_rendezvous) {
    static const struct {
        const char *variables[4], *launcher, *host;
        int first; /* 0: any */
    } cases[] = {
        {{"MASTER_ADDR=node1", "MASTER_PORT=29500"}, "torchrun", "node1", 29500},
        {{"MASTER_ADDR=node1", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True"}, "torchrun", "node1", 29501},
        {{"MASTER_ADDR=node1", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=False"}, "Open MPI", "node1", 29500},
        {{"MASTER_ADDR=node1"}, "torchrun", "", 0},
        {{"SLURM_STEP_NODELIST=node7,node9", "SLURM_JOB_ID=12"}, "Slurm", "node7", 0},
        {{"SLURM_STEP_NODELIST=node[03-07,9],login", "SLURM_JOB_ID=12"}, "Slurm", "node03", 0},
        {{"SLURM_STEP_NODELIST=rack[1-2]n[5-8]", "SLURM_JOB_ID=12"}, "Slurm", "rack1n5", 0},
        {{"SLURM_STEP_NODELIST=node[1-2].cluster.example"}, "Slurm", "node1.cluster.example", 0},
        {{"SLURM_STEP_NODELIST=node7", "PMIX_RANK=0"}, "Slurm", "node7", 0}, /* srun --mpi=pmix */
        {{"SLURM_STEP_NODELIST=node7", "PMI_RANK=0", "PMI_SIZE=2"}, "Slurm", "node7", 0},
        {{NULL}, "Open MPI", "", 0},
    };
    struct snug_rendezvous at, other;
    char message[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(find(cases[i].variables, cases[i].launcher, &at, message, sizeof message), SNUG_OK);
        assert_string_equal(at.host, cases[i].host);
        if (cases[i].first) assert_int_equal(at.first, cases[i].first);
        if (*at.host) assert_true(at.first > 0 && at.first + at.count < 65536);
    }
    /* Two steps of a job, and two runs of a launcher. */
    find((const char *const[]){"SLURM_STEP_NODELIST=a", "SLURM_STEP_ID=1", NULL}, "Slurm", &at, message,
         sizeof message);
    find((const char *const[]){"SLURM_STEP_NODELIST=a", "SLURM_STEP_ID=2", NULL}, "Slurm", &other, message,
         sizeof message);
    assert_true(at.first != other.first && at.key != other.key);
    static const char *const wrong[] = {"MASTER_PORT=x", "MASTER_PORT=0", "MASTER_PORT=65530"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const variables[] = {"MASTER_ADDR=node1", wrong[i], NULL};
        assert_int_equal(find(variables, "torchrun", &at, message, sizeof message), SNUG_E_USAGE);
        assert_non_null(strstr(message, "MASTER_PORT is "));
    }
    char host[400] = "MASTER_ADDR=";
    memset(host + 12, 'h', 300);
    assert_int_equal(find((const char *const[]){host, "MASTER_PORT=1", NULL}, "torchrun", &at, message, sizeof message),
                     SNUG_E_USAGE);
    assert_non_null(strstr(message, "MASTER_ADDR is too long"));
    /* The longest names of a list, and ones that are a byte longer, without and within brackets. */
    for (int more = 0; more < 2; more++)
        for (int digits = 0; digits < 2; digits++) {
            char list[400] = "SLURM_STEP_NODELIST=";
            const size_t begin = strlen(list), length = SNUG_RENDEZVOUS_HOST - 1 + (size_t)more;
            memset(list + begin, digits ? '7' : 'h', length + (size_t)digits);
            if (digits) list[begin] = '[';
            strcat(list, digits ? "-8],b" : ",b");
            const snug_status status = find((const char *const[]){list, NULL}, "Slurm", &at, message, sizeof message);
            assert_int_equal(status, more ? SNUG_E_USAGE : SNUG_OK);
            if (more)
                assert_non_null(strstr(message, "SLURM_STEP_NODELIST begins with a name that is too long"));
            else
                assert_int_equal(strlen(at.host), length);
        }
}

TEST_MAIN(NULL, NULL)
