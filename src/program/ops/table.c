/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const int32_t dy = snug_tape_take(t, op->table.y);
    if (!dy) return;
    struct snug_op backward = {.kind = SNUG_OP_TABLE_BACKWARD, .table_backward = {.dy = dy}};
    const struct snug_tape_weight weights[] = {{op->table.table, &backward.table_backward.dtable}};
    snug_tape_weights(t, &backward, weights, 1);
    snug_tape_emit(t, backward);
}

static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->table_backward.dy);
}

const struct snug_op_info snug_op_table_info = {
    .name = "table",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"table", SNUG_READ, SNUG_WEIGHT | SNUG_TABLE}, {"y", SNUG_WRITE, 0}},
    .differentiate = differentiate,
};

const struct snug_op_info snug_op_table_backward_info = {
    .name = "table_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"dy", SNUG_READ, 0}, {"dtable", SNUG_GRADIENT, 0}},
    .cost = backward_cost,
};
