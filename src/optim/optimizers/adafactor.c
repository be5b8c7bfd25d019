/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAFACTOR: transformers' Adafactor (Shazeer and Stern, arXiv:1804.04235). States row means r and column means c, for
 * vectors v instead; m, if beta1 is given. eps1 is epsilon, eps2 epsilon2. If relative_step, lr is the optimizer's own.
 *
 *   b = 1 - t^decay_rate
 *   r = b r + (1-b) mean over a row of (g^2 + eps1), c the same over a column
 *   u = g / sqrt(r / mean(r)) / sqrt(c)
 *   for vectors: v = b v + (1-b) (g^2 + eps1), u = g / sqrt(v)
 *   lr *= max(eps2, RMS(p)) if scale_parameter
 *   u *= lr / max(1, RMS(u) / clip_threshold)
 *   m = b1 m + (1-b1) u and u = m, if there is m
 *   p *= 1 - lr wd
 *   p -= u
 */
#include <math.h>

#include "optim/optimizer.h"
#include "program/ops/update.h"

/* It uses means of rows and columns, so it needs whole parameters. */
SNUG_UPDATE_INFO(adafactor, 0, snug_update_cost, "r or v", "c or m", "m", "state", 0);

static snug_status check(snug_context *ctx, const struct snug_optimizer *optimizer) {
    if (optimizer->warmup_init && !optimizer->relative_step)
        return snug_fail(ctx, SNUG_E_USAGE, "--optim_args: warmup_init=True needs relative_step=True");
    return SNUG_OK;
}

static double rate(const struct snug_optimizer *optimizer, double scheduled, int64_t step) {
    const double t = (double)step + 1;
    return optimizer->relative_step ? fmin(optimizer->warmup_init ? 1e-6 * t : 1e-2, 1 / sqrt(t)) : scheduled;
}

static struct snug_states states(const struct snug_optimizer *optimizer, const struct snug_weight *weight) {
    static const struct snug_state rows = {"exp_avg_sq_row", SNUG_F32, SNUG_STATE_ROWS},
                                   columns = {"exp_avg_sq_col", SNUG_F32, SNUG_STATE_COLUMNS},
                                   squares = {"exp_avg_sq", SNUG_F32, SNUG_STATE_LIKE},
                                   momentum = {"exp_avg", SNUG_F32, SNUG_STATE_LIKE};
    struct snug_states s = {.update = SNUG_OP_ADAFACTOR, .count = 2, .items = {rows, columns}};
    if (weight->vector) s = (struct snug_states){.update = SNUG_OP_ADAFACTOR, .count = 1, .items = {squares}};
    if (optimizer->factored_momentum) s.items[s.count++] = momentum;
    return s;
}

static union snug_update_numbers numbers(const struct snug_optimizer *o, double updates, double learning_rate) {
    const double fresh = pow(updates + 1, o->decay_rate);
    return (union snug_update_numbers){.adafactor = {.decay = (float)o->weight_decay,
                                                     .rate = (float)learning_rate,
                                                     .kept = (float)(1 - fresh),
                                                     .fresh = (float)fresh,
                                                     .epsilon = (float)o->epsilon,
                                                     .epsilon2 = (float)o->epsilon2,
                                                     .threshold = (float)o->clip_threshold,
                                                     .beta1 = (float)o->beta1,
                                                     .rest1 = (float)(1 - o->beta1),
                                                     .scales = o->scale_parameter}};
}

const struct snug_optimizer_info snug_optimizer_adafactor = {
    .names = {{"adafactor",
               {.name = "adafactor", .epsilon = 1e-30, .epsilon2 = 1e-3, .clip_threshold = 1, .decay_rate = -0.8}}},
    .keys = {SNUG_NUMBER_KEY("eps1", epsilon, SNUG_AT_LEAST_0), SNUG_NUMBER_KEY("eps2", epsilon2, SNUG_AT_LEAST_0),
             SNUG_NUMBER_KEY("clip_threshold", clip_threshold, " above 0", DBL_MIN, DBL_MAX),
             SNUG_NUMBER_KEY("decay_rate", decay_rate, " of at most 0", -DBL_MAX, 0),
             SNUG_NUMBER_KEY("beta1", beta1, " of at least 0 and below 1", 0, 1 - DBL_EPSILON,
                             offsetof(struct snug_optimizer, factored_momentum)),
             SNUG_TRUTH_KEY(scale_parameter), SNUG_TRUTH_KEY(relative_step), SNUG_TRUTH_KEY(warmup_init)},
    .check = check,
    .rate = rate,
    .states = states,
    .numbers = numbers,
};
