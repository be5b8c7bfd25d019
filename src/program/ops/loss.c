/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

/* Whether backward reads the logits, which are capped. */
static bool are_capped(const struct snug_program *program, int32_t logits) {
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_SCALE && program->ops[i].scale.y == logits) return true;
    return false;
}

/* The loss computes its own gradient, which overwrites logits of its type. */
static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const int32_t logits = op->loss.logits;
    if (!snug_tape_needs(t, logits)) return;
    if (t->gradient[logits]) snug_tape_refuse(t, op->loss.logits, "other operations read the logits");
    const bool same_type = t->program->compute == SNUG_F32 || t->program->tensors[logits].low_precision;
    const bool in_place = same_type && !are_capped(t->program, logits);
    const int32_t d = in_place ? logits : snug_tape_new(t, logits);
    snug_tape_give(t, logits, d);
    t->program->ops[t->index].loss.d = d;
}

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = SNUG_NORM_FLOPS * snug_cost_elements(view, op->loss.logits);
}

const struct snug_op_info snug_op_loss_info = {
    .name = "loss",
    .group = SNUG_GROUP_NORMALIZATION,
    .flags = SNUG_OP_MODEL | SNUG_OP_ENDS_FORWARD,
    .operands = {{"logits", SNUG_READ, 0},
                 {"scales", SNUG_READ, SNUG_OPTIONAL},
                 {"loss", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"rows", SNUG_WRITE, SNUG_OPTIONAL},
                 {"d", SNUG_WRITE, SNUG_OPTIONAL}},
    .differentiate = differentiate,
    .cost = cost,
};
