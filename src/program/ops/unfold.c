/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbours of each token as columns: what a convolution over a sequence multiplies. */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const int32_t dy = snug_tape_take(t, op->unfold.y);
    if (!dy) return;
    const int32_t dx = snug_tape_new(t, op->unfold.x);
    snug_tape_emit(t, (struct snug_op){.kind = SNUG_OP_UNFOLD_BACKWARD, .unfold_backward = {.dy = dy, .dx = dx}});
    snug_tape_give(t, op->unfold.x, dx);
}

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->unfold.y);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->unfold_backward.dy);
}

const struct snug_op_info snug_op_unfold_info = {
    .name = "unfold",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0}, {"y", SNUG_WRITE, SNUG_CHEAP}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_unfold_backward_info = {
    .name = "unfold_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"dy", SNUG_READ, 0}, {"dx", SNUG_WRITE, 0}},
    .cost = backward_cost,
};
