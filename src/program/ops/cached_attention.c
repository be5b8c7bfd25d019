/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"

/* The matmuls of scores and values, of a sequence as long as the new tokens. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    const struct snug_attention_form *f = &op->cached_attention.form;
    const double channels = (double)f->heads * f->head_dim;
    view->cost.flops =
        snug_cost_pairs(view, f->before, f->after) * (4 * channels + (double)SNUG_SOFTMAX_FLOPS * f->heads);
}

const struct snug_op_info snug_op_cached_attention_info = {
    .name = "cached_attention",
    .group = SNUG_GROUP_CONTRACTION,
    .flags = SNUG_OP_PAIRS,
    .operands = {{"q", SNUG_READ, 0},
                 {"k", SNUG_READ, 0},
                 {"v", SNUG_READ, 0},
                 {"keys", SNUG_READ, 0},
                 {"values", SNUG_READ, 0},
                 {"o", SNUG_WRITE, 0}},
    .cost = cost,
};
