/* SPDX-License-Identifier: Apache-2.0 */
/* What the update stage passes to the code that places updates. */
#ifndef SNUG_PLAN_UPDATE_H
#define SNUG_PLAN_UPDATE_H

#include "plan/stages.h"

/* The norm and the update of one weight, as they are after an ordinary backward. */
struct snug_weight_update {
    struct snug_op norm, update;
};
struct snug_updates {
    struct snug_weight_update *items;
    size_t count;
    int32_t sums; /* sums of squares, a slot for each item */
};

/* Inserts them into backward; see in_backward.c. */
snug_status snug_update_in_backward(struct snug_program *program, const struct snug_methods *methods,
                                    const struct snug_updates *updates);

#endif
