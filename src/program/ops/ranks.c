/* SPDX-License-Identifier: Apache-2.0 */
/* SUM_RANKS: gradients, summed over the ranks of a run. */
#include "program/cost.h"

/* Each rank adds its shards of all ranks: together as many additions as g has elements, times the other ranks. Bytes:
   what is sent, once as shards and once as sums. */
static void sum_ranks_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double elements = snug_cost_elements(view, op->sum_ranks.g);
    view->cost.flops = elements;
    view->cost.bytes = 2 * elements * snug_cost_width(view, op->sum_ranks.g);
}

const struct snug_op_info snug_op_sum_ranks_info = {
    .name = "sum_ranks",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_COLLECTIVE,
    .operands = {{"g", SNUG_MODIFY, 0}},
    .cost = sum_ranks_cost,
};
