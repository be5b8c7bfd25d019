/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a training and an interrupt: what is printed, and that the commands in it work when they are copied. */
#include "cli/shell.h"
#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define TRAIN                                                                                                          \
    "train --config_name model --tokenizer_name model --train_file train.csv --threads 1 --device cpu "                \
    "--per_device_train_batch_size 8 --learning_rate 1e-3 "

/* Runs a command as a user would, in the test's folder, where the program is in PATH. */
static int shell(const struct fixture *f, const char *command) {
    char folder[4096], whole[8192];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(program_path(), '/') - program_path()), program_path());
    const int length = snprintf(whole, sizeof whole, "cd '%s' && PATH='%s':$PATH && { %s ; } >stdout 2>stderr",
                                f->folder, folder, command);
    assert_in_range(length, 1, sizeof whole - 1);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        execlp("bash", "bash", "-c", whole, (char *)NULL);
        _exit(127);
    }
    return wait_for(child);
}

/* The command after the name of a line, or of the line after it; freed by the caller. */
static char *command_in(const char *text, const char *name, int line) {
    const char *at = strstr(text, name);
    if (!at) fail_msg("there is no \"%s\" in:\n%s", name, text);
    for (; line > 0; line--) at = strchr(at, '\n') + 1;
    at += strlen("Next       ");
    return strndup(at, strcspn(at, "\n"));
}

static void run_copied(const struct fixture *f, const char *text, const char *name, int line, const char *more) {
    char *command = command_in(text, name, line), whole[8192];
    snprintf(whole, sizeof whole, "%s%s", command, more);
    const int code = shell(f, whole);
    if (code != 0) fail_msg("%s: exit code %d: %s", whole, code, output_of(f, "stderr"));
    free(command);
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

/* What a shell reads is the word, and the terminal shows no control character. */
FIXTURE_TEST(test_words) {
    static const char *const words[] = {"plain/path-1.csv",
                                        "",
                                        "two words",
                                        "it's",
                                        "$HOME `ls` \"x\"",
                                        "a;b&c|d",
                                        "*?[x]{y}~!#",
                                        "ü ß",
                                        "tab\tnew\nline",
                                        "\033[2J\x7f",
                                        "\xE2\x80\xAEx'\\y", /* NOLINT(misc-misleading-bidirectional) */
                                        "\xFF\xFE",
                                        "back\\slash",
                                        "-n x",
                                        "=x",
                                        "a,b:c=d@e%f+g"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *quoted, command[1024];
        size_t size;
        FILE *out = open_memstream(&quoted, &size);
        cli_put_word(out, words[i]);
        fclose(out);
        for (const char *c = quoted; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f) fail_msg("%s has a control character", quoted);
        snprintf(command, sizeof command, "LC_ALL=C.UTF-8; printf %%s. %s", quoted);
        assert_int_equal(shell(f, command), 0);
        char *read = output_of(f, "stdout");
        read[strlen(read) - 1] = '\0';
        if (strcmp(read, words[i]) != 0) fail_msg("%s is read as \"%s\"", quoted, read);
        free(read);
        free(quoted);
    }
}

/* ---- the end of a training -------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_end) {
    free(run_well(f, TRAIN "--validation_file dev.csv --num_train_epochs 2 --eval_strategy epoch --output_dir out"));
    char *text = output_of(f, "stderr");
    assert_contains(text, "\nTrained    20 steps, 2.00 epochs, ");
    assert_contains(text, "\nTime       ");
    assert_contains(text, "\nMemory     ");
    assert_contains(text, "\nBest       eval_accuracy ");
    assert_contains(text, "\nModel      out\nNext       snug predict --model_name_or_path out --test_file dev.csv");
    assert_contains(text, "\n           snug report out > report.html\n");
    assert_contains(text, "'eval_samples': 30,");
    assert_int_equal(count_of(text, "eval_loss"), 2); /* an evaluation each, and none again at the end */
    for (int line = 0; line < 2; line++) run_copied(f, text, "Next  ", line, "");
    assert_true(exists(path_of(f, "predictions.csv")) && exists(path_of(f, "report.html")));
    free(text);
}

/* What preference tuning writes generates text; embeddings compare texts. */
FIXTURE_TEST(test_end_of_other_tasks) {
    static const char *const runs[][2] = {
        {"dpo --model_name_or_path " SNUG_SOURCE_DIR "/tests/golden/dpo --train_file " SNUG_SOURCE_DIR
         "/tests/golden/dpo/texts.jsonl",
         "generate --model_name_or_path out --prompt \"Who are you?\""},
        {"embedding --model_name_or_path " SNUG_SOURCE_DIR
         "/tests/golden/multiple_choice/bert --tokenizer_name " SNUG_SOURCE_DIR
         "/tests/golden/multiple_choice/wordpiece --train_file pairs.jsonl",
         "embed --model_name_or_path out --similarity --text \"A man eats\" --text_pair \"Someone is eating\""}};
    write_text(f, "pairs.jsonl",
               "{\"anchor\": \"a man\", \"positive\": \"a red house\"}\n"
               "{\"anchor\": \"she\", \"positive\": \"he\"}\n");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[1024], line[256];
        snprintf(words, sizeof words,
                 "train --task %s --max_steps 1 --threads 1 --use_cpu --overwrite_output_dir --output_dir out",
                 runs[i][0]);
        free(run_well(f, words));
        char *text = output_of(f, "stderr");
        snprintf(line, sizeof line, "\nNext       snug %s\n", runs[i][1]);
        assert_contains(text, line);
        run_copied(f, text, "Next  ", 0, "");
        free(text);
    }
}

/* The memory report: with --log_level info, or where the plan differs from what was measured. */
FIXTURE_TEST(test_memory_table) {
    static const char *const levels[] = {"info", "debug", "detail"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        char words[512];
        snprintf(words, sizeof words, TRAIN "--max_steps 1 --output_dir out --log_level %s", levels[i]);
        free(run_well(f, words));
        char *text = output_of(f, "stderr");
        assert_int_equal(count_of(text, "  memory, MiB      planned    measured difference\n"), 1);
        assert_contains(text, "  the optimizer's states\n"); /* the legend */
        free(text);
    }
    json_t *result = run_json(f, TRAIN "--max_steps 1 --output_dir out --json");
    const json_t *total = json_object_get(json_object_get(result, "memory"), "total");
    const double planned = json_number_value(json_object_get(total, "planned")),
                 measured = json_number_value(json_object_get(total, "measured"));
    char *text = output_of(f, "stderr");
    assert_int_equal(strstr(text, "  memory, MiB ") != NULL, fabs(measured - planned) > 0.01 * planned);
    assert_string_equal(json_string_value(json_object_get(result, "output_dir")), "out");
    assert_true(json_is_null(json_object_get(result, "best")));
    assert_contains(text, "--test_file FILE > predictions.csv\n");
    free(text);
    json_decref(result);
    free(run_well(f, "train --config_name model --train_file dummy:16x8 --validation_file dummy:16x8 --max_steps 1 "
                     "--threads 1 --device cpu --output_dir drawn"));
    text = output_of(f, "stderr");
    assert_contains(text, " predict --model_name_or_path drawn --test_file FILE > predictions.csv\n");
    free(text);
    free(run_well(f, TRAIN "--max_steps 1 --output_dir out --log_level error"));
    text = output_of(f, "stderr");
    assert_string_equal(text, "");
    free(text);
}

/* Folders whose names a shell would change; and a file whose format its name does not tell. */
FIXTURE_TEST(test_odd_folders) {
    static const char *const names[] = {"two words", "it's", "-x", "--y", "$HOME", "new\nline\033"};
    assert_int_equal(rename(path_of(f, "dev.csv"), path_of(f, "dev data")), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            char argument[64];
            snprintf(argument, sizeof argument, "--output_dir=%s", names[i]);
            if (chdir(f->folder) != 0 || !freopen("stdout", "w", stdout) || !freopen("stderr", "w", stderr)) _exit(125);
            execl(program_path(), "snug", "train", "--config_name", "model", "--tokenizer_name", "model",
                  "--train_file", "train.csv", "--validation_file", "dev data", "--data_format", "csv", "--max_steps",
                  "1", "--threads", "1", "--device", "cpu", argument, (char *)NULL);
            _exit(127);
        }
        assert_int_equal(wait_for(child), 0);
        char *text = output_of(f, "stderr");
        for (int line = 0; line < 2; line++) run_copied(f, text, "Next  ", line, "");
        free(text);
    }
}

/* ---- what does not fit ------------------------------------------------------------------------------------------- */

/* The command that is printed after the refusal is that of the user with what it lacks, and runs. */
FIXTURE_TEST(test_fitting) {
    static const struct {
        const char *words, *add; /* add NULL: nothing helps */
    } cases[] = {
        {"plan --gpu T4 --config_name large --train_file dummy:20011x64 --max_seq_length 64 "
         "--per_device_train_batch_size 20011 --output_dir 'two words'",
         " --output_dir 'two words' --fit\n"},
        {"plan --gpu 'RTX 4060' --config_name large --train_file dummy:64x32 --memory_budget 590MiB",
         " --gpu 'RTX 4060' --config_name large --train_file dummy:64x32 --memory_budget 590MiB --fit\n"},
        {"plan --gpu T4 --config_name large --train_file dummy:64x32 --memory_budget 10MiB --json",
         " --memory_budget 10MiB --json --fit --memory_budget "},
        {"plan --gpu T4 --config_name large --train_file dummy:65521x64 --per_device_train_batch_size 65521 "
         "--gradient_accumulation_steps 1",
         NULL},
    };
    write_model(f, "large", 0.1, 256, 2, VOCABULARY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[1024];
        snprintf(command, sizeof command, "snug %s", cases[i].words);
        assert_int_equal(shell(f, command), 3);
        char *text = output_of(f, "stderr"), *plan = output_of(f, "stdout");
        assert_true(*plan); /* it is printed all the same */
        free(plan);
        if (cases[i].add) {
            assert_contains(text, "\nTry        snug plan --gpu ");
            assert_contains(text, cases[i].add);
            run_copied(f, text, "Try  ", 0, "");
        } else {
            assert_null(strstr(text, "\nTry "));
        }
        free(text);
    }
}

/* ---- the best evaluation ---------------------------------------------------------------------------------------- */

/* The result's best is that of log_history, by the metric that is asked for or the task's own. */
FIXTURE_TEST(test_best) {
    static const struct {
        const char *words, *metric;
        bool cost, loaded;
    } cases[] = {
        {"eval_steps=2", "eval_accuracy", false, false},
        {"eval_strategy=no metric_for_best_model=loss", "eval_accuracy", false, false}, /* which chooses nothing */
        {"eval_steps=2 metric_for_best_model=loss", "eval_loss", true, false},
        {"eval_steps=3 metric_for_best_model=f1 greater_is_better=False", "eval_f1", true, false},
        {"eval_steps=2 load_best_model_at_end=True save_strategy=steps save_steps=2", "eval_loss", true, true},
        {"eval_steps=2 task=mlm train_file=@words.txt validation_file=@words.txt line_by_line=True", "perplexity", true,
         false},
        {"eval_steps=2 task=token_classification train_file=@tags.conll validation_file=@tags.conll", "eval_f1", false,
         false},
        {"eval_steps=2 train_file=@values.csv validation_file=@values.csv", "eval_spearmanr", false, false},
    };
    char rows[2048] = "";
    write_data(f, "values.csv", FORM_REGRESSION, 20, 1);
    for (int i = 0; i < 12; i++) strcat(rows, "w1 w2 w3 w4 w5 w6\n");
    write_text(f, "words.txt", rows);
    *rows = '\0';
    for (int i = 0; i < 12; i++) strcat(rows, i % 3 ? "w1 O\nw2 B-X\nw3 O\n\n" : "w4 B-X\nw5 O\n\n");
    write_text(f, "tags.conll", rows);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        snprintf(words, sizeof words, "validation_file=@dev.csv eval_strategy=steps learning_rate=2e-2 %s",
                 cases[i].words);
        const snug_train_result result = train(f, "out", words), *r = &result;
        json_t *history = history_of(f, "out"), *entry;
        double best = NAN;
        int64_t step = -1;
        size_t k;
        json_array_foreach(history, k, entry) {
            const json_t *value = json_object_get(entry, cases[i].metric);
            const double metric = json_number_value(value);
            if (!json_is_number(value) || (cases[i].cost ? metric > best : metric < best)) continue;
            if (cases[i].loaded && metric == best) continue;
            best = metric;
            step = json_integer_value(json_object_get(entry, "step"));
        }
        json_decref(history);
        assert_string_equal(r->best_metric, cases[i].metric);
        assert_true(r->best_value == best);
        assert_int_equal(r->best_step, step);
        assert_true(fabs(r->best_epoch - (double)step * r->epochs / (double)r->steps) < 1e-9);
        assert_int_equal(r->best_is_model, cases[i].loaded || step == r->steps);
        assert_true(cases[i].loaded || r->best_is_model == (metric_of(r->metrics, cases[i].metric) == best));
        assert_string_equal(r->output_dir, path_of(f, "out"));
    }
    assert_null(train(f, "out", NULL).best_metric);
}

/* ---- an interrupt ----------------------------------------------------------------------------------------------- */

#define LONG TRAIN "--num_train_epochs 2 --logging_steps 1 --validation_file dev.csv "

/* Interrupts a training when its log has this text; returns the log. */
static char *interrupt(struct fixture *f, const char *words, const char *when) {
    const pid_t child = start(f, words);
    wait_for_text(f, "stderr", when);
    kill(child, SIGTERM);
    const int code = wait_for(child);
    char *text = output_of(f, "stderr");
    if (code != 130) fail_msg("exit code %d: %s", code, text);
    return text;
}

/* The copied command ends with the bits of a run that was not interrupted. */
FIXTURE_TEST(test_continued) {
    static const struct {
        const char *more, *when, *says;
    } cases[] = {
        {"--save_strategy no", "'loss'", "\nContinue   snug train --args_from out --resume_from_checkpoint True\n"},
        {"--save_steps 50", "saved", "\nContinue   snug train --args_from out --resume_from_checkpoint True\n"},
        {"--validation_file many.csv --eval_strategy steps --eval_steps 3 --save_strategy no", "'epoch': 0.01}",
         "\nContinue   snug train --args_from out --resume_from_checkpoint True\n"},
    };
    write_data(f, "long.csv", FORM_SINGLE, 4000, 3); /* 500 steps an epoch */
    write_data(f, "many.csv", FORM_SINGLE, 20000, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512], more[64];
        snprintf(words, sizeof words, LONG "--train_file long.csv --max_steps 2000 --lr_scheduler_type constant %s ",
                 cases[i].more);
        strcat(words, "--output_dir out");
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        char *text = interrupt(f, words, cases[i].when);
        assert_contains(text, cases[i].says);
        const char *saved = strstr(text, "snug: interrupted at step ");
        assert_non_null(saved);
        const long step = strtol(saved + strlen("snug: interrupted at step "), NULL, 10);
        snprintf(more, sizeof more, " --max_steps %ld --eval_strategy no", step + 3);
        run_copied(f, text, "Continue   ", 0, more);
        free(text);
        text = output_of(f, "stderr");
        assert_contains(text, "resuming from out/checkpoint-");
        free(text);
        snprintf(words, sizeof words,
                 LONG "--train_file long.csv --lr_scheduler_type constant --save_strategy no --output_dir whole%s",
                 more);
        free(run_well(f, words));
        assert_same_file(f, path_of(f, "out/model.safetensors"), path_of(f, "whole/model.safetensors"));
    }
}

/* Where nothing was saved the same command is named again, and where the training is done its evaluation. */
FIXTURE_TEST(test_not_continued) {
    write_data(f, "long.csv", FORM_SINGLE, 60000, 3);
    char *text = interrupt(f, LONG "--train_file long.csv --overwrite_cache --max_seq_length 128 --output_dir out",
                           "--max_seq_length 128 is more");
    assert_contains(text, "\nAgain      snug train --config_name model --tokenizer_name model ");
    free(text);
    text = interrupt(f, LONG "--train_file long.csv --max_steps 3000 --save_only_model --output_dir out", "'loss'");
    assert_contains(text, "\nAgain      snug train --config_name model --tokenizer_name model ");
    free(text);
    text = interrupt(f, LONG "--max_steps 2 --validation_file long.csv --save_strategy no --output_dir out",
                     "'epoch': 0.20}");
    assert_contains(text,
                    "\nEvaluate   snug eval --model_name_or_path out --validation_file long.csv --output_dir out\n");
    run_copied(f, text, "Evaluate   snug", 0, " --max_eval_samples 8");
    assert_true(exists(path_of(f, "out/eval_results.json")));
    free(text);
}

/* ---- the arguments of a folder ---------------------------------------------------------------------------------- */

static double rate_in(struct fixture *f, const char *folder) {
    char value[64];
    snug_args *args;
    assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
    assert_int_equal(snug_args_set(args, "args_from", path_of(f, "%s", folder)), SNUG_OK);
    assert_int_equal(snug_args_get(args, "learning_rate", value, sizeof value), SNUG_OK);
    snug_args_destroy(args);
    return strtod(value, NULL);
}

/* Those of the last training, whether it ended or not. */
FIXTURE_TEST(test_folder) {
    train(f, "out", "learning_rate=0.25 max_steps=6 save_strategy=steps save_steps=4");
    assert_true(rate_in(f, "out") == 0.25);
    assert_int_equal(try_train(f, "out", "learning_rate=0.125 max_steps=6", 3, NULL), SNUG_E_INTERRUPTED);
    assert_true(exists(path_of(f, "out/training_args.json"))); /* of the model before, which is still there */
    assert_true(rate_in(f, "out") == 0.125);
    assert_true(rate_in(f, "out/checkpoint-4") == 0.25);
    assert_int_equal(try_train(f, "new", "learning_rate=0.5 max_steps=6", 2, NULL), SNUG_E_INTERRUPTED);
    assert_true(rate_in(f, "new") == 0.5);
    assert_int_equal(unlink(path_of(f, "new/checkpoint-2/training_args.json")), 0);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "empty")), SNUG_OK);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "other")), SNUG_OK);
    write_text(f, "other/trainer_state.json", "{}");
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "out/checkpoint-9")), SNUG_OK); /* not snug's */
    assert_true(rate_in(f, "out") == 0.125);
    static const char *const none[] = {"new", "empty", "other"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        snug_args *args;
        assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
        assert_int_equal(snug_args_set(args, "args_from", path_of(f, "%s", none[i])), SNUG_E_INPUT);
        assert_contains(snug_error_message(f->ctx), "the folder has no training_args.json, and no checkpoint");
        snug_args_destroy(args);
    }
    assert_true(rate_in(f, "out/training_args.json") == 0.25);
}

/* A folder that was moved continues where it is, unless another --output_dir is given. */
FIXTURE_TEST(test_moved_folder) {
    static const struct {
        const char *words;
        bool moved;
    } cases[] = {
        {"args_from=@moved resume_from_checkpoint=True", true},
        {"args_from=@moved resume_from_checkpoint=auto", true},
        {"args_from=@moved/checkpoint-3 resume_from_checkpoint=auto", false},
        {"args_from=@moved output_dir=@out resume_from_checkpoint=auto", false},
        {"args_from=@moved", false},
        {"args_from=@moved resume_from_checkpoint=@moved/checkpoint-3", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "moved")), SNUG_OK);
        assert_int_equal(try_train(f, "out", "max_steps=6", 3, NULL), SNUG_E_INTERRUPTED);
        assert_int_equal(rename(path_of(f, "out"), path_of(f, "moved")), 0);
        snug_args *args = plain_args(f, cases[i].words);
        snug_train_result *result;
        if (snug_train(args, NULL, &result) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        assert_string_equal(result->output_dir, path_of(f, cases[i].moved ? "moved" : "out"));
        assert_true(exists(path_of(f, "%s/model.safetensors", cases[i].moved ? "moved" : "out")));
        assert_int_equal(snug_args_rank_count(args), 1);
        snug_train_result_destroy(result);
        snug_args_destroy(args);
    }
}

TEST_MAIN(NULL, NULL)
