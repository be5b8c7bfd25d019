/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LION: Chen et al., arXiv:2302.06675, with decoupled weight decay, as bitsandbytes' 32-bit Lion. State m.
 *
 *   p *= 1 - lr wd
 *   p -= lr sign(b1 m + (1-b1) g)
 *   m = b2 m + (1-b2) g
 */
#include "optim/optimizer.h"
#include "program/ops/update.h"

SNUG_UPDATE_INFO(lion, SNUG_OP_ELEMENTS, snug_update_cost, "m", "state", "state", "state", 0);

static struct snug_states states(const struct snug_optimizer *optimizer, const struct snug_weight *weight) {
    (void)optimizer, (void)weight;
    return (struct snug_states){.update = SNUG_OP_LION, .count = 1, .items = {{"exp_avg", SNUG_F32, SNUG_STATE_LIKE}}};
}

static union snug_update_numbers numbers(const struct snug_optimizer *o, double updates, double learning_rate) {
    (void)updates;
    return (union snug_update_numbers){.lion = {.keep = (float)(1 - learning_rate * o->weight_decay),
                                                .rate = (float)learning_rate,
                                                .beta1 = (float)o->beta1,
                                                .rest1 = (float)(1 - o->beta1),
                                                .beta2 = (float)o->beta2,
                                                .rest2 = (float)(1 - o->beta2)}};
}

const struct snug_optimizer_info snug_optimizer_lion = {
    .names = {{"lion_32bit", {.name = "lion_32bit"}}},
    .takes_betas = true,
    .states = states,
    .numbers = numbers,
};
