/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a training: connecting them, and ending them after a failure. Rank 0 logs and writes files. */
#ifndef SNUG_TRAIN_GROUP_H
#define SNUG_TRAIN_GROUP_H

#include "args/args.h"

/* Connects the ranks, if the launcher started several: args->group. Afterwards the log of other ranks than 0 has
 * warnings and errors only, with the rank's number. SNUG_E_UNSUPPORTED: arguments that several ranks do not support
 * yet, or ranks that cannot be connected. */
snug_status snug_group_join(struct snug_args *args);
/* Refuses a command that runs in one process if the launcher started several. */
snug_status snug_group_alone(const struct snug_args *args, const char *command);
/* After a failure of a run on several ranks: waits for ranks of lower numbers that may report the same; puts rank, host
 * and step (negative: none) before the message, and returns status. */
snug_status snug_group_fail(struct snug_args *args, const snug_callbacks *callbacks, snug_status status, int64_t step);

#endif
