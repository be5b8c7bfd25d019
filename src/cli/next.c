/* SPDX-License-Identifier: Apache-2.0 */
#include "next.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shell.h"

/* NULL without memory for it, or where it is not given. Freed by the caller. */
static char *value_of(const struct cli *cli, const char *name) {
    enum { LONGEST = 1 << 16 };
    char *text = malloc(LONGEST);
    if (text && snug_args_get(cli->args, name, text, LONGEST) == SNUG_OK && *text) return text;
    free(text);
    return NULL;
}

static bool is_true(const struct cli *cli, const char *name) {
    char text[16] = "";
    snug_args_get(cli->args, name, text, sizeof text);
    return strcmp(text, "True") == 0;
}

static void put_file(const struct cli *cli, const char *name, const char *other) {
    char *path = value_of(cli, other), *format = value_of(cli, "data_format");
    const bool file = path && access(path, R_OK) == 0;
    fprintf(stderr, " --%s ", name);
    if (file)
        cli_put_path(stderr, path);
    else
        fputs("FILE", stderr);
    if (file && format) fprintf(stderr, " --data_format %s", format);
    free(path);
    free(format);
}

/* What the trained model is for. The last one is for every other task. */
static const struct {
    const char *task, *command;
    const char *file; /* the argument of data; NULL: it needs none */
    const char *more;
} uses[] = {{"clm", "eval", "validation_file", ""},
            {"dpo", "generate", NULL, " --prompt \"Who are you?\""},
            {"embedding", "embed", NULL, " --similarity --text \"A man eats\" --text_pair \"Someone is eating\""},
            {NULL, "predict", "test_file", " > predictions.csv"}};

static void put_use(const struct cli *cli, const snug_train_result *result) {
    size_t i = 0;
    while (uses[i].task && strcmp(uses[i].task, result->task) != 0) i++;
    fprintf(stderr, " %s --model_name_or_path ", uses[i].command);
    cli_put_path(stderr, result->output_dir);
    if (uses[i].file) put_file(cli, uses[i].file, "validation_file");
    fputs(uses[i].more, stderr);
}

void cli_tell_next(const struct cli *cli, const snug_train_result *result) {
    fputs("Next       ", stderr);
    cli_put_program(stderr);
    put_use(cli, result);
    fputs("\n           ", stderr);
    cli_put_program(stderr);
    fputs(" report ", stderr);
    cli_put_path(stderr, result->output_dir);
    fputs(" > report.html\n", stderr);
}

static void put_folder(const struct cli *cli, const char *argument) {
    char *folder = value_of(cli, "output_dir");
    fprintf(stderr, " --%s ", argument);
    cli_put_path(stderr, folder ? folder : "DIR");
    free(folder);
}

static void put_words(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        putc(' ', stderr);
        cli_put_word(stderr, argv[i]);
    }
}

static void put_launcher(const struct cli *cli) {
    if (snug_args_rank_count(cli->args) > 1 && !snug_args_given(cli->args, "gpus"))
        fputs("           (started by the launcher as before)\n", stderr);
}

void cli_tell_continuation(const struct cli *cli, int argc, char **argv) {
    const bool resumes = cli->saved && !is_true(cli, "save_only_model");
    fputs(cli->trained ? "Evaluate   " : resumes ? "Continue   " : "Again      ", stderr);
    cli_put_program(stderr);
    if (cli->trained) {
        fputs(" eval", stderr);
        put_folder(cli, "model_name_or_path");
        put_file(cli, "validation_file", "validation_file");
        put_folder(cli, "output_dir");
    } else if (resumes) {
        fputs(" train", stderr);
        put_folder(cli, "args_from");
        fputs(" --resume_from_checkpoint True", stderr);
    } else {
        put_words(argc, argv);
    }
    putc('\n', stderr);
    put_launcher(cli);
}

void cli_tell_fitting(const struct cli *cli, const char *message) {
    static const char *const commands[] = {"train", "plan", "eval", "predict"}, before[] = "; add --";
    const char *add = NULL;
    bool known = false;
    for (const char *at = message; (at = strstr(at, before)); at += sizeof before - 1) add = at + sizeof before - 3;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) known |= strcmp(cli->argv[0], commands[i]) == 0;
    if (!add || !known || snug_args_rank(cli->args) > 0) return;
    fputs("Try        ", stderr);
    cli_put_program(stderr);
    put_words(cli->argc, cli->argv);
    fprintf(stderr, " %s\n", add);
    put_launcher(cli);
}
