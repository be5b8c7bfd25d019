/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --class_weights: the weight of each class's loss. One label: torch.nn.CrossEntropyLoss(weight=…), whose mean divides
 * by the sum of the items' weights. Several labels: torch.nn.BCEWithLogitsLoss(pos_weight=…).
 */
#ifndef SNUG_ARGS_CLASS_WEIGHTS_H
#define SNUG_ARGS_CLASS_WEIGHTS_H

#include "args/args.h"
#include "data/task.h"

/* Refuses what no data can make right. trains: the command reads training rows, from which `balanced` follows. */
snug_status snug_class_weights_check(const struct snug_args *args, bool trains);

/*
 * The weights [labels->count] that the argument gives; NULL without it. train: the rows that are trained on, bound to
 * labels; without them (a plan without data) balanced weights are 1. Freed by the caller.
 */
snug_status snug_class_weights_find(const struct snug_args *args, enum snug_task task, const struct snug_labels *labels,
                                    const struct snug_dataset *train, float **out);

#endif
