/* SPDX-License-Identifier: Apache-2.0 */
/* DEQUANTIZE. The precision stage inserts it; it is not differentiated, because what it reads is frozen. */
#include "program/cost.h"

static void dequantize_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->dequantize.q);
}

const struct snug_op_info snug_op_dequantize_info = {
    .name = "dequantize",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"p", SNUG_READ, 0}, {"q", SNUG_WRITE, 0}},
    .cost = dequantize_cost,
};
