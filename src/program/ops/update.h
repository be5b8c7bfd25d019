/* SPDX-License-Identifier: Apache-2.0 */
/* What the descriptors of all updates share. */
#ifndef SNUG_PROGRAM_OPS_UPDATE_H
#define SNUG_PROGRAM_OPS_UPDATE_H

#include "program/cost.h"

/* The operands of struct snug_update; flags_2: of the last two states. */
#define SNUG_UPDATE_OPERANDS(state_0, state_1, state_2, state_3, flags_2)                                              \
    {                                                                                                                  \
        {"g", SNUG_READ, SNUG_OPTIONAL | SNUG_PARTED}, {"clip", SNUG_READ, SNUG_OPTIONAL},                             \
            {"index", SNUG_READ, SNUG_OPTIONAL | SNUG_ROW_INDEX}, {"weight", SNUG_MODIFY, 0},                          \
            {"copy", SNUG_WRITE, SNUG_OPTIONAL}, {state_0, SNUG_MODIFY, SNUG_OPTIONAL},                                \
            {state_1, SNUG_MODIFY, SNUG_OPTIONAL}, {state_2, SNUG_MODIFY, SNUG_OPTIONAL | (flags_2)},                  \
            {state_3, SNUG_MODIFY, SNUG_OPTIONAL | (flags_2)}, {"updated", SNUG_MODIFY, SNUG_OPTIONAL},                \
            {"history", SNUG_MODIFY, SNUG_OPTIONAL},                                                                   \
    }

static inline void snug_update_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = SNUG_UPDATE_FLOPS * snug_cost_elements(view, op->update.g);
}

/* The descriptor of an update: flags besides UPDATES, the names of its states, and what SNUG_UPDATE_OPERANDS says. */
#define SNUG_UPDATE_INFO(update, more, cost_of, ...)                                                                   \
    const struct snug_op_info snug_op_##update##_info = {                                                              \
        .name = #update,                                                                                               \
        .group = SNUG_GROUP_ELEMENTWISE,                                                                               \
        .flags = SNUG_OP_UPDATES | (more),                                                                             \
        .operands = SNUG_UPDATE_OPERANDS(__VA_ARGS__),                                                                 \
        .cost = cost_of,                                                                                               \
    }

#endif
