/* SPDX-License-Identifier: Apache-2.0 */
/* snug manual FOLDER: writes the manual pages, for the build. One page per command, and snug(1), as git has them. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "help.h"

/* Escapes what roff would interpret: hyphens (else typographic), backslashes, periods and quotes that begin a line. */
static void put_text(FILE *page, const char *text) {
    static const char special[] = "-\\", *const escaped[] = {"\\-", "\\e"};
    if (strchr(".'", *text)) fputs("\\&", page);
    for (const char *found; *text; text++) {
        if ((found = strchr(special, *text)))
            fputs(escaped[found - special], page);
        else
            putc(*text, page);
    }
}

static void put_title(FILE *page, const char *name) {
    fputs("'\\\" -*- coding: UTF-8 -*-\n.TH \"", page);
    for (; *name; name++) putc(toupper((unsigned char)*name), page);
    fputs("\" 1 \"\" \"snug " SNUG_VERSION "\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n", page);
}

/* A paragraph with a tag: bold, with a value in italics. */
static void put_tag(FILE *page, const char *tag, const char *value) {
    fputs(".TP\n\\fB", page);
    put_text(page, tag);
    fputs("\\fR", page);
    if (*value) {
        fputs(" \\fI", page);
        for (; *value; value++) { /* long lists may be broken after each choice */
            char one[] = {*value, '\0'};
            put_text(page, one);
            if (*value == '|') fputs("\\:", page);
        }
        fputs("\\fR", page);
    }
    putc('\n', page);
}

static void put_argument(FILE *page, const struct cli_help *help, const snug_arg_info *info) {
    char tag[128];
    snprintf(tag, sizeof tag, "--%s", info->name);
    put_tag(page, tag, cli_is_flag(info) ? "" : info->value_name);
    put_text(page, info->help);
    const char *value = cli_help_default(help, info);
    if (*value) {
        fputs(" [", page);
        put_text(page, value);
        putc(']', page);
    }
    if (*info->aliases) {
        fputs(" (also \\-\\-", page);
        put_text(page, info->aliases);
        putc(')', page);
    }
    putc('\n', page);
}

static void put_options(FILE *page, const struct cli_help *help) {
    const char *group = NULL;
    const snug_arg_info *info;
    for (const struct cli_option *option = help->options; option->name; option++) {
        char tag[128];
        snprintf(tag, sizeof tag, "--%s", option->name);
        put_tag(page, tag, option->value);
        put_text(page, option->help);
        putc('\n', page);
    }
    for (size_t i = 0; (info = snug_args_info(i)); i++) {
        if (!cli_help_concerns(help, info)) continue;
        if (!group) {
            put_text(page, CLI_GRAMMAR);
            putc('\n', page);
        }
        if (!group || strcmp(group, info->group) != 0) {
            fputs(".SS ", page);
            put_text(page, info->group);
            putc('\n', page);
        }
        group = info->group;
        put_argument(page, help, info);
    }
}

/* The next row of the texts whose command is this one, or begins with it and a space; NULL after the last. */
static const struct cli_help *next_row(const char *command, const struct cli_help *after) {
    const size_t length = strlen(command);
    for (const struct cli_help *row = after ? after + 1 : cli_helps; row < cli_helps + cli_help_count; row++)
        if (strcspn(row->command, " ") == length && strncmp(row->command, command, length) == 0) return row;
    return NULL;
}

static void put_synopsis(FILE *page, const struct cli_help *row) {
    fputs("\\fBsnug ", page);
    put_text(page, row->command);
    fputs("\\fR ", page);
    put_text(page, row->usage);
    putc('\n', page);
}

static void write_command(FILE *page, const struct cli_command *command) {
    char name[64];
    snprintf(name, sizeof name, "snug-%s", command->name);
    put_title(page, name);
    fprintf(page, "snug\\-%s \\- ", command->name);
    put_text(page, command->does);
    fputs("\n.SH SYNOPSIS\n", page);
    for (const struct cli_help *row = NULL; (row = next_row(command->name, row));) {
        put_synopsis(page, row);
        fputs(".br\n", page);
    }
    for (const struct cli_help *row = NULL; (row = next_row(command->name, row));) {
        /* A command of two words has a section on each. */
        fprintf(page, ".SH %s\n", strchr(row->command, ' ') ? row->command : "DESCRIPTION");
        put_text(page, row->does);
        putc('\n', page);
        if (!strchr(row->command, ' ')) fputs(".SH OPTIONS\n", page);
        fputs(".PP\n", page);
        put_options(page, row);
    }
    fputs(".SH SEE ALSO\n.BR snug (1)\n", page);
}

/* The main page's texts; docs/command-line.md has more. */
static const struct cli_option exit_codes[] = {
    {"0", "", "Done."},
    {"1", "", "Failed: input, files, memory, losses or gradients that stay NaN or infinite."},
    {"2", "", "Wrong usage: an argument that is not accepted, or that is not supported."},
    {"3", "",
     "The plan exceeds the memory budget or the available memory; nothing was allocated. snug plan prints it first."},
    {"130", "", "Interrupted by a signal; a training has saved a checkpoint."},
};
static const struct cli_option variables[] = {
    {"SNUG_CACHE", "", "Folder of token caches and measured rates; else XDG_CACHE_HOME/snug, else ~/.cache/snug."},
    {"SNUG_RATES", "", "File of rates to use instead of this machine's."},
    {"HF_HOME, HF_HUB_CACHE", "", "The Hugging Face cache, where models are looked up by their names."},
    {"HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE", "", "For snug pull, with huggingface_hub's meaning."},
    {"CUDA_VISIBLE_DEVICES", "", "The GPUs that may be used; the first is."},
    {"OMP_WAIT_POLICY", "", "passive: waiting threads and CPU ranks do not spin, for a machine that runs other work."},
    {"NO_COLOR", "", "Plain progress on a terminal."},
};

static void put_list(FILE *page, const char *title, const struct cli_option *list, size_t count) {
    fprintf(page, ".SH %s\n", title);
    for (size_t i = 0; i < count; i++) {
        put_tag(page, list[i].name, "");
        put_text(page, list[i].help);
        putc('\n', page);
    }
}

static void write_main(FILE *page, const struct cli_command *command) {
    (void)command;
    put_title(page, "snug");
    fputs("snug \\- fine\\-tune transformers in the memory you have\n"
          ".SH SYNOPSIS\n\\fBsnug\\fR \\fICOMMAND\\fR [\\-\\-argument value]\n.br\n"
          "\\fBsnug help\\fR [\\fICOMMAND\\fR]\n.br\n\\fBsnug \\-\\-version\\fR\n"
          ".SH DESCRIPTION\nReads a Hugging Face model folder and a text file, trains on a CPU or an NVIDIA GPU, and "
          "writes a "
          "Hugging Face model folder. Arguments are those of Hugging Face's Trainer. Results go to standard output, "
          "messages to standard error.\n.SH COMMANDS\n",
          page);
    for (size_t i = 0; i < cli_command_count; i++) {
        if (!cli_commands[i].does) continue;
        fprintf(page, ".TP\n.BR snug\\-%s (1)\n", cli_commands[i].name);
        put_text(page, cli_commands[i].does);
        putc('\n', page);
    }
    put_list(page, "EXIT STATUS", exit_codes, sizeof exit_codes / sizeof *exit_codes);
    put_list(page, "ENVIRONMENT", variables, sizeof variables / sizeof *variables);
    fputs(".SH EXAMPLES\n.nf\nsnug pull distilbert/distilbert\\-base\\-uncased\n"
          "snug train \\-\\-model_name_or_path distilbert/distilbert\\-base\\-uncased \\e\n"
          "    \\-\\-train_file train.tsv \\-\\-validation_file dev.tsv \\-\\-output_dir out\n"
          "snug predict \\-\\-model_name_or_path out \\-\\-test_file test.tsv > predictions.csv\n.fi\n",
          page);
}

/* Writes FOLDER/snug-COMMAND.1, or FOLDER/snug.1 without a command. */
static bool write_page(const char *folder, const struct cli_command *command,
                       void (*write)(FILE *page, const struct cli_command *command)) {
    char path[4096];
    const int length =
        snprintf(path, sizeof path, "%s/snug%s%s.1", folder, command ? "-" : "", command ? command->name : "");
    errno = ENAMETOOLONG;
    FILE *page = length < (int)sizeof path ? fopen(path, "w") : NULL;
    if (page) {
        write(page, command);
        const bool failed = ferror(page);
        if (fclose(page) == 0 && !failed) return true;
    }
    fprintf(stderr, "snug manual: %s: %s\n", path, strerror(errno));
    return false;
}

int command_manual(int argc, char **argv) {
    if (argc != 2 || argv[1][0] == '-') {
        fputs("usage: snug manual FOLDER\n\nWrites the manual pages into FOLDER.\n", stderr);
        return EXIT_USAGE;
    }
    bool written = write_page(argv[1], NULL, write_main);
    for (size_t i = 0; i < cli_command_count && written; i++)
        if (cli_commands[i].does) written = write_page(argv[1], &cli_commands[i], write_command);
    return written ? EXIT_DONE : EXIT_FAILED;
}
