/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"

/* A comparison and an exponential each. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 2 * snug_cost_elements(view, op->top.logits);
}

const struct snug_op_info snug_op_top_info = {
    .name = "top",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"logits", SNUG_READ, 0}, {"ids", SNUG_WRITE, 0}, {"log_probabilities", SNUG_WRITE, 0}},
    .cost = cost,
};
