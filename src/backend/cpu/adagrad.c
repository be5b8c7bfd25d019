/* SPDX-License-Identifier: Apache-2.0 */
/* ADAGRAD: torch.optim.Adagrad. */
#include <math.h>

#include "backend/cpu/update.h"

struct constants {
    float clip, decay, rate, start, epsilon;
};

static void update(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                   const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    float *restrict sum = states[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i] * s.clip + s.decay * p[i];
        sum[i] += s.start + gradient * gradient;
        p[i] -= s.rate * gradient / (sqrtf(sum[i]) + s.epsilon);
    }
}

snug_status SNUG_KERNEL(adagrad)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct constants constants = {
        .clip = update_clip(run, op),
        .decay = (float)(op->update.decay ? o->weight_decay : 0),
        .rate = (float)(run->learning_rate / (1 + (double)run->step * o->lr_decay)),
        .start = (float)(run->step == 0 ? o->initial_accumulator_value : 0),
        .epsilon = (float)o->epsilon,
    };
    SNUG_KERNEL(update_elements)(run, op, update, &constants);
    return SNUG_OK;
}
