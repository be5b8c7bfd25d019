/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_embed *e = &op->embed;
    const int32_t dy = snug_tape_take(t, e->y);
    if (snug_tape_take(t, e->s)) snug_tape_refuse(t, e->s, "other operations read the sum");
    if (!dy) return;
    if (!snug_tape_is_free(t, dy)) snug_tape_refuse(t, e->y, "its gradient is also another tensor's");
    struct snug_op backward = {.kind = SNUG_OP_EMBED_BACKWARD,
                               .p = op->p,
                               .site = op->site,
                               .embed_backward = {.dy = dy,
                                                  .s = e->s,
                                                  .gamma = e->gamma,
                                                  .eps = e->eps,
                                                  .padding = e->padding,
                                                  .first_position = e->first_position}};
    struct snug_embed_backward *b = &backward.embed_backward;
    const struct snug_tape_weight weights[] = {{e->word, &b->dword},
                                               {e->position, &b->dposition},
                                               {e->type, &b->dtype},
                                               {e->gamma, &b->dgamma},
                                               {e->beta, &b->dbeta}};
    if (snug_tape_weights(t, &backward, weights, 5)) snug_tape_emit(t, backward);
}

/* The tables are read by row, not whole. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double elements = snug_cost_elements(view, op->embed.s);
    view->cost.flops = (SNUG_NORM_FLOPS + 2) * elements;
    view->cost.bytes = 5 * 4 * elements;
}

static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double elements = snug_cost_elements(view, op->embed_backward.dy);
    view->cost.flops = (SNUG_NORM_BACKWARD_FLOPS + 3) * elements;
    view->cost.bytes = 8 * 4 * elements;
}

static struct snug_op norm_of(const struct snug_op *op) {
    const struct snug_embed *e = &op->embed;
    return (struct snug_op){.kind = SNUG_OP_NORM,
                            .part = op->part,
                            .layer = op->layer,
                            .p = op->p,
                            .site = op->site,
                            .norm = {.s = e->s, .gamma = e->gamma, .beta = e->beta, .y = e->y, .eps = e->eps}};
}

const struct snug_op_info snug_op_embed_info = {
    .name = "embed",
    .group = SNUG_GROUP_NORMALIZATION,
    .flags = SNUG_OP_MODEL | SNUG_OP_NORM_OF_SUM,
    .operands = {{"word", SNUG_READ, SNUG_WEIGHT | SNUG_TABLE | SNUG_BY_TOKEN},
                 {"position", SNUG_READ, SNUG_WEIGHT | SNUG_TABLE | SNUG_OPTIONAL},
                 {"type", SNUG_READ, SNUG_WEIGHT | SNUG_TABLE | SNUG_OPTIONAL},
                 {"gamma", SNUG_READ, SNUG_WEIGHT},
                 {"beta", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"s", SNUG_WRITE, 0},
                 {"y", SNUG_WRITE, SNUG_CHEAP}},
    .differentiate = differentiate,
    .cost = cost,
    .norm_of = norm_of,
};

const struct snug_op_info snug_op_embed_backward_info = {
    .name = "embed_backward",
    .group = SNUG_GROUP_NORMALIZATION,
    .operands = {{"dy", SNUG_READ, SNUG_DESTROYED},
                 {"s", SNUG_READ, 0},
                 {"gamma", SNUG_READ, 0},
                 {"dword", SNUG_GRADIENT, SNUG_OPTIONAL | SNUG_BY_TOKEN},
                 {"dposition", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"dtype", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"dgamma", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"dbeta", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"index", SNUG_MODIFY, SNUG_OPTIONAL | SNUG_ROW_INDEX}},
    .cost = backward_cost,
};
