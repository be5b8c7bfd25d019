/* SPDX-License-Identifier: Apache-2.0 */
/* The program with closed standard streams: no file gets their descriptors, so that no message is written into a file.
 */
#include <ftw.h>

#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum { CLOSED_STDIN = 1, CLOSED_STDOUT = 2, CLOSED_STDERR = 4, COMBINATIONS = 8 };

/* Runs snug with words; the descriptors in closed are closed at its start, the others go to files. */
static int run_closed(const struct fixture *f, const char *words, int closed) {
    char command[1024];
    snprintf(command, sizeof command, "cd %s && exec %s/snug %s </dev/null >stdout 2>stderr%s%s%s", f->folder,
             SNUG_BINARY_DIR, words, closed & CLOSED_STDIN ? " <&-" : "", closed & CLOSED_STDOUT ? " >&-" : "",
             closed & CLOSED_STDERR ? " 2>&-" : "");
    const int status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool is_one_of(const char *word, const char *const *words) {
    for (; *words; words++)
        if (strcmp(word, *words) == 0) return true;
    return false;
}

/* The file with the summary or the result. */
static int find_messages(const char *path, const struct stat *about, int type, struct FTW *place) {
    static const char *const streams[] = {"stdout", "stderr", NULL};
    static const char *const messages[] = {
        "training from scratch", "{'loss'",      "saved out",         "samples/s", "planned    measured",
        "snug: writing",         "eval_loss = ", "index,label,score", "warning: "};
    (void)about;
    if (type != FTW_F || is_one_of(path + place->base, streams)) return 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    static char text[1 << 20];
    const size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (memmem(text, size, messages[i], strlen(messages[i]))) fail_msg("%s holds \"%s\"", path, messages[i]);
    return 0;
}

static void assert_no_messages_in_files(const struct fixture *f) {
    assert_int_equal(nftw(f->folder, find_messages, 16, FTW_PHYS), 0);
}

#define TRAIN                                                                                                          \
    "train --config_name model --tokenizer_name model --train_file train.csv --validation_file dev.csv --max_steps 2 " \
    "--threads 1 --device cpu --save_strategy steps --save_steps 1 --logging_steps 1 --offload optimizer,gradients "   \
    "--overwrite_cache --report_to tensorboard --output_dir "

FIXTURE_TEST(test_training) {
    free(run_well(f, TRAIN "whole"));
    for (int closed = 1; closed < COMBINATIONS; closed++) {
        const int code = run_closed(f, TRAIN "out", closed);
        if (code != 0) fail_msg("closed: %d: exit code %d", closed, code);
        assert_no_messages_in_files(f);
        assert_same_file(f, path_of(f, "out/model.safetensors"), path_of(f, "whole/model.safetensors"));
        assert_int_equal(folder_verify(f->ctx, path_of(f, "out/checkpoint-2")), SNUG_OK);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        /* Failing to write a result is an error. */
        assert_int_equal(run_closed(f, TRAIN "out --json", closed), closed & CLOSED_STDOUT ? 1 : 0);
        assert_no_messages_in_files(f);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
    }
}

/* While it trains, files are open, including the lock; none of them has the descriptor of a standard stream. */
FIXTURE_TEST(test_descriptors) {
    for (int closed = 1; closed < COMBINATIONS; closed++) {
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (int stream = 0; stream < 3; stream++)
                if (closed & 1 << stream) close(stream);
            if (chdir(f->folder) != 0) _exit(125);
            execl(SNUG_BINARY_DIR "/snug", "snug", "train", "--config_name", "model", "--tokenizer_name", "model",
                  "--train_file", "train.csv", "--max_steps", "20000", "--device", "cpu", "--output_dir", "out",
                  "--log_level", "error", NULL);
            _exit(127);
        }
        wait_for_text(f, "out/.snug.lock", "");
        for (int stream = 0; stream < 3; stream++) {
            char link[64], target[512] = "";
            snprintf(link, sizeof link, "/proc/%ld/fd/%d", (long)child, stream);
            const ssize_t length = readlink(link, target, sizeof target - 1);
            if (closed & 1 << stream && (length < 0 || strcmp(target, "/dev/null") != 0))
                fail_msg("closed: %d: descriptor %d is %s", closed, stream, target);
        }
        kill(child, SIGTERM);
        wait_for(child);
    }
}

/* Commands whose results go to stdout. */
FIXTURE_TEST(test_results) {
    static const char *const commands[] = {
        "eval --model_name_or_path whole --validation_file dev.csv --output_dir out --overwrite_cache",
        "predict --model_name_or_path whole --test_file dev.csv --overwrite_cache",
        "predict --json --model_name_or_path whole --test_file dev.csv --overwrite_cache",
        "tokenize --model_name_or_path whole --test_file dev.csv",
        "plan --config_name model",
        "--version",
        "--help",
        "train --help",
    };
    free(run_well(f, TRAIN "whole"));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        for (int closed = 1; closed < COMBINATIONS; closed++) {
            const int code = run_closed(f, commands[i], closed);
            if (code != (closed & CLOSED_STDOUT ? 1 : 0))
                fail_msg("%s, closed: %d: exit code %d", commands[i], closed, code);
            assert_no_messages_in_files(f);
            if (closed & CLOSED_STDERR || !(closed & CLOSED_STDOUT)) continue;
            char *errors = output_of(f, "stderr");
            assert_contains(errors, "snug: writing to stdout: Bad file descriptor");
            free(errors);
        }
}

TEST_MAIN(NULL, NULL)
