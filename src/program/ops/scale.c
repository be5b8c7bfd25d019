/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_scale *s = &op->scale;
    const int32_t dy = snug_tape_take(t, s->y);
    if (!dy) return;
    if (s->softcap > 0 && s->addend) snug_tape_refuse(t, s->y, "the capped value is not stored");
    if (s->scale == 1 && s->softcap == 0) {
        snug_tape_give_both(t, s->x, s->addend, dy);
        return;
    }
    if (snug_tape_needs(t, s->x)) {
        const bool alone = snug_tape_is_free(t, dy) && !snug_tape_needs(t, s->addend);
        const int32_t dx = alone ? dy : snug_tape_new(t, s->x);
        if (s->softcap > 0)
            snug_tape_emit(
                t, (struct snug_op){
                       .kind = SNUG_OP_SCALE_BACKWARD,
                       .scale_backward = {.dy = dy, .y = s->y, .dx = dx, .scale = s->scale, .softcap = s->softcap}});
        else
            snug_tape_emit(t, (struct snug_op){.kind = SNUG_OP_SCALE, .scale = {.x = dy, .y = dx, .scale = s->scale}});
        snug_tape_give(t, s->x, dx);
    }
    if (s->addend) snug_tape_give(t, s->addend, dy);
}

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 2 * snug_cost_elements(view, op->scale.y);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 4 * snug_cost_elements(view, op->scale_backward.dx);
}

const struct snug_op_info snug_op_scale_info = {
    .name = "scale",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0}, {"addend", SNUG_READ, SNUG_OPTIONAL}, {"y", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_scale_backward_info = {
    .name = "scale_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"dy", SNUG_READ, 0}, {"y", SNUG_READ, 0}, {"dx", SNUG_WRITE, 0}},
    .cost = backward_cost,
};
