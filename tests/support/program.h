/* SPDX-License-Identifier: Apache-2.0 */
/* For tests that run build/snug. */
#ifndef SNUG_TESTS_PROGRAM_H
#define SNUG_TESTS_PROGRAM_H

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "training_fixture.h"

/* The program beside the test's own. */
static inline const char *program_path(void) {
    static char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 8);
    assert_true(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/'), "/snug");
    return path;
}

/* Starts build/snug in the test's folder with words as its arguments (@ is that folder), stdout and stderr in files. */
static inline pid_t start(const struct fixture *f, const char *words) {
    unlink(path_of(f, "stderr")); /* another process may wait for this text */
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    char copy[2048], *rest = copy, *arguments[64] = {"snug"};
    int count = 1;
    if (chdir(f->folder) != 0 || !freopen("stdout", "w", stdout) || !freopen("stderr", "w", stderr)) _exit(125);
    snprintf(copy, sizeof copy, "%s", words);
    while (count < 63 && (arguments[count] = strsep(&rest, " ")))
        if (*arguments[count]) count++;
    execv(program_path(), arguments);
    _exit(127);
}

static inline int wait_for(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) assert_int_equal(errno, EINTR);
    if (!WIFEXITED(status)) fail_msg("the program was ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static inline int run(const struct fixture *f, const char *words) { return wait_for(start(f, words)); }

static inline char *output_of(const struct fixture *f, const char *stream) {
    return read_text(f, path_of(f, "%s", stream), NULL);
}

/* Succeeds; returns what it printed on stdout, to be freed. */
static inline char *run_well(const struct fixture *f, const char *words) {
    const int code = run(f, words);
    if (code != 0) fail_msg("snug %s: exit code %d: %s", words, code, output_of(f, "stderr"));
    return output_of(f, "stdout");
}

static inline json_t *run_json(const struct fixture *f, const char *words) {
    char *text = run_well(f, words);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json) fail_msg("snug %s: this is not JSON: %s", words, text);
    free(text);
    return json;
}

/* A model in folder out that predicts this label for every row of rows.csv. */
static inline void make_labeller(struct fixture *f, const char *label) {
    if (!exists(path_of(f, "out"))) {
        char data[1024] = "sentence,label\nw2 bad,b\n";
        for (int i = 0; i < 30; i++) strcat(data, "w1 good,a\n");
        write_text(f, "labelled.csv", data);
        write_text(f, "rows.csv", "sentence\nw1 good\n");
        free(run_well(f, "train --config_name model --tokenizer_name model --train_file labelled.csv --output_dir out "
                         "--learning_rate 1e-2 --max_steps 12 --save_strategy no --threads 1"));
    }
    json_t *config = read_json(f, path_of(f, "out/config.json"));
    json_object_set_new(config, "id2label", json_pack("{s:s, s:s}", "0", label, "1", "b"));
    json_object_set_new(config, "label2id", json_pack("{s:i, s:i}", label, 0, "b", 1));
    assert_int_equal(json_dump_file(config, path_of(f, "out/config.json"), 0), 0);
    json_decref(config);
}

static inline void wait_for_text(const struct fixture *f, const char *stream, const char *part) {
    for (int tries = 0; tries < 9000; tries++) {
        if (exists(path_of(f, "%s", stream))) {
            char *text = output_of(f, stream);
            const bool found = strstr(text, part);
            free(text);
            if (found) return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    fail_msg("%s does not contain %s in time", stream, part);
}

static inline int count_of(const char *text, const char *part) {
    int count = 0;
    while ((text = strstr(text, part))) {
        count++;
        text += strlen(part);
    }
    return count;
}

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
