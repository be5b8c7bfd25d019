/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

/* Rows are added to dx, in HEAD chunk by chunk, so dx is cleared before the first chunk unless another operation has
   written it. */
static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const int32_t dr = snug_tape_take(t, op->gather.r), x = op->gather.x;
    if (!dr) return;
    const bool head = t->phase == SNUG_PHASE_HEAD;
    bool accumulate;
    const int32_t dx = snug_tape_target(t, x, dr, &accumulate);
    if (head && !accumulate && t->gradient[x]) snug_tape_refuse(t, x, "its gradient is also another tensor's");
    if (!accumulate) snug_tape_clear(t, dx, head ? SNUG_PHASE_FORWARD : t->phase, false);
    snug_tape_emit(t, (struct snug_op){.kind = SNUG_OP_GATHER_BACKWARD, .gather_backward = {.dr = dr, .dx = dx}});
    snug_tape_give(t, x, dx);
}

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    const bool sums = snug_pool_sums(view->program->tensors[op->gather.r].pooling);
    view->cost.flops = snug_cost_elements(view, sums ? op->gather.x : op->gather.r);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->gather_backward.dx);
}

const struct snug_op_info snug_op_gather_info = {
    .name = "gather",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0}, {"r", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_gather_backward_info = {
    .name = "gather_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"dr", SNUG_READ, 0}, {"dx", SNUG_MODIFY, 0}},
    .cost = backward_cost,
};
