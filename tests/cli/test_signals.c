/* SPDX-License-Identifier: Apache-2.0 */
/* The program and the signals that ask it to save and end: each of them, pairs of them, ignored ones. */
#include "program.h"
#include "sanitized.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static const struct {
    int number;
    const char *name;
} signals[] = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGXCPU, "SIGXCPU"}};
enum { SIGNALS = sizeof signals / sizeof *signals };

/* Not more steps: their batches' sizes are computed before the first. */
#define LONG                                                                                                           \
    "train --config_name model --tokenizer_name model --train_file train.csv --threads 2 --save_strategy no "          \
    "--logging_steps 5 --device cpu --max_steps 100000 --output_dir out"

static void sleep_for(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}

static bool has_ended(pid_t child) {
    siginfo_t info = {.si_pid = 0};
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == child;
}

/* The training ended with exit code 130 and a whole checkpoint, from which a run can be resumed. */
static void assert_saved(struct fixture *f, pid_t child, const char *after) {
    const int code = wait_for(child);
    char *errors = output_of(f, "stderr");
    const char *saved = strstr(errors, "saved out/checkpoint-");
    if (code != 130 || !saved) fail_msg("after %s: exit code %d: %s", after, code, errors);
    const long step = strtol(saved + strlen("saved out/checkpoint-"), NULL, 10);
    assert_int_equal(folder_verify(f->ctx, path_of(f, "out/checkpoint-%ld", step)), SNUG_OK);
    assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
    free(errors);
}

TEST_IN(test_each_signal_saves, void *fixture, set_up, tear_down) {
    for (int i = 0; i < SIGNALS; i++) {
        const pid_t child = start(fixture, LONG);
        wait_for_text(fixture, "stderr", "'loss'");
        kill(child, signals[i].number);
        assert_saved(fixture, child, signals[i].name);
    }
}

static int64_t count_lines(const struct fixture *f, const char *stream) {
    char *text = output_of(f, stream);
    int64_t lines = 0;
    for (const char *at = text; *at; at++) lines += *at == '\n';
    free(text);
    return lines;
}

/* It continues to train: lines are added to its log. */
static void assert_goes_on(const struct fixture *f, pid_t child, const char *after) {
    for (int64_t lines = count_lines(f, "stderr") + 10; count_lines(f, "stderr") < lines; sleep_for(0.01))
        if (has_ended(child)) fail_msg("%s was ignored at the start, and ended the training", after);
}

TEST_IN(test_ignored_signals_stay_ignored, void *fixture, set_up, tear_down) {
    for (int i = 0; i < SIGNALS; i++) {
        const int other = (i + 1) % SIGNALS;
        signal(signals[i].number, SIG_IGN);
        const pid_t child = start(fixture, LONG);
        signal(signals[i].number, SIG_DFL);
        wait_for_text(fixture, "stderr", "'loss'");
        kill(child, signals[i].number);
        assert_goes_on(fixture, child, signals[i].name);
        kill(child, signals[i].number); /* Linux queues it where it is blocked */
        kill(child, signals[other].number);
        assert_saved(fixture, child, signals[other].name);
    }
}

/* A job that does not reach its next step ends at the second SIGINT or SIGTERM. */
FIXTURE_TEST(test_second_signal_ends_at_once) {
    static const int numbers[] = {SIGINT, SIGTERM};
    write_model(f, "large", 0.1, 256, 2, VOCABULARY);
    for (int i = 0; i < (SANITIZED ? 1 : 2); i++) {
        const pid_t child = start(
            f, "train --config_name large --train_file dummy:4096x64 --per_device_train_batch_size 64 "
               "--gradient_accumulation_steps 64 --max_steps 1000 --output_dir out --threads 1 --save_strategy no");
        wait_for_text(f, "stderr", "from scratch");
        int status;
        for (int sent = 0; waitpid(child, &status, WNOHANG) == 0; sent++) {
            sleep_for(0.5);                                /* signals within 0.2 s count as one */
            if (sent == 1) assert_false(has_ended(child)); /* the first one waits for the end of the step */
            kill(child, numbers[i]);
        }
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 130);
        assert_false(exists(path_of(f, "out/model.safetensors")));
        assert_false(exists(path_of(f, "out/checkpoint-0")));
    }
}

/* All other pairs leave the job the time to save. */
FIXTURE_TEST(test_other_pairs_save) {
    static const int pairs[][2] = {{0, 1}, {1, 0}, {2, 2}, {2, 1}, {3, 3}, {3, 1}, {4, 4}, {4, 0}};
    write_model(f, "slow", 0.1, SANITIZED ? 32 : 128, 4, VOCABULARY); /* a step takes about 0.5 s */
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!is_chosen((long)i, SANITIZED ? 8 : 5)) continue;
        const pid_t child = start(
            f, "train --config_name slow --train_file dummy:1024x64 --per_device_train_batch_size 64 --device cpu "
               "--gradient_accumulation_steps 2 --max_steps 1000 --output_dir out --threads 1 --save_strategy no "
               "--logging_steps 1");
        char pair[64];
        snprintf(pair, sizeof pair, "%s and %s", signals[pairs[i][0]].name, signals[pairs[i][1]].name);
        wait_for_text(f, "stderr", "'loss'");
        kill(child, signals[pairs[i][0]].number);
        sleep_for(0.25); /* signals within 0.2 s count as one */
        kill(child, signals[pairs[i][1]].number);
        assert_saved(f, child, pair);
    }
}

/* The kernel repeats SIGXCPU every second. */
FIXTURE_TEST(test_limited_time) {
    char command[1024];
    snprintf(command, sizeof command, "cd %s && (ulimit -S -t %d; exec %s/snug " LONG ") 2>errors", f->folder,
             SANITIZED ? 3 : 1, SNUG_BINARY_DIR);
    const int status = system(command);
    char *errors = output_of(f, "errors");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 130 || !strstr(errors, "saved out/checkpoint-"))
        fail_msg("wait status %d: %s", status, errors);
    free(errors);
}

TEST_MAIN(NULL, NULL)
