/* SPDX-License-Identifier: Apache-2.0 */
/* The texts and arguments of each command, from which --help, the manual pages and the completion scripts are made. */
#ifndef SNUG_CLI_HELP_H
#define SNUG_CLI_HELP_H

#include "cli.h"

/* Printed where a command has arguments of the library. */
#define CLI_GRAMMAR                                                                                                    \
    "A boolean is --x, --x False or --no_x; - and _ are the same in a name; if an argument is given twice, the last "  \
    "counts. Defaults are in brackets."

/* An argument that is not one of the library. */
struct cli_option {
    const char *name, *value, *help; /* value: "" if it has none */
};

struct cli_help {
    const char *command, *usage, *does; /* command: one word, or two as in "bench rates" */
    const char *hidden;                 /* groups without effect on the command, each followed by '|' */
    const char *unused;                 /* arguments of other groups without effect */
    const char *only;                   /* NULL, or the only arguments with an effect */
    const char *common;                 /* NULL, or the arguments that most people need, which --help lists */
    struct {
        const char *name, *value;
    } own[6];                     /* defaults that differ for the command */
    const char *operand;          /* NULL, or what a word without an argument is: as value_name of snug_arg_info */
    struct cli_option options[3]; /* up to the first without a name */
};
extern const struct cli_help cli_helps[];
extern const size_t cli_help_count;

bool cli_help_concerns(const struct cli_help *help, const snug_arg_info *info);
/* As text, "" if there is none. */
const char *cli_help_default(const struct cli_help *help, const snug_arg_info *info);
/* A boolean that is on or off; another boolean may be unset, too. */
bool cli_is_flag(const snug_arg_info *info);

/* What a shell can complete a value to. */
struct cli_values {
    bool files, folders;
    char words[512]; /* separated by spaces */
};
/* From an argument's value_name: "FILE", "DIR", "A|B", "BOOL". */
void cli_find_values(const char *value_name, struct cli_values *values);

#endif
