/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_linear *l = &op->linear;
    const int32_t dy = snug_tape_take(t, l->y);
    if (!dy) return;
    if (l->b && t->bias[l->y]) snug_tape_refuse(t, l->y, "both it and the activation after it add a bias");
    struct snug_op weights = {.kind = SNUG_OP_LINEAR_DW,
                              .linear_dw = {.dy = dy, .x = l->x, .transposed = l->transposed, .of_x = l->of_x}};
    const struct snug_tape_weight outputs[] = {{l->w, &weights.linear_dw.dw},
                                               {l->b ? l->b : t->bias[l->y], &weights.linear_dw.db}};
    if (snug_tape_weights(t, &weights, outputs, 2)) snug_tape_emit(t, weights);
    t->bias[l->y] = 0;
    if (snug_tape_needs(t, l->x)) {
        bool accumulate;
        const int32_t dx =
            l->of_x.count ? snug_tape_shared(t, l->x, &accumulate) : snug_tape_target(t, l->x, dy, &accumulate);
        const struct snug_linear_dx to = {.dy = dy, .w = l->w, .dx = dx, .transposed = l->transposed, .of_dx = l->of_x};
        snug_tape_emit(t, (struct snug_op){.kind = SNUG_OP_LINEAR_DX, .accumulate = accumulate, .linear_dx = to});
        snug_tape_give(t, l->x, dx);
    }
    if (l->addend) snug_tape_give(t, l->addend, dy);
}

static double columns_of(const struct snug_cost_view *view, struct snug_column_range of, int32_t tensor) {
    return (double)snug_range_columns(of, view->program->tensors[tensor].cols);
}

static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = 2 * snug_cost_elements(view, op->linear.y) * columns_of(view, op->linear.of_x, op->linear.x);
}
static void dx_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops =
        2 * snug_cost_elements(view, op->linear_dx.dy) * columns_of(view, op->linear_dx.of_dx, op->linear_dx.dx);
}
static void dw_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const double columns = op->linear_dw.dw ? columns_of(view, op->linear_dw.of_x, op->linear_dw.x) : 1;
    view->cost.flops = 2 * snug_cost_elements(view, op->linear_dw.dy) * columns;
}

const struct snug_op_info snug_op_linear_info = {
    .name = "linear",
    .group = SNUG_GROUP_CONTRACTION,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0},
                 {"w", SNUG_READ, SNUG_WEIGHT | SNUG_MATMUL_WEIGHT},
                 {"b", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"addend", SNUG_READ, SNUG_OPTIONAL},
                 {"y", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_linear_dx_info = {
    .name = "linear_dx",
    .group = SNUG_GROUP_CONTRACTION,
    .operands = {{"dy", SNUG_READ, 0}, {"w", SNUG_READ, SNUG_MATMUL_WEIGHT}, {"dx", SNUG_GRADIENT, 0}},
    .cost = dx_cost,
};

const struct snug_op_info snug_op_linear_dw_info = {
    .name = "linear_dw",
    .group = SNUG_GROUP_CONTRACTION,
    .flags = SNUG_OP_WEIGHT_GRADIENT,
    .operands = {{"dy", SNUG_READ, 0},
                 {"x", SNUG_READ, 0},
                 {"dw", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"db", SNUG_GRADIENT, SNUG_OPTIONAL}},
    .cost = dw_cost,
};
