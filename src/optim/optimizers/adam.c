/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAM: torch.optim.AdamW (Loshchilov and Hutter, arXiv:1711.05101), or Adam (Kingma and Ba, arXiv:1412.6980) if not
 * decoupled. States m, v.
 *
 *   p *= 1 - lr wd (AdamW), or g += wd p (Adam)
 *   m = b1 m + (1-b1) g
 *   v = b2 v + (1-b2) g^2
 *   p -= lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps)
 */
#include <math.h>

#include "optim/optimizer.h"
#include "program/ops/update.h"

SNUG_UPDATE_INFO(adam, SNUG_OP_ELEMENTS | SNUG_OP_LAZY_FORM, snug_update_cost, "m", "v", "state", "state", 0);

static struct snug_states states(const struct snug_optimizer *optimizer, const struct snug_weight *weight) {
    (void)optimizer, (void)weight;
    return (struct snug_states){
        .update = SNUG_OP_ADAM,
        .count = 2,
        .items = {{"exp_avg", SNUG_F32, SNUG_STATE_LIKE}, {"exp_avg_sq", SNUG_F32, SNUG_STATE_LIKE}}};
}

static union snug_update_numbers numbers(const struct snug_optimizer *o, double updates, double learning_rate) {
    const double t = updates + 1;
    return (union snug_update_numbers){.adam = {
                                           .keep = (float)(o->decoupled ? 1 - learning_rate * o->weight_decay : 1),
                                           .l2 = (float)(o->decoupled ? 0 : o->weight_decay),
                                           .rest1 = (float)(1 - o->beta1),
                                           .beta2 = (float)o->beta2,
                                           .rest2 = (float)(1 - o->beta2),
                                           .rate = (float)(learning_rate / (1 - pow(o->beta1, t))),
                                           .root = (float)(1 / sqrt(1 - pow(o->beta2, t))),
                                           .epsilon = (float)o->epsilon,
                                       }};
}

const struct snug_optimizer_info snug_optimizer_adam = {
    .names = {{"adamw_torch", {.name = "adamw_torch", .decoupled = true}},
              {"adamw_torch_fused", {.name = "adamw_torch", .decoupled = true}},
              {"adam", {.name = "adam"}}},
    .takes_betas = true,
    .takes_epsilon = true,
    .states = states,
    .numbers = numbers,
};
