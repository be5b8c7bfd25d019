/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_embed *e = &op->embed;
    const int32_t ds = snug_tape_take(t, e->s);
    if (!ds) return;
    struct snug_op backward = {.kind = SNUG_OP_EMBED_BACKWARD,
                               .embed_backward = {.ds = ds,
                                                  .scale = e->scale,
                                                  .tokens = e->tokens,
                                                  .padding = e->padding,
                                                  .first_position = e->first_position}};
    struct snug_embed_backward *b = &backward.embed_backward;
    const struct snug_tape_weight weights[] = {
        {e->rows ? e->rows : e->word, &b->dword}, {e->position, &b->dposition}, {e->type, &b->dtype}};
    snug_tape_weights(t, &backward, weights, 3);
    snug_tape_emit(t, backward);
}

/* The tables are read by row, not whole. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double elements = snug_cost_elements(view, op->embed.s);
    view->cost.flops = 2 * elements;
    view->cost.bytes = 4 * 4 * elements;
}

static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double elements = snug_cost_elements(view, op->embed_backward.ds);
    view->cost.flops = 3 * elements;
    view->cost.bytes = 6 * 4 * elements;
}

const struct snug_op_info snug_op_embed_info = {
    .name = "embed",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"word", SNUG_READ, SNUG_WEIGHT | SNUG_TABLE | SNUG_BY_TOKEN},
                 {"position", SNUG_READ, SNUG_WEIGHT | SNUG_TABLE | SNUG_OPTIONAL},
                 {"type", SNUG_READ, SNUG_WEIGHT | SNUG_TABLE | SNUG_OPTIONAL},
                 {"rows", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"tokens", SNUG_READ, SNUG_OPTIONAL},
                 {"s", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_embed_backward_info = {
    .name = "embed_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"ds", SNUG_READ, 0},
                 {"dword", SNUG_GRADIENT, SNUG_OPTIONAL | SNUG_BY_TOKEN},
                 {"dposition", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"dtype", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"index", SNUG_MODIFY, SNUG_OPTIONAL | SNUG_ROW_INDEX},
                 {"tokens", SNUG_READ, SNUG_OPTIONAL}},
    .cost = backward_cost,
};
