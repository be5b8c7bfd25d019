/* SPDX-License-Identifier: Apache-2.0 */
/* Where data comes from: standard input, process substitution, compressed files; and a training that is started again
   by a scheduler. */
#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* Runs a shell command in the test's folder, in which $SNUG is the program; its exit code. Standard output and error
   are in files. */
static int shell(const struct fixture *f, const char *command) {
    char whole[2048];
    snprintf(whole, sizeof whole, "cd '%s' && export SNUG='%s/snug' && { %s ; } > stdout 2> stderr", f->folder,
             SNUG_BINARY_DIR, command);
    const char *const argv[] = {"bash", "-c", whole, NULL};
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execvp("bash", (char *const *)argv);
        _exit(127);
    }
    return wait_for(child);
}

static char *shell_well(const struct fixture *f, const char *command) {
    const int code = shell(f, command);
    if (code != 0) fail_msg("%s: exit code %d: %s", command, code, output_of(f, "stderr"));
    return output_of(f, "stdout");
}

static void shell_fails(const struct fixture *f, const char *command, int code, const char *says) {
    const int found = shell(f, command);
    char *error = output_of(f, "stderr");
    if (found != code || !strstr(error, says)) fail_msg("%s: exit code %d: %s", command, found, error);
    free(error);
}

#define TRAIN                                                                                                          \
    "$SNUG train --config_name model --tokenizer_name model --max_steps 3 --logging_steps 1 --save_strategy no "       \
    "--threads 1 --log_level error "

/* The losses of a training into folder. */
static json_t *losses_of(const struct fixture *f, const char *folder) {
    json_t *state = read_json(f, path_of(f, "%s/trainer_state.json", folder)), *losses = json_array(), *entry;
    size_t i;
    json_array_foreach(json_object_get(state, "log_history"), i, entry) if (json_object_get(entry, "loss"))
        json_array_append(losses, json_object_get(entry, "loss"));
    json_decref(state);
    assert_true(json_array_size(losses) > 0);
    return losses;
}

/* The same rows by every way into the program give the same losses. */
FIXTURE_TEST(test_same_rows) {
    static const char *const ways[] = {
        TRAIN "--train_file train.csv",
        "cat train.csv | " TRAIN "--train_file - --data_format csv",
        TRAIN "--train_file - --data_format csv < train.csv",
        "cat train.csv | " TRAIN "--train_file /dev/stdin --data_format csv",
        "cat train.csv | " TRAIN "--train_file /dev/fd/0 --data_format csv",
        TRAIN "--data_format csv --train_file <(cat train.csv)",
        "gzip -c train.csv > train.csv.gz && " TRAIN "--train_file train.csv.gz",
        "gzip -c train.csv | " TRAIN "--train_file - --data_format csv",
        "cp train.csv rows && " TRAIN "--train_file rows --data_format csv",
        "tr , ';' < train.csv > semicolons.csv && " TRAIN "--train_file semicolons.csv",
        "tr , '\t' < train.csv > tabs.tsv && " TRAIN "--train_file tabs.tsv",
    };
    json_t *first = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char command[1024];
        snprintf(command, sizeof command, "%s --output_dir way%zu", ways[i], i);
        free(shell_well(f, command));
        snprintf(command, sizeof command, "way%zu", i);
        json_t *losses = losses_of(f, command);
        if (i && !json_equal(first, losses)) fail_msg("%s: other losses", ways[i]);
        if (i)
            json_decref(losses);
        else
            first = losses;
    }
    json_decref(first);
}

/* Standard input that was read in part is not the file that it comes from: it is not identified by that file. */
FIXTURE_TEST(test_part_of_a_file) {
    write_text(f, "long.csv", "sentence,label\nw1 good,a\nw2 bad,b\n");
    free(shell_well(f, TRAIN "--train_file long.csv --output_dir whole"));
    char *rows = shell_well(f, "{ read -r line; $SNUG tokenize --model_name_or_path model --test_file - --data_format "
                               "txt; } < long.csv");
    assert_contains(rows, "good");
    assert_null(strstr(rows, "\"index\":2")); /* the header is not a row */
    free(rows);
    rows = shell_well(f, "$SNUG tokenize --model_name_or_path model --test_file long.csv --text_column_names "
                         "sentence,label --text_column_delimiter ' w2 '");
    assert_contains(rows, "\"w1\",\"good\",\"w2\",\"[UNK]\"");
    free(rows);
    free(shell_well(f, "{ head -c 0; dd bs=1 count=9 of=skipped 2> dd; " TRAIN
                       "--train_file - --data_format csv --output_dir "
                       "part; } < <(printf 'skipped\\n\\n'; cat long.csv)"));
    free(shell_well(
        f, "printf 'skipped\\n\\n' > more.csv; cat long.csv >> more.csv; { dd bs=1 count=9 of=skipped 2> dd; " TRAIN
           "--train_file - --data_format csv --output_dir seekable; } < more.csv"));
    json_t *a = losses_of(f, "whole"), *b = losses_of(f, "part"), *c = losses_of(f, "seekable");
    assert_true(json_equal(a, b) && json_equal(a, c));
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

FIXTURE_TEST(test_refused_inputs) {
    shell_fails(f, TRAIN "--train_file - < train.csv", 2, "-: the name does not tell the format");
    shell_fails(f, TRAIN "--data_format csv --train_file - --validation_file /dev/stdin < train.csv", 2,
                "standard input is given as 2 files");
    shell_fails(f, TRAIN "--data_format csv --train_file - < /dev/null", 1,
                "- is empty: no rows came on standard input");
    shell_fails(f, TRAIN "--data_format csv --train_file - <&-", 1, "cannot read -");
    shell_fails(f, TRAIN "--data_format parquet --train_file x", 2, "--data_format parquet");
    shell_fails(f, "gzip -c train.csv | head -c 100 | " TRAIN "--data_format csv --train_file -", 1, "it is truncated");
    write_text(f, "nul.jsonl", "{\"text\": \"w1\", \"label\": \"a\"}\n{\"text\": \"w2\", \"label\": \"b\\u0000\"}\n");
    shell_fails(f, TRAIN "--train_file nul.jsonl", 1, "nul.jsonl:2: a label contains \\u0000");
}

/* As tokenizers treats it: BERT's normalizer removes the character. */
FIXTURE_TEST(test_nul_in_text) {
    write_text(f, "nul.jsonl", "{\"text\": \"good w1\\u0000 bad\"}\n{\"text\": \"good w1 bad\"}\n");
    char *rows = shell_well(f, "$SNUG tokenize --model_name_or_path model --test_file nul.jsonl"), *rest = rows;
    json_t *first = json_loads(strsep(&rest, "\n"), 0, NULL), *second = json_loads(strsep(&rest, "\n"), 0, NULL);
    assert_true(json_equal(json_object_get(first, "input_ids"), json_object_get(second, "input_ids")));
    assert_int_equal(json_array_size(json_object_get(first, "input_ids")), 5);
    json_decref(first);
    json_decref(second);
    free(rows);
}

/* Of masked LM: the same as training on the last rows and evaluating on the first ones, in files of their own. Which
   rows with labels are evaluated on: test_labels, test_label_runs. */
FIXTURE_TEST(test_split) {
    free(shell_well(
        f, "head -n 15 train.txt > first.txt; tail -n +16 train.txt > last.txt; head -n 8 first.txt > fewer.txt"));
    static const char *const ways[][2] = {
        {"--validation_split_percentage 20 --train_file train.txt --max_eval_samples 1000",
         "--train_file last.txt --validation_file first.txt"},
        {"--validation_split_percentage 20 --train_file train.txt --max_eval_samples 8 --max_train_samples 40 "
         "--train_sampling_strategy group_by_length",
         "--train_file last.txt --validation_file fewer.txt --max_train_samples 40 --train_sampling_strategy "
         "group_by_length"},
    };
    for (size_t i = 0; i < 2; i++) {
        json_t *results[2], *losses[2];
        for (size_t k = 0; k < 2; k++) {
            char command[1024], folder[32];
            snprintf(folder, sizeof folder, "%s%zu", k ? "files" : "split", i);
            snprintf(command, sizeof command, TRAIN "--task mlm --line_by_line %s --output_dir %s", ways[i][k], folder);
            free(shell_well(f, command));
            losses[k] = losses_of(f, folder);
            results[k] = read_json(f, path_of(f, "%s/eval_results.json", folder));
        }
        assert_true(json_equal(losses[0], losses[1]));
        static const char *const same[] = {"eval_loss", "eval_accuracy", "eval_samples"};
        for (size_t k = 0; k < 3; k++)
            assert_true(json_equal(json_object_get(results[0], same[k]), json_object_get(results[1], same[k])));
        for (size_t k = 0; k < 2; k++) {
            json_decref(losses[k]);
            json_decref(results[k]);
        }
    }
    free(shell_well(f, TRAIN "--train_file dummy:50x4-9 --validation_split_percentage 10 --output_dir dummy"));
    shell_fails(f, "$SNUG eval --model_name_or_path split0 --validation_file dev.csv --validation_split_percentage 5",
                2, "splits the file of a training");
    shell_fails(f, TRAIN "--train_file train.csv --validation_file dev.csv --validation_split_percentage 5", 2,
                "give one of them");
    shell_fails(f, TRAIN "--train_file - --data_format csv --validation_split_percentage 5 < train.csv", 2,
                "can be read only once");
    shell_fails(f, "head -n 5 train.csv > four.csv; " TRAIN "--train_file four.csv --validation_split_percentage 5", 2,
                "of 4 rows that is none");
    shell_fails(f, TRAIN "--train_file four.csv --validation_split_percentage 99", 2, "none is left to train on");
}

#define LONG                                                                                                           \
    "$SNUG train --config_name model --tokenizer_name model --train_file train.csv --max_steps 6 --save_steps 2 "      \
    "--logging_steps 1 --threads 1 "
#define AUTO LONG "--resume_from_checkpoint auto "

/* The same command every time: it starts, resumes, passes over what is damaged, and starts again where nothing is
   whole. */
FIXTURE_TEST(test_resumed_by_a_scheduler) {
    free(shell_well(f, LONG "--output_dir straight"));
    json_t *expected = losses_of(f, "straight");
    static const struct {
        const char *before, *says;
    } cases[] = {
        {"true", "has no complete checkpoint: the training starts"},
        {"rm -r out/checkpoint-6 out/trainer_state.json", "resuming from out/checkpoint-4"},
        {"rm -r out/checkpoint-6 && echo x >> out/checkpoint-4/optimizer.safetensors",
         "resuming from out/checkpoint-2"},
        {"for i in 2 4 6; do echo x >> out/checkpoint-$i/optimizer.safetensors; done",
         "has no complete checkpoint: the training starts"},
        {"true", "resuming from out/checkpoint-6"},
        {"rm -r out/checkpoint-*", "has no complete checkpoint: the training starts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        snprintf(command, sizeof command, "%s && " AUTO "--output_dir out", cases[i].before);
        free(shell_well(f, command));
        char *log = output_of(f, "stderr");
        if (!strstr(log, cases[i].says)) fail_msg("%s: %s", cases[i].before, log);
        free(log);
        json_t *losses = losses_of(f, "out");
        assert_true(json_equal(losses, expected));
        json_decref(losses);
    }
    json_decref(expected);
    shell_fails(f, "rm -r out/checkpoint-* && " LONG "--resume_from_checkpoint True --output_dir out", 1,
                "no complete checkpoint to resume from");
}

TEST_MAIN(NULL, NULL)
