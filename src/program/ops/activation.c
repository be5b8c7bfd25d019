/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

/* du overwrites da if it may. The bias's gradient is the column sums of du, which the weight's gradient computes,
   because it reads du. */
static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_activation_op *a = &op->activation;
    const int32_t da = snug_tape_take(t, a->a);
    if (!da) return;
    if (a->b && t->gradient[a->u])
        snug_tape_refuse(t, a->u, "the activation that adds a bias to it must be its only reader");
    const int32_t du = snug_tape_is_free(t, da) ? da : snug_tape_new(t, a->u);
    snug_tape_emit(t, (struct snug_op){
                          .kind = SNUG_OP_ACTIVATION_BACKWARD,
                          .activation_backward = {.da = da, .u = a->u, .b = a->b, .du = du, .function = a->function}});
    t->needed[a->u] = true; /* the bias alone requires it */
    snug_tape_give(t, a->u, du);
    t->bias[a->u] = a->b;
}

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = SNUG_ACTIVATION_FLOPS * snug_cost_elements(view, op->activation.u);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = SNUG_ACTIVATION_FLOPS * snug_cost_elements(view, op->activation_backward.da);
}

const struct snug_op_info snug_op_activation_info = {
    .name = "activation",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"u", SNUG_READ, SNUG_REMADE},
                 {"b", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"a", SNUG_WRITE, SNUG_CHEAP}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_activation_backward_info = {
    .name = "activation_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"da", SNUG_READ, 0},
                 {"u", SNUG_READ, 0},
                 {"b", SNUG_READ, SNUG_OPTIONAL},
                 {"du", SNUG_WRITE, 0},
                 {"a", SNUG_WRITE, SNUG_OPTIONAL | SNUG_REMADE}},
    .cost = backward_cost,
};
