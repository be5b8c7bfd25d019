/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAM_8BIT: bitsandbytes' block-wise 8-bit AdamW, or Adam if not decoupled (Dettmers et al., arXiv:2110.02861). States
 * codes of m, codes of v (U8), absmax of m, absmax of v, for blocks of SNUG_QUANTISED_BLOCK elements of each parameter.
 * docs/numerics.md lists the steps.
 */
#include <math.h>

#include "optim/optimizer.h"
#include "program/ops/update.h"

SNUG_UPDATE_INFO(adam_8bit, SNUG_OP_ELEMENTS, snug_update_cost, "codes of m", "codes of v", "absmax of m",
                 "absmax of v", SNUG_BLOCK_STATE);

/* bitsandbytes keeps the states of smaller parameters in 32 bits. */
enum { LEAST = 4096 };

static struct snug_states states(const struct snug_optimizer *optimizer, const struct snug_weight *weight) {
    if (weight->rows * weight->cols / weight->segments < LEAST || (weight->table && !optimizer->tables_8bit))
        return snug_optimizer_adam.states(optimizer, weight);
    return (struct snug_states){.update = SNUG_OP_ADAM_8BIT,
                                .count = 4,
                                .items = {{"state1", SNUG_U8, SNUG_STATE_LIKE},
                                          {"state2", SNUG_U8, SNUG_STATE_LIKE},
                                          {"absmax1", SNUG_F32, SNUG_STATE_BLOCKS},
                                          {"absmax2", SNUG_F32, SNUG_STATE_BLOCKS}}};
}

static union snug_update_numbers numbers(const struct snug_optimizer *o, double updates, double learning_rate) {
    const float beta1 = (float)o->beta1, beta2 = (float)o->beta2;
    const double t = updates + 1, correction = sqrt(1 - pow((double)beta2, t));
    union snug_update_numbers both = snug_optimizer_adam.numbers(o, updates, learning_rate);
    both.adam_8bit = (struct snug_adam_8bit_numbers){
        .keep = both.adam.keep,
        .l2 = both.adam.l2,
        .beta1 = beta1,
        .rest1 = 1 - beta1,
        .beta2 = beta2,
        .rest2 = 1 - beta2,
        .rate = (float)(-learning_rate * correction / (1 - pow((double)beta1, t))),
        .epsilon = (float)(correction * o->epsilon),
    };
    return both;
}

const struct snug_optimizer_info snug_optimizer_adam_8bit = {
    .names = {{"adamw_8bit", {.name = "adamw_8bit", .decoupled = true}},
              {"adamw_bnb_8bit", {.name = "adamw_8bit", .decoupled = true}},
              {"adam_8bit", {.name = "adam_8bit"}}},
    .keys = {SNUG_TRUTH_KEY(tables_8bit)},
    .takes_betas = true,
    .takes_epsilon = true,
    .states = states,
    .numbers = numbers,
};
