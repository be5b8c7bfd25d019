/* SPDX-License-Identifier: Apache-2.0 */
/* A loss over the vectors of a whole step, and how micro-batches give and take their vectors. */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate_collect(struct snug_tape *t, const struct snug_op *op) {
    const int32_t d = snug_tape_take(t, op->collect.vectors), x = op->collect.x;
    const int32_t dx = snug_tape_new(t, x);
    if (t->status == SNUG_OK) t->program->tensors[dx].low_precision = false;
    snug_tape_emit(t, (struct snug_op){.kind = SNUG_OP_COLLECT_BACKWARD, .collect_backward = {.d = d, .dx = dx}});
    snug_tape_give(t, x, dx);
}

/* The loss computes its own gradient, which lives until the step's last micro-batch has read its rows. */
static void differentiate_loss(struct snug_tape *t, const struct snug_op *op) {
    const int32_t vectors = op->vector_loss.vectors;
    struct snug_tensor like = t->program->tensors[vectors];
    int32_t d = 0;
    if (t->status == SNUG_OK) t->status = snug_program_tensor(t->program, like, &d, "grad.%s", "step.vectors");
    snug_tape_give(t, vectors, d);
    t->program->ops[t->index].vector_loss.d = d;
}

static void copy_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const int32_t x = op->kind == SNUG_OP_COLLECT ? op->collect.x : op->collect_backward.dx;
    view->cost.bytes = 2 * snug_cost_elements(view, x) * snug_cost_width(view, x);
}

/* Ranking: the similarities of all pairs, twice, and the gradients of both vectors; else a few passes over a row's. */
static void loss_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const struct snug_vector_loss_form *form = &op->vector_loss.form;
    const double vectors = (double)view->program->capacity[SNUG_EXTENT_STEP];
    const double columns = snug_cost_columns(view, op->vector_loss.vectors), rows = vectors / form->texts;
    const double others = form->function == SNUG_LOSS_RANKING ? vectors - rows : 2;
    view->cost.flops = 8 * rows * others * columns * (form->dim_count ? form->dim_count : 1);
}

const struct snug_op_info snug_op_collect_info = {
    .name = "collect",
    .group = SNUG_GROUP_ELEMENTWISE,
    .flags = SNUG_OP_MODEL,
    .operands = {{"x", SNUG_READ, 0}, {"vectors", SNUG_MODIFY, 0}, {"scores", SNUG_MODIFY, SNUG_OPTIONAL}},
    .differentiate = differentiate_collect,
    .cost = copy_cost,
};

const struct snug_op_info snug_op_collect_backward_info = {
    .name = "collect_backward",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"d", SNUG_READ, 0}, {"dx", SNUG_WRITE, 0}},
    .cost = copy_cost,
};

const struct snug_op_info snug_op_vector_loss_info = {
    .name = "vector_loss",
    .group = SNUG_GROUP_CONTRACTION,
    .flags = SNUG_OP_MODEL | SNUG_OP_ENDS_FORWARD,
    .operands = {{"vectors", SNUG_READ, 0},
                 {"scores", SNUG_READ, SNUG_OPTIONAL},
                 {"loss", SNUG_WRITE, 0},
                 {"d", SNUG_WRITE, SNUG_OPTIONAL}},
    .differentiate = differentiate_loss,
    .cost = loss_cost,
};
