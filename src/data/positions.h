/* SPDX-License-Identifier: Apache-2.0 */
/* How many loss positions a batch has: the rows of the task's head. */
#ifndef SNUG_DATA_POSITIONS_H
#define SNUG_DATA_POSITIONS_H

#include "data/task.h"

/* Loss positions of a mean batch with these numbers of sequences and tokens. dataset is NULL in a plan without data. */
double snug_task_positions(const struct snug_task_info *task, const struct snug_loader_options *options,
                           const struct snug_dataset *dataset, double sequences, double tokens);
/* The same where each token is predicted from those before it: the function of several tasks. */
double snug_causal_positions(const struct snug_loader_options *options, const struct snug_dataset *dataset,
                             double sequences, double tokens);

#endif
