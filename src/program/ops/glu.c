/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_glu *g = &op->glu;
    const int32_t da = snug_tape_take(t, g->a);
    if (!da) return;
    const int32_t du = snug_tape_new(t, g->u), dv = g->v ? snug_tape_new(t, g->v) : 0;
    snug_tape_emit(t,
                   (struct snug_op){
                       .kind = SNUG_OP_GLU_BACKWARD,
                       .glu_backward = {.da = da, .u = g->u, .v = g->v, .du = du, .dv = dv, .function = g->function}});
    snug_tape_give(t, g->u, du);
    if (dv) snug_tape_give(t, g->v, dv);
}

/* Per element of a: the activation and the multiplication by its gate; backward, one more multiplication. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = (SNUG_ACTIVATION_FLOPS + 1) * snug_cost_elements(view, op->glu.a);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = (SNUG_ACTIVATION_FLOPS + 2) * snug_cost_elements(view, op->glu_backward.da);
}

const struct snug_op_info snug_op_glu_info = {
    .name = "glu",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"u", SNUG_READ, 0}, {"v", SNUG_READ, SNUG_OPTIONAL}, {"a", SNUG_WRITE, SNUG_CHEAP}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_glu_backward_info = {
    .name = "glu_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"da", SNUG_READ, 0},
                 {"u", SNUG_READ, 0},
                 {"v", SNUG_READ, SNUG_OPTIONAL},
                 {"du", SNUG_WRITE, 0},
                 {"dv", SNUG_WRITE, SNUG_OPTIONAL}},
    .cost = backward_cost,
};
