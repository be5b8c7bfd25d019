/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const int32_t dy = snug_tape_take(t, op->dropout.y);
    if (!dy) return;
    const int32_t dx = snug_tape_is_free(t, dy) ? dy : snug_tape_new(t, op->dropout.x);
    snug_tape_emit(
        t, (struct snug_op){.kind = SNUG_OP_DROPOUT, .p = op->p, .site = op->site, .dropout = {.x = dy, .y = dx}});
    snug_tape_give(t, op->dropout.x, dx);
}

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->dropout.y);
}

const struct snug_op_info snug_op_dropout_info = {
    .name = "dropout",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0}, {"y", SNUG_WRITE, SNUG_CHEAP}},
    .differentiate = differentiate,
    .cost = cost,
};
