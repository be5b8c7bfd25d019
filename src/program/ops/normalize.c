/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_normalize *n = &op->normalize;
    const int32_t dy = snug_tape_take(t, n->y);
    if (!dy) return;
    const int32_t dx = snug_tape_new(t, n->x);
    snug_tape_emit(t, (struct snug_op){.kind = SNUG_OP_NORMALIZE_BACKWARD,
                                       .normalize_backward = {.dy = dy, .x = n->x, .dx = dx, .unit = n->unit}});
    snug_tape_give(t, n->x, dx);
}

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 3 * snug_cost_elements(view, op->normalize.y);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 8 * snug_cost_elements(view, op->normalize_backward.dx);
}

const struct snug_op_info snug_op_normalize_info = {
    .name = "normalize",
    .group = SNUG_GROUP_NORMALIZATION,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0}, {"y", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_normalize_backward_info = {
    .name = "normalize_backward",
    .group = SNUG_GROUP_NORMALIZATION,
    .operands = {{"dy", SNUG_READ, 0}, {"x", SNUG_READ, 0}, {"dx", SNUG_WRITE, 0}},
    .cost = backward_cost,
};
