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

/* Chooses the updates that the host computes: of weights that are offloaded with their gradients and states, from the
 * last one on, up to how->on_host of their bytes. Their states that are too small to be offloaded otherwise (absmax of
 * 8-bit states) are offloaded with them. */
void snug_choose_host_updates(struct snug_program *program, const struct snug_offload *how);

/* Moves updates of offloaded weights to the next FORWARD, before the first operation that reads the weight.
 * end: the first operation after FORWARD; ahead: as in struct snug_offload. */
snug_status snug_defer_updates(struct snug_program *program, int32_t end, int32_t ahead);

#endif
