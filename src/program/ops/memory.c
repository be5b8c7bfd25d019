/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that only move values: FILL, ADD, CAST, and copies between the arena and the offload file. */
#include "program/cost.h"

static void fill_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->fill.x);
}
static void add_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->add.y);
}
static void cast_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->cast.q);
}
/* The bytes of the backing store that the staging buffer holds. */
static void fetch_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.bytes = snug_cost_elements(view, op->fetch.x) * snug_cost_width(view, op->fetch.x);
}
static void store_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.bytes = snug_cost_elements(view, op->store.x) * snug_cost_width(view, op->store.x);
}
static void wait_cost(struct snug_cost_view *view, const struct snug_op *op) {
    (void)op;
    view->cost.bytes = 0;
}

const struct snug_op_info snug_op_fill_info = {
    .name = "fill",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_ELEMENTS | SNUG_OP_CLEARS,
    .operands = {{"x", SNUG_WRITE, SNUG_PARTED}},
    .cost = fill_cost,
};

const struct snug_op_info snug_op_add_info = {
    .name = "add",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"x", SNUG_READ, 0}, {"y", SNUG_MODIFY, 0}},
    .cost = add_cost,
};

const struct snug_op_info snug_op_cast_info = {
    .name = "cast",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_ELEMENTS,
    .operands = {{"p", SNUG_READ, SNUG_PARTED}, {"q", SNUG_WRITE, 0}},
    .cost = cast_cost,
};

const struct snug_op_info snug_op_fetch_info = {
    .name = "fetch",
    .group = SNUG_GROUP_COPIES,
    .flags = SNUG_OP_COPIES | SNUG_OP_FETCHES,
    .operands = {{"backing", SNUG_READ, 0}, {"x", SNUG_WRITE, 0}},
    .cost = fetch_cost,
};

const struct snug_op_info snug_op_store_info = {
    .name = "store",
    .group = SNUG_GROUP_COPIES,
    .flags = SNUG_OP_COPIES | SNUG_OP_STORES,
    .operands = {{"x", SNUG_READ, 0}, {"backing", SNUG_WRITE, 0}},
    .cost = store_cost,
};

const struct snug_op_info snug_op_wait_info = {
    .name = "wait",
    .group = SNUG_GROUP_COPIES,
    .flags = SNUG_OP_COPIES | SNUG_OP_WAITS,
    .operands = {{"x", SNUG_READ, 0}},
    .cost = wait_cost,
};
