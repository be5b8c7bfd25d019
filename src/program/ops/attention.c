/* SPDX-License-Identifier: Apache-2.0 */
#include "core/min_max.h"
#include "program/cost.h"
#include "program/positions.h"
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
                                                      .pk = a->pk,
                                                      .pq = a->pq,
                                                      .dq = dq,
                                                      .dk = dk,
                                                      .dv = dv,
                                                      .form = a->form}};
    struct snug_attention_backward *b = &backward.attention_backward;
    const struct snug_tape_weight weights[] = {{a->bias, &b->dbias}};
    snug_tape_weights(t, &backward, weights, 1);
    if (snug_tape_needs(t, a->pk)) b->dpk = snug_tape_new(t, a->pk);
    if (snug_tape_needs(t, a->pq)) b->dpq = snug_tape_new(t, a->pq);
    snug_tape_emit(t, backward);
    snug_tape_give(t, a->q, dq);
    if (dk != dq) snug_tape_give(t, a->k, dk);
    if (dv != dq && dv != dk) snug_tape_give(t, a->v, dv);
    if (b->dpk) snug_tape_give(t, a->pk, b->dpk);
    if (b->dpq) snug_tape_give(t, a->pq, b->dpq);
}

/* FLOPs of `matmuls` of the backward or forward pass over the pairs of tokens; and of those of tokens with the position
   keys and queries in reach: `of_positions` times. */
static double flops(const struct snug_cost_view *view, const struct snug_attention_form *f, int matmuls, int32_t pk,
                    int32_t pq, int of_positions) {
    const double channels = (double)f->heads * f->head_dim;
    const int32_t span = pk || pq ? (int32_t)view->program->tensors[pk ? pk : pq].rows / 2 : 0;
    const int64_t most = snug_max(view->program->longest, 1) - 1; /* distance */
    const double rows =
        span ? 1 + snug_position_row(most, span, f->farthest) - snug_position_row(-most, span, f->farthest) : 0;
    const int tables = (pk != 0) + (pq != 0);
    return snug_cost_pairs(view, f->before, f->after) *
               (2 * matmuls * channels + (double)SNUG_SOFTMAX_FLOPS * f->heads) +
           2 * of_positions * tables * view->tokens * rows * channels;
}

/* Forward: the matmuls of scores and values. Backward: the scores again and four more matmuls. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops = flops(view, &op->attention.form, 2, op->attention.pk, op->attention.pq, 1);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    view->cost.flops =
        flops(view, &op->attention_backward.form, 5, op->attention_backward.pk, op->attention_backward.pq, 3);
}

const struct snug_op_info snug_op_attention_info = {
    .name = "attention",
    .group = SNUG_GROUP_CONTRACTION,
    .flags = SNUG_OP_MODEL | SNUG_OP_PAIRS,
    .operands = {{"q", SNUG_READ, 0},
                 {"k", SNUG_READ, 0},
                 {"v", SNUG_READ, 0},
                 {"bias", SNUG_READ, SNUG_WEIGHT | SNUG_OPTIONAL},
                 {"pk", SNUG_READ, SNUG_OPTIONAL},
                 {"pq", SNUG_READ, SNUG_OPTIONAL},
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
                 {"pk", SNUG_READ, SNUG_OPTIONAL},
                 {"pq", SNUG_READ, SNUG_OPTIONAL},
                 {"dq", SNUG_WRITE, 0},
                 {"dk", SNUG_WRITE, 0},
                 {"dv", SNUG_WRITE, 0},
                 {"dbias", SNUG_GRADIENT, SNUG_OPTIONAL},
                 {"dpk", SNUG_WRITE, SNUG_OPTIONAL},
                 {"dpq", SNUG_WRITE, SNUG_OPTIONAL}},
    .cost = backward_cost,
};
