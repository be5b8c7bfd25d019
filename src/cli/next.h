/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that follow a run, to be copied into a shell. */
#ifndef SNUG_CLI_NEXT_H
#define SNUG_CLI_NEXT_H

#include "cli.h"

/* What to do with the trained model: predict, or evaluate a causal language model; report. */
void cli_tell_next(const struct cli *cli, const snug_train_result *result);
/* How a training that was interrupted continues; argv[0] is the command's name. */
void cli_tell_continuation(const struct cli *cli, int argc, char **argv);
/* This command with the arguments that the message of a run that does not fit ends with: "; add --fit". */
void cli_tell_fitting(const struct cli *cli, const char *message);

#endif
