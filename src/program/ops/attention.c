/* SPDX-License-Identifier: Apache-2.0 */
#include "program/cost.h"
#include "program/tape.h"

static void differentiate(struct snug_tape *t, const struct snug_op *op) {
    const struct snug_attention *a = &op->attention;
    const int32_t dout = snug_tape_take(t, a->o);
    if (snug_tape_take(t, a->lse)) snug_tape_refuse(t, a->lse, "it is not a function of the model");
    if (!dout) return;
    struct snug_op backward = {.kind = SNUG_OP_ATTENTION_BACKWARD,
                               .p = op->p,
                               .site = op->site,
                               .attention_backward = {.dout = dout,
                                                      .qkv = a->qkv,
                                                      .o = a->o,
                                                      .lse = a->lse,
                                                      .bias = a->bias,
                                                      .heads = a->heads,
                                                      .window = a->window,
                                                      .rope_theta = a->rope_theta}};
    const struct snug_tape_weight weights[] = {{a->bias, &backward.attention_backward.dbias}};
    snug_tape_weights(t, &backward, weights, 1);
    const int32_t dqkv = backward.attention_backward.dqkv = snug_tape_new(t, a->qkv);
    snug_tape_emit(t, backward);
    snug_tape_give(t, a->qkv, dqkv);
}

/* Three operations per element of q and k. */
static double rotation_flops(const struct snug_cost_view *view, float theta, int32_t o) {
    return theta > 0 ? 3 * 2 * snug_cost_elements(view, o) : 0;
}

/* Forward: the matmuls of scores and values. Backward: the scores again and four more matmuls; dq and dk are rotated,
   too. */
static void cost(struct snug_cost_view *view, const struct snug_op *op) {
    const struct snug_attention *a = &op->attention;
    view->cost.flops =
        snug_cost_pairs(view, a->window) * (4 * snug_cost_columns(view, a->o) + (double)SNUG_SOFTMAX_FLOPS * a->heads) +
        rotation_flops(view, a->rope_theta, a->o);
}
static void backward_cost(struct snug_cost_view *view, const struct snug_op *op) {
    const struct snug_attention_backward *a = &op->attention_backward;
    view->cost.flops = snug_cost_pairs(view, a->window) *
                           (10 * snug_cost_columns(view, a->dout) + (double)SNUG_SOFTMAX_FLOPS * a->heads) +
                       2 * rotation_flops(view, a->rope_theta, a->dout);
}

const struct snug_op_info snug_op_attention_info = {
    .name = "attention",
    .group = SNUG_GROUP_CONTRACTION,
    .flags = SNUG_OP_MODEL | SNUG_OP_PAIRS,
    .operands = {{"qkv", SNUG_READ, 0},
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
                 {"qkv", SNUG_READ, 0},
                 {"o", SNUG_READ, 0},
                 {"lse", SNUG_READ, 0},
                 {"bias", SNUG_READ, SNUG_OPTIONAL},
                 {"dqkv", SNUG_WRITE, 0},
                 {"dbias", SNUG_GRADIENT, SNUG_OPTIONAL}},
    .cost = backward_cost,
};
