/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGD: torch.optim.SGD. State momentum buffer, if momentum != 0.
 *
 *   g += wd p
 *   buffer = momentum buffer + (1-dampening) g, but g if t = 1
 *   p -= lr d, where d is g without momentum, buffer with momentum, g + momentum buffer if nesterov
 */
#include "optim/optimizer.h"
#include "program/ops/update.h"

SNUG_UPDATE_INFO(sgd, SNUG_OP_ELEMENTS, snug_update_cost, "momentum buffer", "state", "state", "state", 0);

static snug_status check(snug_context *ctx, const struct snug_optimizer *optimizer) {
    if (optimizer->nesterov && (optimizer->momentum == 0 || optimizer->dampening != 0))
        return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: nesterov=True needs a momentum above 0 and no dampening");
    return SNUG_OK;
}

static struct snug_states states(const struct snug_optimizer *optimizer, const struct snug_weight *weight) {
    (void)weight;
    return (struct snug_states){.update = SNUG_OP_SGD,
                                .count = optimizer->momentum != 0,
                                .items = {{"momentum_buffer", SNUG_F32, SNUG_STATE_LIKE}}};
}

static union snug_update_numbers numbers(const struct snug_optimizer *o, double updates, double learning_rate) {
    return (union snug_update_numbers){.sgd = {.keep = 1,
                                               .l2 = (float)o->weight_decay,
                                               .rate = (float)learning_rate,
                                               .momentum = (float)o->momentum,
                                               .rest = (float)(1 - o->dampening),
                                               .nesterov = o->nesterov,
                                               .first = updates == 0}};
}

const struct snug_optimizer_info snug_optimizer_sgd = {
    .names = {{"sgd", {.name = "sgd"}}},
    .keys = {SNUG_NUMBER_KEY("momentum", momentum, SNUG_AT_LEAST_0),
             SNUG_NUMBER_KEY("dampening", dampening, SNUG_ANY_NUMBER), SNUG_TRUTH_KEY(nesterov)},
    .measured = "momentum=0.9",
    .check = check,
    .states = states,
    .numbers = numbers,
};
