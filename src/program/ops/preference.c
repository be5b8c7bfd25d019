/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

/* The gradients are LOSS's, which reads the scales when HEAD runs for the second time, and as constants. */
static void differentiate(struct snug_tape *t, const struct snug_op *op) { t->needed[op->preference.scales] = false; }

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->preference.rows);
}

const struct snug_op_info snug_op_preference_info = {
    .name = "preference",
    .group = SNUG_GROUP_NORMALIZATION,
    .flags = SNUG_OP_MODEL | SNUG_OP_ENDS_FORWARD | SNUG_OP_SCORES,
    .operands = {{"rows", SNUG_READ, 0},
                 {"sums", SNUG_MODIFY, 0},
                 {"scales", SNUG_WRITE, 0},
                 {"loss", SNUG_WRITE, 0},
                 {"results", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};
