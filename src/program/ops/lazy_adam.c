/* SPDX-License-Identifier: Apache-2.0 */
/* Adam over the rows of a table that a step reads: "Lazy rows" in program/op.h. plan/lazy_adam.c adds the operations.
 */
#include "program/ops/update.h"

/* Rows that are touched, not the table: parameter and moments are read and written. How many steps they missed does not
   follow from the batch; one each. */
static void adam_rows_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double elements = snug_cost_elements(view, op->update.g);
    view->cost.flops = SNUG_UPDATE_FLOPS * elements;
    view->cost.bytes = 7 * 4 * elements;
}

static void lazy_update_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double elements = view->tokens * snug_cost_columns(view, op->update.weight);
    view->cost.flops = SNUG_UPDATE_FLOPS * elements;
    view->cost.bytes = 6 * 4 * elements;
}

static void rows_begin_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->rows_begin.index);
}

SNUG_UPDATE_INFO(adam_rows, 0, adam_rows_cost, "m", "v", "state", "state", 0);

SNUG_UPDATE_INFO(lazy_update, SNUG_OP_FLUSHES, lazy_update_cost, "m", "v", "state", "state", 0);

const struct snug_op_info snug_op_rows_begin_info = {
    .name = "rows_begin",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"m", SNUG_READ, 0}, {"v", SNUG_READ, 0}, {"index", SNUG_WRITE, 0}, {"updated", SNUG_WRITE, 0}},
    .cost = rows_begin_cost,
};
