/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void norm(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_norm *n = &op->norm;
    const int32_t dy = snug_tape_take(t, n->y);
    if (!dy) return;
    struct snug_op backward = {
        .kind = SNUG_OP_NORM_BACKWARD,
        .p = op->p,
        .site = op->site,
        .norm_backward = {.dy = dy, .s = n->s, .gamma = n->gamma, .form = n->form, .drops_y = op->p > 0}};
    struct snug_norm_backward *b = &backward.norm_backward;
    const int32_t in_place = snug_tape_is_free(t, dy) ? dy : 0;
    b->ds = snug_tape_sum(t, n->s, in_place, &b->addend);
    const struct snug_tape_weight weights[] = {{n->gamma, &b->dgamma}, {n->beta, &b->dbeta}};
    snug_tape_weights(t, &backward, weights, 2);
    snug_tape_emit(t, backward);
}

/* The gradient of a sum whose norm is not read. */
static void residual(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_residual_norm *n = &op->residual_norm;
    const int32_t sum = snug_tape_take(t, n->s);
    if (!sum) return;
    int32_t ds = sum;
    if (!snug_tape_is_free(t, sum)) { /* it may already be a term's gradient, which then gets it twice */
        ds = snug_tape_new(t, n->s);
        snug_tape_clear(t, ds, t->phase, false);
        snug_tape_emit(t, (struct snug_op){.kind = SNUG_OP_ADD, .add = {.x = sum, .y = ds}});
    }
    if (!snug_tape_needs(t, n->z) || (op->p == 0 && n->z != n->x)) {
        snug_tape_give_both(t, n->x, n->z, ds);
    } else {
        const int32_t dz = snug_tape_new(t, n->z);
        snug_tape_emit(
            t, (struct snug_op){.kind = SNUG_OP_DROPOUT, .p = op->p, .site = op->site, .dropout = {.x = ds, .y = dz}});
        snug_tape_give(t, n->x, ds);
        snug_tape_give(t, n->z, dz);
    }
}

/* ds is the gradient of both terms of the sum; dz is that of z before dropout. */
static void residual_norm(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_residual_norm *n = &op->residual_norm;
    const int32_t dy = snug_tape_take(t, n->y);
    if (!dy) {
        residual(t, op);
        return;
    }
    struct snug_op backward = {.kind = SNUG_OP_NORM_BACKWARD,
                               .p = op->p,
                               .site = op->site,
                               .norm_backward = {.dy = dy, .s = n->s, .gamma = n->gamma, .form = n->form}};
    struct snug_norm_backward *b = &backward.norm_backward;
    const int32_t in_place = snug_tape_is_free(t, dy) ? dy : 0;
    b->ds = snug_tape_sum(t, n->s, in_place, &b->addend);
    snug_tape_take(t, n->s);
    if (snug_tape_needs(t, n->z) && (op->p > 0 || n->z == n->x)) b->dz = snug_tape_new(t, n->z);
    const struct snug_tape_weight weights[] = {{n->gamma, &b->dgamma}, {n->beta, &b->dbeta}};
    snug_tape_weights(t, &backward, weights, 2);
    snug_tape_emit(t, backward);
    if (b->dz) {
        snug_tape_give(t, n->x, b->ds);
        snug_tape_give(t, n->z, b->dz);
    } else {
        snug_tape_give_both(t, n->x, n->z, b->ds);
    }
}

static void residual_norm_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = SNUG_NORM_FLOPS * snug_cost_elements(view, op->residual_norm.z);
}
static void norm_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = SNUG_NORM_FLOPS * snug_cost_elements(view, op->norm.s);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = SNUG_NORM_BACKWARD_FLOPS * snug_cost_elements(view, op->norm_backward.dy);
}

static struct snug_op norm_of(const struct snug_op *op) {
    const struct snug_residual_norm *n = &op->residual_norm;
    return (struct snug_op){.kind = SNUG_OP_NORM,
                            .part = op->part,
                            .layer = op->layer,
                            .norm = {.s = n->s, .gamma = n->gamma, .beta = n->beta, .y = n->y, .form = n->form}};
}

const struct snug_op_info snug_op_residual_norm_info = {
    .name = "residual_norm",
    .group = SNUG_GROUP_NORMALIZATION,
    .flags = SNUG_OP_MODEL | SNUG_OP_NORM_OF_SUM,
    .operands = {{"z", SNUG_READ, 0},
                 {"x", SNUG_READ, 0},
                 {"gamma", SNUG_READ, SNUG_WEIGHT},
                 {"beta", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"s", SNUG_WRITE, SNUG_OPTIONAL},
                 {"y", SNUG_WRITE, SNUG_CHEAP}},
    .differentiate = residual_norm,
    .cost = residual_norm_cost,
    .norm_of = norm_of,
};

const struct snug_op_info snug_op_norm_info = {
    .name = "norm",
    .group = SNUG_GROUP_NORMALIZATION,
    .flags = SNUG_OP_MODEL,
    .operands = {{"s", SNUG_READ, 0},
                 {"gamma", SNUG_READ, SNUG_WEIGHT},
                 {"beta", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"y", SNUG_WRITE, SNUG_CHEAP}},
    .differentiate = norm,
    .cost = norm_cost,
};

const struct snug_op_info snug_op_norm_backward_info = {
    .name = "norm_backward",
    .group = SNUG_GROUP_NORMALIZATION,
    .operands = {{"dy", SNUG_READ, 0},
                 {"s", SNUG_READ, 0},
                 {"gamma", SNUG_READ, 0},
                 {"addend", SNUG_READ, SNUG_OPTIONAL},
                 {"ds", SNUG_WRITE, 0},
                 {"dz", SNUG_WRITE, SNUG_OPTIONAL},
                 {"dgamma", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"dbeta", SNUG_GRADIENT, SNUG_OPTIONAL}},
    .cost = backward_cost,
};
