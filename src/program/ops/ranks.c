/* SPDX-License-Identifier: Apache-2.0 */
/* Operations over the ranks of a run: sums of gradients, all-gathers, and the norm of divided gradients. */
#include "program/cost.h"

/* Each rank adds its shards of all ranks: together as many additions as g has elements, times the other ranks. Bytes:
   what is sent, once as shards and, if all ranks get the sum, once as sums. */
static void sum_ranks_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double elements = snug_cost_elements(view, op->sum_ranks.g);
    view->cost.flops = elements;
    view->cost.bytes = (snug_sums_for_all(op) ? 2 : 1) * elements * snug_cost_width(view, op->sum_ranks.g);
}

/* What is sent: the shards of all ranks. */
static void gather_ranks_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.bytes = snug_cost_elements(view, op->gather_ranks.x) * snug_cost_width(view, op->gather_ranks.x);
}

/* The chunks of one gradient, not of all that are in parts. */
static void sum_chunks_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = (double)op->sum_chunks.shards.elements / SNUG_NORM_CHUNK;
    view->cost.bytes = view->cost.flops * sizeof(double);
}

const struct snug_op_info snug_op_sum_ranks_info = {
    .name = "sum_ranks",
    .group = SNUG_GROUP_COMMUNICATION,
    .flags = SNUG_OP_COLLECTIVE,
    .operands = {{"g", SNUG_MODIFY, 0}, {"sum", SNUG_MODIFY, SNUG_OPTIONAL}, {"chunks", SNUG_WRITE, SNUG_OPTIONAL}},
    .cost = sum_ranks_cost,
};

const struct snug_op_info snug_op_gather_ranks_info = {
    .name = "gather_ranks",
    .group = SNUG_GROUP_COMMUNICATION,
    .flags = SNUG_OP_COLLECTIVE,
    .operands = {{"shard", SNUG_READ, SNUG_OPTIONAL}, {"x", SNUG_MODIFY, 0}},
    .cost = gather_ranks_cost,
};

const struct snug_op_info snug_op_sum_chunks_info = {
    .name = "sum_chunks",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"parts", SNUG_READ, 0}, {"sums", SNUG_WRITE, 0}},
    .cost = sum_chunks_cost,
};
