/* SPDX-License-Identifier: Apache-2.0 */
/* The norm of all gradients, and the operations that use it. */
#include "program/cost.h"

static void squared_norm_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 2 * snug_cost_elements(view, op->squared_norm.g);
}
static void clip_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->clip.clip);
}
static void rescale_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = snug_cost_elements(view, op->rescale.scaler);
}

const struct snug_op_info snug_op_squared_norm_info = {
    .name = "squared_norm",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_ELEMENTS,
    .operands = {{"g", SNUG_READ, SNUG_PARTED},
                 {"index", SNUG_READ, SNUG_OPTIONAL | SNUG_ROW_INDEX},
                 {"sums", SNUG_GRADIENT, 0}},
    .cost = squared_norm_cost,
};

const struct snug_op_info snug_op_clip_info = {
    .name = "clip",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"sums", SNUG_READ, 0}, {"clip", SNUG_WRITE, 0}, {"scaler", SNUG_MODIFY, SNUG_OPTIONAL}},
    .cost = clip_cost,
};

const struct snug_op_info snug_op_rescale_info = {
    .name = "rescale",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"scaler", SNUG_MODIFY, 0}},
    .cost = rescale_cost,
};
