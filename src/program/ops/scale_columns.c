/* SPDX-License-Identifier: Apache-2.0 */
/* DoRA's lengths of rows, and the scale of a linear's outputs that follows from them. */
#include "program/cost.h"
#include "program/tape.h"

/* The lengths are a constant of the derivative. */
static void differentiate_lengths(struct snug_tape *t, const struct snug_op *op) { (void)t, (void)op; }

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_scale_columns *s = &op->scale_columns;
    const int32_t dy = snug_tape_take(t, s->y);
    if (!dy) return;
    struct snug_op backward = {.kind = SNUG_OP_SCALE_COLUMNS_BACKWARD,
                               .scale_columns_backward = {.dy = dy, .x = s->x, .m = s->m, .inverse = s->inverse}};
    struct snug_scale_columns_backward *d = &backward.scale_columns_backward;
    /* An activation after it adds the bias of a linear that has one. */
    const struct snug_tape_weight weights[] = {{s->m, &d->dm}, {s->b ? s->b : t->bias[s->y], &d->db}};
    const bool alone = snug_tape_is_free(t, dy) && !snug_tape_needs(t, s->addend);
    snug_tape_weights(t, &backward, weights, 2);
    t->bias[s->y] = 0;
    d->dx = alone ? dy : snug_tape_new(t, s->x);
    snug_tape_emit(t, backward);
    snug_tape_give(t, s->x, d->dx);
    if (s->addend) snug_tape_give(t, s->addend, dy);
}

static void lengths_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 2 * snug_cost_elements(view, op->row_lengths.b) * snug_cost_columns(view, op->row_lengths.a);
}
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 3 * snug_cost_elements(view, op->scale_columns.y);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 5 * snug_cost_elements(view, op->scale_columns_backward.dx);
}

const struct snug_op_info snug_op_row_lengths_info = {
    .name = "row_lengths",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"w", SNUG_READ, SNUG_WEIGHT | SNUG_MATMUL_WEIGHT},
                 {"a", SNUG_READ, SNUG_WEIGHT},
                 {"b", SNUG_READ, SNUG_WEIGHT},
                 {"inverse", SNUG_WRITE, 0}},
    .differentiate = differentiate_lengths,
    .cost = lengths_cost,
};

const struct snug_op_info snug_op_scale_columns_info = {
    .name = "scale_columns",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0},
                 {"m", SNUG_READ, SNUG_WEIGHT},
                 {"inverse", SNUG_READ, 0},
                 {"b", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"addend", SNUG_READ, SNUG_OPTIONAL},
                 {"y", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_scale_columns_backward_info = {
    .name = "scale_columns_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"dy", SNUG_READ, 0},
                 {"x", SNUG_READ, 0},
                 {"m", SNUG_READ, 0},
                 {"inverse", SNUG_READ, 0},
                 {"dx", SNUG_WRITE, 0},
                 {"dm", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"db", SNUG_GRADIENT, SNUG_OPTIONAL}},
    .cost = backward_cost,
};
