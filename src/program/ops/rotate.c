/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const int32_t dy = snug_tape_take(t, op->rotate.y);
    if (!dy) return;
    struct snug_op backward = *op;
    backward.rotate.x = dy;
    backward.rotate.y = snug_tape_is_free(t, dy) ? dy : snug_tape_new(t, op->rotate.x);
    backward.rotate.back = !op->rotate.back;
    snug_tape_emit(t, backward);
    snug_tape_give(t, op->rotate.x, backward.rotate.y);
}

/* Three operations per element. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    const struct snug_rotate *r = &op->rotate;
    const double share = (double)r->heads * r->head_dim / snug_cost_columns(view, r->x);
    view->cost.flops = 3 * share * snug_cost_elements(view, r->x);
    if (r->x == r->y) view->cost.bytes *= share;
}

const struct snug_op_info snug_op_rotate_info = {
    .name = "rotate",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0}, {"y", SNUG_WRITE, SNUG_CHEAP}},
    .differentiate = differentiate,
    .cost = cost,
};
