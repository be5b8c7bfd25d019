/* SPDX-License-Identifier: Apache-2.0 */
/* Words of commands that the user copies into a shell. */
#ifndef SNUG_CLI_SHELL_H
#define SNUG_CLI_SHELL_H

#include <stdio.h>

/* Quoted where a shell would change it. */
void cli_put_word(FILE *out, const char *word);
void cli_put_path(FILE *out, const char *path);
/* The program, as it was called. */
void cli_put_program(FILE *out);

#endif
