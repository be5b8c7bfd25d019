/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAGRAD: torch.optim.Adagrad. State sum.
 *
 *   g += wd p
 *   sum += g^2, and initial_accumulator_value if t = 1
 *   p -= lr / (1 + (t-1) lr_decay) * g / (sqrt(sum) + eps)
 */
#include "optim/optimizer.h"
#include "program/ops/update.h"

SNUG_UPDATE_INFO(adagrad, SNUG_OP_ELEMENTS, snug_update_cost, "sum", "state", "state", "state", 0);

static struct snug_states states(const struct snug_optimizer *optimizer, const struct snug_weight *weight) {
    (void)optimizer, (void)weight;
    return (struct snug_states){.update = SNUG_OP_ADAGRAD, .count = 1, .items = {{"sum", SNUG_F32, SNUG_STATE_LIKE}}};
}

static union snug_update_numbers numbers(const struct snug_optimizer *o, double updates, double learning_rate) {
    return (union snug_update_numbers){.adagrad = {.keep = 1,
                                                   .l2 = (float)o->weight_decay,
                                                   .rate = (float)(learning_rate / (1 + updates * o->lr_decay)),
                                                   .start = (float)(updates == 0 ? o->initial_accumulator_value : 0),
                                                   .epsilon = (float)o->epsilon}};
}

const struct snug_optimizer_info snug_optimizer_adagrad = {
    .names = {{"adagrad", {.name = "adagrad", .epsilon = 1e-10}}},
    .keys = {SNUG_NUMBER_KEY("lr_decay", lr_decay, SNUG_AT_LEAST_0),
             SNUG_NUMBER_KEY("initial_accumulator_value", initial_accumulator_value, SNUG_AT_LEAST_0),
             SNUG_NUMBER_KEY("eps", epsilon, SNUG_AT_LEAST_0)},
    .states = states,
    .numbers = numbers,
};
