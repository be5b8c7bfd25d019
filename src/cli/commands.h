/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands. */
#ifndef SNUG_CLI_COMMANDS_H
#define SNUG_CLI_COMMANDS_H

#include <stddef.h>

struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit code */
    const char *does;                  /* NULL: not listed; a build without libcurl has no pull, and pull says so */
};
extern const struct cli_command cli_commands[];
extern const size_t cli_command_count;

#endif
