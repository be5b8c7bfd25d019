/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->best.logits);
}

const struct snug_op_info snug_op_best_info = {
    .name = "best",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"logits", SNUG_READ, 0}, {"best", SNUG_WRITE, 0}},
    .cost = cost,
};
