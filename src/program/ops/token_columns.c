/* SPDX-License-Identifier: Apache-2.0 */
/* The logits of the tokens whose rows of a tied table are trained by themselves. */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_token_columns *c = &op->token_columns;
    const int32_t dy = snug_tape_take(t, c->y);
    if (!dy) return;
    struct snug_token_columns_backward d = {.dy = dy, .tokens = c->tokens, .dz = snug_tape_new(t, c->z)};
    if (snug_tape_needs(t, c->x)) d.dx = snug_tape_is_free(t, dy) ? dy : snug_tape_new(t, c->x);
    snug_tape_emit(t, (struct snug_op){.kind = SNUG_OP_TOKEN_COLUMNS_BACKWARD, .token_columns_backward = d});
    snug_tape_give(t, c->z, d.dz);
    snug_tape_give(t, c->x, d.dx);
}

/* In place only the columns are read and written. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.bytes = 2 * 4 * snug_cost_elements(view, op->token_columns.z);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.bytes = 3 * 4 * snug_cost_elements(view, op->token_columns_backward.dz);
}

const struct snug_op_info snug_op_token_columns_info = {
    .name = "token_columns",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0},
                 {"z", SNUG_READ, 0},
                 {"tokens", SNUG_READ, 0},
                 {"b", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"y", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_token_columns_backward_info = {
    .name = "token_columns_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"dy", SNUG_READ, 0},
                 {"tokens", SNUG_READ, 0},
                 {"dx", SNUG_WRITE, SNUG_OPTIONAL},
                 {"dz", SNUG_WRITE, 0}},
    .cost = backward_cost,
};
