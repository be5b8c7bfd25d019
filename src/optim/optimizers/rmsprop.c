/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMSPROP: torch.optim.RMSprop. States v; momentum buffer, if momentum != 0; mean of g, if centered.
 *
 *   g += wd p
 *   v = alpha v + (1-alpha) g^2
 *   mean = alpha mean + (1-alpha) g
 *   s = v, or max(0, v - mean^2) if centered
 *   d = g / (sqrt(s) + eps)
 *   buffer = momentum buffer + d and d = buffer, if there is a buffer
 *   p -= lr d
 */
#include "optim/optimizer.h"
#include "program/ops/update.h"

SNUG_UPDATE_INFO(rmsprop, SNUG_OP_ELEMENTS, snug_update_cost, "v", "momentum buffer or mean", "mean", "state", 0);

static struct snug_states states(const struct snug_optimizer *optimizer, const struct snug_weight *weight) {
    static const struct snug_state buffer = {"momentum_buffer", SNUG_F32, SNUG_STATE_LIKE},
                                   mean = {"grad_avg", SNUG_F32, SNUG_STATE_LIKE};
    struct snug_states s = {
        .update = SNUG_OP_RMSPROP, .count = 1, .items = {{"square_avg", SNUG_F32, SNUG_STATE_LIKE}}};
    (void)weight;
    if (optimizer->momentum != 0) s.items[s.count++] = buffer;
    if (optimizer->centered) s.items[s.count++] = mean;
    return s;
}

static union snug_update_numbers numbers(const struct snug_optimizer *o, double updates, double learning_rate) {
    (void)updates;
    return (union snug_update_numbers){.rmsprop = {.keep = 1,
                                                   .l2 = (float)o->weight_decay,
                                                   .rate = (float)learning_rate,
                                                   .alpha = (float)o->alpha,
                                                   .rest = (float)(1 - o->alpha),
                                                   .momentum = (float)o->momentum,
                                                   .epsilon = (float)o->epsilon,
                                                   .centered = o->centered}};
}

const struct snug_optimizer_info snug_optimizer_rmsprop = {
    .names = {{"rmsprop", {.name = "rmsprop", .alpha = 0.99, .epsilon = 1e-8}}},
    .keys = {SNUG_NUMBER_KEY("momentum", momentum, SNUG_AT_LEAST_0),
             SNUG_NUMBER_KEY("alpha", alpha, " of at least 0 and at most 1", 0, 1),
             SNUG_NUMBER_KEY("eps", epsilon, SNUG_AT_LEAST_0), SNUG_TRUTH_KEY(centered)},
    .states = states,
    .numbers = numbers,
};
