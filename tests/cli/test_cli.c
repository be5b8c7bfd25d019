/* SPDX-License-Identifier: Apache-2.0 */
/* The program itself: help, wrong usage, exit codes, and an empty stdout after a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "test.h"

/* Runs snug in the shell; returns its exit code and what the redirections left on stdout. */
static int run(const char *arguments, char *output, size_t size) {
    char command[1024];
    snprintf(command, sizeof command, "'%s/snug' %s", SNUG_BINARY_DIR, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(output, 1, size - 1, pipe);
    output[length] = '\0';
    while (getc(pipe) != EOF) continue;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(const char *arguments, int code, const char *says) {
    char output[65536], command[512];
    snprintf(command, sizeof command, "%s 2>&1", arguments);
    int found = run(command, output, sizeof output);
    if (found != code) fail_msg("snug %s: exit code %d, not %d; %s", arguments, found, code, output);
    if (!strstr(output, says)) fail_msg("snug %s: does not print \"%s\": %s", arguments, says, output);
}

TEST(test_help) {
    static const char *const commands[] = {"train", "eval", "predict", "plan", "tokenize", "verify"};
    expect("--version", 0, "snug 0.");
    expect("-V", 0, "snug 0.");
    expect("eval --model_name_or_path none --validation_file x.csv --learning_rate 1 --log_level info", 1,
           "--learning_rate has no effect on snug eval");
    char output[4096]; /* a default asks for nothing: dumps of all arguments have it */
    assert_int_equal(
        run("eval --model_name_or_path none --validation_file x.csv --learning_rate 5e-5 --warmup_steps 3 2>&1", output,
            sizeof output),
        1);
    assert_null(strstr(output, "--learning_rate"));
    assert_non_null(strstr(output, "--warmup_steps has no effect on snug eval"));
    expect("", 2, "usage: snug COMMAND");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char arguments[64], usage[64];
        expect("--help", 0, commands[i]);
        snprintf(arguments, sizeof arguments, "%s --help", commands[i]);
        const int named = strcmp(commands[i], "train") == 0 || strcmp(commands[i], "tokenize") == 0;
        snprintf(usage, sizeof usage, "usage: snug %s %s", commands[i], named ? "--model_name_or_path DIR" : "MODEL");
        expect(arguments, 0, usage);
        expect(arguments, 0, "--max_seq_length N");
    }
    expect("train --help all", 0, "--lr_scheduler_type");
    expect("train --help=all", 0, "--lr_scheduler_type");
    expect("help train all", 0, "--lr_scheduler_type");
    expect("train --help", 0, "snug train --help all lists all 1");
    expect("train --help --fit", 0, "snug train --help all lists all 1");
    expect("help train", 0, "snug train --help all lists all 1");
    char shorter[16384];
    assert_int_equal(run("train --help", shorter, sizeof shorter), 0);
    assert_null(strstr(shorter, "--lr_scheduler_type"));
    expect("train -h all", 0, "one of linear|cosine|");
    expect("train -h", 0, "--fit ");
    expect("help train", 0, "usage: snug train --model_name_or_path DIR");
    expect("help trian", 2, "the nearest is train");
    expect("help", 0, "usage: snug COMMAND");
    expect("-h", 0, "usage: snug COMMAND");
    expect("bench -h", 0, "usage: snug bench rates");
    expect("gpu -h", 0, "usage: snug gpu");
    expect("gpu --watch=3 --help --watch", 0, "usage: snug gpu");
    expect("bench --help", 0, "usage: snug bench rates");
    expect("bench rates --help", 0, "usage: snug bench rates [--threads N]");
    expect("bench anatomy --help", 0, "usage: snug bench anatomy [--config_name NAME]");
    expect("doctor --help", 0, "usage: snug doctor [--device auto|cpu|cuda]");
}

/* No line is wider than most terminals; arguments with a default of the command are listed with it, and arguments
 * without effect on it are not listed. */
TEST(test_help_of_each_command) {
    static const struct {
        const char *command, *says[4], *silent;
    } cases[] = {
        {"train", {"[trainer_output]", "one of linear|cosine|"}, "--test_file"},
        {"eval", {"--validation_file FILE"}, "--recompute"},
        {"predict", {"--test_file FILE"}, "--validation_file"},
        {"plan", {"--fit"}, "--test_file"},
        {"verify", {"-1: unset [6]", "[synthetic rows]", "[TMPDIR, else /tmp"}, "--validation_file"},
        {"tokenize", {"--max_seq_length N"}, "--learning_rate"},
        {"pull", {"usage: snug pull MODEL", "--cache_dir DIR", "[main]"}, "--learning_rate"},
        {"bench rates", {"--threads N"}, "--learning_rate"},
        {"bench anatomy",
         {"[bert-large-uncased", "[dummy:512x512]", "batch size of a micro-batch [4]", "[on a CPU 3"},
         "--output_dir"},
        {"doctor", {"--fp16"}, "--learning_rate"},
        {"gpu", {"--watch"}, "--learning_rate"},
        {"completion", {"bash|zsh|fish"}, "--learning_rate"},
        {"report", {"usage: snug report RUN [RUN"}, "--learning_rate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[64], output[65536];
        snprintf(arguments, sizeof arguments, "%s --help all", cases[i].command);
        for (int k = 0; k < 4 && cases[i].says[k]; k++) expect(arguments, 0, cases[i].says[k]);
        assert_int_equal(run(arguments, output, sizeof output), 0);
        char name[64];
        snprintf(name, sizeof name, "\n  %s ", cases[i].silent);
        if (strstr(output, name)) fail_msg("snug %s: lists %s", arguments, cases[i].silent);
        for (char *rest = output, *line; (line = strsep(&rest, "\n"));)
            if (strlen(line) > 120) fail_msg("snug %s: %zu columns: %s", arguments, strlen(line), line);
    }
}

/* Results that another command gives; what is refused is not reported as without effect. */
TEST(test_other_commands) {
    static const char *const arguments[] = {"train --text w",
                                            "train --text_pair w",
                                            "train --keep_columns all",
                                            "train --return_all_scores",
                                            "train --top_k 2",
                                            "train --test_file x",
                                            "eval --text w",
                                            "eval --keep_columns all",
                                            "eval --test_file x",
                                            "predict --train_file x"};
    char output[65536], says[64], command[64];
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        const char *name = strchr(arguments[i], '-');
        snprintf(says, sizeof says, "snug: %.*s", (int)strcspn(name, " "), name);
        snprintf(command, sizeof command, "%s 2>&1", arguments[i]);
        if (run(command, output, sizeof output) != 2 || !strstr(output, says) || strstr(output, "no effect"))
            fail_msg("snug %s: %s", arguments[i], output);
    }
}

/* tests/package/test_package.sh runs the scripts and checks the pages. */
TEST(test_completion_and_manual) {
    expect("--help", 0, "completion print the completion script");
    expect("help completion", 0, "usage: snug completion bash|zsh|fish");
    expect("completion -h", 0, "usage: snug completion bash|zsh|fish");
    expect("completion bash", 0, "complete -F _snug snug");
    expect("completion zsh", 0, "#compdef snug");
    expect("completion zsh", 0, "'--report_to=[integrations to report logs to]:value:(none tensorboard all)'");
    expect("completion fish", 0, "-l fp16 -d 'fp16 mixed precision");
    expect("completion", 2, "name one shell: bash, zsh or fish");
    expect("completion tcsh", 2, "name one shell");
    expect("completion bash zsh", 2, "name one shell");
    assert_int_equal(run("completion bash 2>&1 >/dev/full", (char[512]){0}, 512), 1);
    expect("manual", 2, "usage: snug manual FOLDER");
    expect("manual --help", 2, "usage: snug manual FOLDER");
    expect("manual /nowhere", 1, "snug manual: /nowhere/snug.1: No such file");
    expect("manual $(printf %04096d 0)", 1, "File name too long");
    expect("manual \"${folder:=$(mktemp -d)}\" && cat \"$folder/snug-gpu.1\"; rm -r \"$folder\"", 0, "\\-\\-watch");
}

TEST(test_wrong_usage) {
    expect("--versoin", 2,
           "snug: --versoin: a command comes first, as in snug train; snug --help lists all, snug --version");
    expect("--train_file x.csv --do_train", 2, "--train_file: a command comes first, as in snug train");
    expect("trian", 2, "snug: trian: unknown command; the nearest is train");
    expect("tokenise", 2, "the nearest is tokenize");
    expect("predictt", 2, "the nearest is predict");
    expect("prediction", 2, "prediction: unknown command; give snug predict");
    expect("finetune", 2, "give snug train\n");
    expect("test", 2, "give snug eval\n");
    expect("examples/run_ner.py", 2, "give snug train --task token_classification\n");
    expect("serve", 2, "snug has no server");
    expect("xyzzy", 2, "xyzzy: unknown command; snug --help lists all");
    expect("eval", 2, "--model_name_or_path DIR and --validation_file FILE; for example: snug eval --model");
    expect("eval none", 2, "snug eval needs --validation_file FILE; for example: snug eval");
    expect("predict none", 2, "snug predict needs --test_file FILE (or --text TEXT); for example: snug predict");
    expect("predict", 2, "--model_name_or_path DIR and --test_file FILE (or --text TEXT); for example: snug predict");
    expect("train --lerning_rate 1", 2, "the nearest is --learning_rate");
    expect("train --lerning_rate 1", 2, "snug train --help");
    expect("train --learning_rate abc", 2, "--learning_rate abc: must be a number");
    expect("train --torch_compile", 2,
           "--torch_compile: a Hugging Face argument without effect in snug: snug's kernels");
    expect("train file.csv", 2, "must begin with --");
    expect("train", 2,
           "snug train needs --model_name_or_path DIR (or --config_name DIR, to train from scratch) and "
           "--train_file FILE; for example: snug train --model_name_or_path ");
    expect("eval", 2, "snug eval needs --model_name_or_path");
    expect("predict --model_name_or_path x", 2, "snug predict needs --test_file");
    expect("tokenize --model_name_or_path x", 2, "snug tokenize needs --test_file");
    expect("bench", 2, "usage: snug bench rates");
    expect("bench speed", 2, "speed: unknown bench; the benches are anatomy and rates");
    expect("bench anatomy --validation_file x", 2, "snug bench anatomy only trains");
    expect("gpu --everything", 2, "--everything is not a valid argument");
    expect("gpu --watch --everything", 2, "--everything is not a valid argument");
    expect("gpu --watch=", 2, "--watch= is not a valid argument");
    expect("gpu --watch=1x", 2, "--watch=1x is not a valid argument");
    expect("gpu --watch=inf", 2, "--watch=inf is not a valid argument");
    expect("gpu --watch=0.01", 2, "--watch=0.01 is not a valid argument");
    expect("gpu --watch=100000", 2, "--watch=100000 is not a valid argument");
    expect("doctor --device tpu", 2, "--device tpu");
    expect("bench rates --threads many", 2, "--threads many: must be a whole number");
    expect("plan --config_name bert-base-uncased --train_file dummy:99999999999x9", 2, "too many to be planned");
    expect("plan --config_name bert-base-uncased --train_file dummy:99999999999x5-9", 2, "too many to be planned");
    expect("plan", 2, "snug plan needs --model_name_or_path");
    expect("train --model_name_or_path x --train_file y --eval_strategy epoch", 2, "--validation_file");
}

/* Sizes of OpenMP's stacks, those included that it ignores, and fewer threads than asked for. */
TEST(test_variables_of_openmp) {
    static const char *const sizes[] = {"512", "4m", "-1", "4x"};
    static const char plan[] = "plan --config_name bert-base-uncased --train_file dummy:8x8 --threads 2";
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        setenv("OMP_STACKSIZE", sizes[i], 1);
        expect(plan, 0, "Model      BERT");
    }
    setenv("OMP_STACKSIZE", "9999999999999", 1);
    expect(plan, 1, "2 threads are needed, but only 1 can run at the same time");
    unsetenv("OMP_STACKSIZE");
    setenv("OMP_THREAD_LIMIT", "1", 1);
    expect(plan, 0, "OpenMP runs 1 of 2 threads");
    unsetenv("OMP_THREAD_LIMIT");
}

/* Threads that wait spin briefly unless a user decides: the program starts itself again with the variable. */
TEST(test_waiting) {
    const char *policy = getenv("OMP_WAIT_POLICY");
    char *kept = policy ? strdup(policy) : NULL;
    unsetenv("OMP_WAIT_POLICY");
    expect("doctor", 0, "then sleep: GOMP_SPINCOUNT=1000\n");
    setenv("GOMP_SPINCOUNT", "70", 1);
    expect("doctor", 0, "then sleep: GOMP_SPINCOUNT=70\n");
    unsetenv("GOMP_SPINCOUNT");
    setenv("OMP_WAIT_POLICY", "active", 1);
    expect("doctor", 0, "Waiting    OMP_WAIT_POLICY=active\n");
    unsetenv("OMP_WAIT_POLICY");
    if (kept) setenv("OMP_WAIT_POLICY", kept, 1);
    free(kept);
}

TEST(test_plan_as_text) {
    expect("plan --config_name bert-base-uncased --train_file dummy:8x8", 0, "Model      BERT, 12 layers, hidden 768");
    expect("plan --config_name bert-base-uncased --train_file dummy:8x8 --freeze base_model --load_in_4bit", 0,
           "M parameters as NF4 codes, 4.13 bits each");
    expect("plan --config_name bert-base-uncased --train_file dummy:8x8 --freeze embeddings", 0,
           "\nFrozen     23.8 M parameters: no gradients (");
    char output[256]; /* a pipe without a reader or a full disk is reported by the exit code */
    assert_int_equal(
        run("plan --config_name bert-base-uncased --train_file dummy:8x8 2>&1 >/dev/full", output, sizeof output), 1);
    assert_non_null(strstr(output, "No space left"));
    assert_int_equal(run("gpu --watch 2>&1 >/dev/full", output, sizeof output), 1); /* and not forever */
    assert_non_null(strstr(output, "No space left"));
}

TEST(test_failure_leaves_stdout_empty) {
    static const char *const jobs[] = {
        "predict --model_name_or_path /nonexistent --test_file /nonexistent.csv",
        "predict --json --model_name_or_path /nonexistent --test_file /nonexistent.csv",
        "eval --model_name_or_path /nonexistent --validation_file /nonexistent.csv",
        "tokenize --model_name_or_path /nonexistent --test_file /nonexistent.csv",
        "plan --model_name_or_path /nonexistent",
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        char output[256], command[512];
        expect(jobs[i], 1, "/nonexistent");
        snprintf(command, sizeof command, "%s 2>/dev/null", jobs[i]);
        assert_int_equal(run(command, output, sizeof output), 1);
        assert_string_equal(output, "");
    }
}

TEST(test_full_and_closed_stdout) {
    char output[256];
    assert_int_equal(run("train --help 2>&1 >/dev/full", output, sizeof output), 1);
    assert_non_null(strstr(output, "No space left"));
    assert_int_equal(run("train --help 2>&1 >/dev/null", output, sizeof output), 0);
    assert_string_equal(output, "");
}

TEST_MAIN(NULL, NULL)
