/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --gpus: this process starts a copy of itself for each GPU, with torchrun's variables, and waits for all of them. The
 * first one that fails ends the others.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "system.h"

enum {
    MOST = 64,
    SECRET = 16,
    PATIENCE = 6, /* seconds after a rank was killed, in which another one reports it; at most 5 are needed */
    SOON = 1      /* seconds after one has ended with a failure, which it has reported */
};

struct launch {
    int count, left; /* ranks; those that run */
    pid_t children[MOST];
    int port;
    char secret[2 * SECRET + 1];
    int code;     /* of the first rank that failed, 0: none yet */
    int signal;   /* that killed the first rank that was killed; 0: none */
    int killed;   /* that rank */
    int lost;     /* ranks that were killed, but not by this process */
    bool ended;   /* this process has killed those that were left */
    double until; /* when the others are killed; 0: not at all */
};

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* The ranks that it started have this variable (dist/rendezvous.h). */
static const char secret_name[] = "SNUG_RANKS_SECRET";

static bool fail(const char *why) {
    fprintf(stderr, "snug: --gpus: %s\n", why);
    return false;
}

/* The GPUs that CUDA can use here. */
static bool count_gpus(struct cli *cli, int *count) {
    snug_gpus *gpus;
    char *text;
    *count = 0;
    if (snug_gpus_create(cli->ctx, &gpus) != SNUG_OK) return fail(snug_error_message(cli->ctx));
    const snug_status status = snug_gpus_json(gpus, &text);
    snug_gpus_destroy(gpus);
    if (status != SNUG_OK) return fail(snug_error_message(cli->ctx));
    json_t *json = json_loads(text, 0, NULL);
    free(text);
    size_t i;
    json_t *gpu;
    json_array_foreach(json_object_get(json, "gpus"), i, gpu) *count += json_is_integer(json_object_get(gpu, "cuda"));
    json_decref(json);
    return true;
}

/* Another launcher has started this process: it would start as many ranks again. */
static bool is_alone(void) {
    enum { SLURM = 3 };
    static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE", [SLURM] = "SLURM_STEP_NUM_TASKS"};
    char why[160];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *size = cli_is_set(sizes[i]) ? getenv(sizes[i]) : NULL;
        if (!size || (i == SLURM && strcmp(size, "1") == 0)) continue; /* a step of one process, on a whole node */
        snprintf(why, sizeof why,
                 "the environment has %s: a launcher has started this rank already; leave out --gpus, or unset the "
                 "variable",
                 sizes[i]);
        return fail(why);
    }
    return true;
}

/* With --device auto and no GPU, the ranks would look for MPI, to use CPUs. */
static bool check_any(struct cli *cli) {
    char device[16] = "";
    int count;
    snug_args_get(cli->args, "device", device, sizeof device);
    if (strcmp(device, "auto") != 0) return true;
    if (!count_gpus(cli, &count)) return false;
    return count > 0 || fail("CUDA finds no GPU here; snug doctor says why");
}

static bool choose_count(struct cli *cli, int *count) {
    char text[32] = "", why[160], *end;
    snug_args_get(cli->args, "gpus", text, sizeof text);
    if (strcmp(text, "all") == 0) {
        if (!count_gpus(cli, count)) return false;
        return *count > 0 || fail("CUDA finds no GPU here; snug doctor says why");
    }
    const long number = strtol(text, &end, 10);
    *count = (int)number;
    if (*text && !*end && number >= 1 && number <= MOST) return check_any(cli);
    snprintf(why, sizeof why, "%s is neither all nor a whole number from 1 to %d", text, (int)MOST);
    return fail(why);
}

/* A port that is free now; the ranks also try those after it. */
static int free_port(void) {
    enum { HIGHEST = 65000 };
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool got = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                     getsockname(fd, (struct sockaddr *)&address, &length) == 0;
    if (fd >= 0) close(fd);
    if (!got) return -1;
    return ntohs(address.sin_port) < HIGHEST ? ntohs(address.sin_port) : HIGHEST;
}

static bool make_secret(char *text) {
    uint8_t bytes[SECRET];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return false;
    for (int i = 0; i < SECRET; i++) sprintf(text + (ptrdiff_t)2 * i, "%02x", bytes[i]);
    return true;
}

/* ---- children ---------------------------------------------------------------------------------------------------- */

static void set_number(const char *name, int number) {
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* In a process group of its own, so that a terminal's signals come through the launcher alone, and with the launcher's
   death as a request to end. */
static void become_rank(const struct launch *l, int rank, pid_t parent, int argc, char **argv) {
    char **arguments = calloc((size_t)argc + 2, sizeof *arguments);
    sigset_t none;
    if (!arguments) _exit(EXIT_FAILED);
    arguments[0] = program_invocation_name; /* which messages name */
    memcpy(arguments + 1, argv, (size_t)argc * sizeof *argv);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_INTERRUPTED);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", l->count);
    set_number("LOCAL_WORLD_SIZE", l->count);
    set_number("MASTER_PORT", l->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv(secret_name, l->secret, 1);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    execv("/proc/self/exe", arguments);
    fprintf(stderr, "snug: --gpus: starting rank %d: %s\n", rank, strerror(errno));
    _exit(EXIT_FAILED);
}

static void signal_all(const struct launch *l, int number) {
    for (int r = 0; r < l->count; r++)
        if (l->children[r] > 0) kill(l->children[r], number);
}

static bool start_all(struct launch *l, int argc, char **argv) {
    const pid_t parent = getpid();
    for (int r = 0; r < l->count; r++) {
        const pid_t child = fork();
        if (child == 0) become_rank(l, r, parent, argc, argv);
        if (child < 0) return fail(strerror(errno));
        l->children[r] = child;
        l->left++;
    }
    return true;
}

/* ---- waiting ------------------------------------------------------------------------------------------------------
 */

static void note_end(struct launch *l, int rank, int status) {
    l->children[rank] = 0;
    l->left--;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_DONE) return;
    if (WIFEXITED(status) && !l->code) l->code = WEXITSTATUS(status);
    l->lost += WIFSIGNALED(status) && !l->ended;
    if (WIFSIGNALED(status) && !l->signal) {
        l->signal = WTERMSIG(status);
        l->killed = rank;
    }
    const double until = cli_now() + (WIFSIGNALED(status) ? PATIENCE : SOON);
    if (l->until == 0 || until < l->until) l->until = until;
}

static void collect(struct launch *l) {
    int status;
    for (int r = 0; r < l->count; r++)
        if (l->children[r] > 0 && waitpid(l->children[r], &status, WNOHANG) > 0) note_end(l, r, status);
}

/* Each signal is passed on once; a repeated one ends the ranks, as it ends a single process. */
static void take_signal(struct launch *l, int fd) {
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof info) != (ssize_t)sizeof info) return;
    if (info.ssi_signo == SIGCHLD) return;
    signal_all(l, (int)info.ssi_signo);
}

static void wait_for_all(struct launch *l, int fd) {
    while (l->left > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 200) > 0) take_signal(l, fd);
        collect(l);
        if (l->until > 0 && cli_now() > l->until && !l->ended) {
            l->ended = true;
            signal_all(l, SIGKILL);
        }
    }
}

/* A rank reports the death of another one. This process does if several were killed, since one of these may be the rank
   that would have reported it, or if none is left. */
static int code_of(const struct launch *l) {
    if ((l->code && l->lost < 2) || !l->signal) return l->code;
    fprintf(stderr, "snug: --gpus: rank %d was killed by signal %d (%s)\n", l->killed, l->signal, strsignal(l->signal));
    return EXIT_FAILED;
}

static int launch(struct cli *cli, int argc, char **argv) {
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU, SIGCHLD};
    struct launch l = {0};
    sigset_t signals;
    if (!is_alone() || !choose_count(cli, &l.count)) return EXIT_USAGE;
    l.port = free_port();
    if (l.port < 0 || !make_secret(l.secret)) {
        fail(strerror(errno));
        return EXIT_FAILED;
    }
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) sigaddset(&signals, passed[i]);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    const int fd = signalfd(-1, &signals, SFD_CLOEXEC);
    fflush(NULL); /* a child would print it again */
    if (fd < 0 || !start_all(&l, argc, argv)) {
        l.code = EXIT_FAILED;
        signal_all(&l, SIGKILL);
    }
    wait_for_all(&l, fd);
    if (fd >= 0) close(fd);
    return code_of(&l);
}

/* A job on CPUs refuses --gpus by itself, and each of several ranks would say so. */
static bool is_on_cpus(struct cli *cli) {
    char device[16] = "", use_cpu[16] = "";
    snug_args_get(cli->args, "device", device, sizeof device);
    snug_args_get(cli->args, "use_cpu", use_cpu, sizeof use_cpu);
    return strcmp(device, "cpu") == 0 || strcmp(use_cpu, "True") == 0;
}

bool cli_launch(struct cli *cli, int argc, char **argv, int *code) {
    if (!snug_args_given(cli->args, "gpus") || cli_is_set(secret_name) || is_on_cpus(cli)) return false;
    *code = launch(cli, argc, argv);
    return true;
}
