/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands, each in a process that is forked from one in which such a command has run before: libraries are loaded and
 * oneDNN has generated its code there, so that thousands of trials need not do it again.
 */
#ifndef SNUG_TESTS_NURSERY_H
#define SNUG_TESTS_NURSERY_H

#include <omp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "cli.h"
#include "faults.h"
#include "training_fixture.h"

/* What the test, the nursery and the forked process share. */
struct nursery_run {
    struct faults faults;
    char words[2048];
    bool forked; /* otherwise the nursery runs the command itself */
    int status;  /* of the process, as from waitpid(); or the command's exit code */
};

struct nursery {
    struct nursery_run *run;
    pid_t pid;
    int ask, answer;
};

/* Under AddressSanitizer; slow, so it is called only to report memory that is still allocated. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
/* With -DSNUG_COVERAGE=ON: what the process ran. */
int __llvm_profile_write_file(void) __attribute__((weak));

static inline int nursery_command(char *words) {
    char *rest = words, *arguments[96];
    int count = 0;
    while (count < 95 && (arguments[count] = strsep(&rest, " ")))
        if (*arguments[count]) count++;
    arguments[count] = NULL;
    return arguments[0][0] == 't'   ? command_train(count, arguments)
           : arguments[0][0] == 'e' ? command_eval(count, arguments)
           : arguments[0][1] == 'r' ? command_predict(count, arguments)
                                    : command_plan(count, arguments);
}

static inline void nursery_redirect(void) {
    if (!freopen("stdout", "w", stdout) || !freopen("stderr", "w", stderr)) _exit(125);
}

static inline void nursery_child(struct nursery_run *run) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(SANITIZED ? 120 : 60); /* it ends, whatever fails */
    nursery_redirect();
    faults_arm(&run->faults);
    const int code = nursery_command(run->words);
    faults_arm(NULL);
    if (run->faults.held && __lsan_do_recoverable_leak_check) __lsan_do_recoverable_leak_check();
    if (__llvm_profile_write_file) __llvm_profile_write_file();
    fflush(NULL);
    _exit(code); /* only the libraries' exit handlers remain */
}

static inline void nursery_serve(const char *folder, struct nursery_run *run, int ask, int answer) {
    char byte = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    omp_set_num_threads(1); /* state that OpenMP keeps for its other threads would be lost in a forked process */
    if (chdir(folder) != 0) _exit(125);
    nursery_redirect();
    while (read(ask, &byte, 1) == 1) {
        const pid_t child = run->forked ? fork() : 0;
        if (child == 0 && run->forked) nursery_child(run);
        if (child == 0) run->status = nursery_command(run->words);
        while (child > 0 && waitpid(child, &run->status, 0) < 0 && errno == EINTR) continue;
        fflush(NULL);
        if (child < 0 || write(answer, &byte, 1) != 1) break;
    }
    _exit(125);
}

static inline void nursery_open(struct nursery *n, const char *folder) {
    int ask[2], answer[2];
    n->run = mmap(NULL, sizeof *n->run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(n->run != MAP_FAILED);
    assert_int_equal(pipe(ask), 0);
    assert_int_equal(pipe(answer), 0);
    fflush(NULL); /* so that only one of the two prints what is buffered */
    n->pid = fork();
    assert_true(n->pid >= 0);
    if (n->pid == 0) {
        close(ask[1]);
        close(answer[0]);
        nursery_serve(folder, n->run, ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    n->ask = ask[1];
    n->answer = answer[0];
}

static inline int nursery_ask(struct nursery *n, const char *words, bool forked) {
    char byte = 0;
    assert_true(strlen(words) < sizeof n->run->words);
    strcpy(n->run->words, words);
    n->run->forked = forked;
    assert_int_equal(write(n->ask, &byte, 1), 1);
    if (read(n->answer, &byte, 1) != 1) fail_msg("the nursery ended during: %s", words);
    return n->run->status;
}

/* Runs a command in the nursery, which makes similar commands fast; returns its exit code. */
static inline int nursery_warm(struct nursery *n, const char *words) { return nursery_ask(n, words, false); }

/* The wait status of a forked process that runs the command; calls in it fail as n->run->faults says. */
static inline int nursery_run(struct nursery *n, const char *words) { return nursery_ask(n, words, true); }

static inline void nursery_close(struct nursery *n) {
    int status;
    close(n->ask);
    close(n->answer);
    while (waitpid(n->pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    munmap(n->run, sizeof *n->run);
}

#endif
