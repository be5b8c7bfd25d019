/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

/* Operands that are one tensor have one gradient. */
static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_attention *a = &op->attention;
    const int32_t dout = snug_tape_take(t, a->o);
    if (snug_tape_take(t, a->lse)) snug_tape_refuse(t, a->lse, "it is not a function of the model");
    if (!dout) return;
    const int32_t dq = snug_tape_new(t, a->q), dk = a->k == a->q ? dq : snug_tape_new(t, a->k);
    const int32_t dv = a->v == a->q ? dq : a->v == a->k ? dk : snug_tape_new(t, a->v);
    struct snug_op backward = {.kind = SNUG_OP_ATTENTION_BACKWARD,
                               .p = op->p,
                               .site = op->site,
                               .attention_backward = {.dout = dout,
                                                      .q = a->q,
                                                      .k = a->k,
                                                      .v = a->v,
                                                      .o = a->o,
                                                      .lse = a->lse,
                                                      .bias = a->bias,
                                                      .dq = dq,
                                                      .dk = dk,
                                                      .dv = dv,
                                                      .form = a->form}};
    const struct snug_tape_weight weights[] = {{a->bias, &backward.attention_backward.dbias}};
    snug_tape_weights(t, &backward, weights, 1);
    snug_tape_emit(t, backward);
    snug_tape_give(t, a->q, dq);
    if (dk != dq) snug_tape_give(t, a->k, dk);
    if (dv != dq && dv != dk) snug_tape_give(t, a->v, dv);
}

/* FLOPs of `matmuls` of the backward or forward pass. */
static double flops(const struct snug_cost_view *view, const struct snug_attention_form *f, int matmuls) {
    const double channels = (double)f->heads * f->head_dim;
    return snug_cost_pairs(view, f->before, f->after) *
           (2 * matmuls * channels + (double)SNUG_SOFTMAX_FLOPS * f->heads);
}

/* Forward: the matmuls of scores and values. Backward: the scores again and four more matmuls. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = flops(view, &op->attention.form, 2);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = flops(view, &op->attention_backward.form, 5);
}

const struct snug_op_info snug_op_attention_info = {
    .name = "attention",
    .group = SNUG_GROUP_CONTRACTION,
    .flags = SNUG_OP_MODEL | SNUG_OP_PAIRS,
    .operands = {{"q", SNUG_READ, 0},
                 {"k", SNUG_READ, 0},
                 {"v", SNUG_READ, 0},
                 {"bias", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"o", SNUG_WRITE, 0},
                 {"lse", SNUG_WRITE, 0}},
    .differentiate = differentiate,
    .cost = cost,
};

const struct snug_op_info snug_op_attention_backward_info = {
    .name = "attention_backward",
    .group = SNUG_GROUP_CONTRACTION,
    .flags = SNUG_OP_PAIRS,
    .operands = {{"dout", SNUG_READ, 0},
                 {"q", SNUG_READ, 0},
                 {"k", SNUG_READ, 0},
                 {"v", SNUG_READ, 0},
                 {"o", SNUG_READ, 0},
                 {"lse", SNUG_READ, 0},
                 {"bias", SNUG_READ, SNUG_OPTIONAL},
                 {"dq", SNUG_WRITE, 0},
                 {"dk", SNUG_WRITE, 0},
                 {"dv", SNUG_WRITE, 0},
                 {"dbias", SNUG_GRADIENT, SNUG_OPTIONAL}},
    .cost = backward_cost,
};
