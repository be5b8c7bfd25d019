/* SPDX-License-Identifier: Apache-2.0 */
/* ADAM: torch.optim.AdamW and Adam. */
#include <math.h>

#include "backend/cpu/update.h"

struct constants {
    float clip, keep, decay, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_correction, epsilon;
};

static void update(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                   const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    float *restrict m = states[0], *restrict v = states[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * s.clip + s.decay * p[i];
        m[i] += (gradient - m[i]) * s.one_minus_beta1;
        v[i] = v[i] * s.beta2 + gradient * gradient * s.one_minus_beta2;
        p[i] = p[i] * s.keep - s.step_size * m[i] / (sqrtf(v[i]) * s.inverse_correction + s.epsilon);
    }
}

snug_status SNUG_KERNEL(adam)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const double t = (double)run->step + 1, decay = op->decay ? o->weight_decay : 0;
    const struct constants constants = {
        .clip = update_clip(run, op),
        .keep = (float)(o->decoupled ? 1 - run->learning_rate * decay : 1),
        .decay = (float)(o->decoupled ? 0 : decay),
        .one_minus_beta1 = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .one_minus_beta2 = (float)(1 - o->beta2),
        .step_size = (float)(run->learning_rate / (1 - pow(o->beta1, t))),
        .inverse_correction = (float)(1 / sqrt(1 - pow(o->beta2, t))),
        .epsilon = (float)o->epsilon,
    };
    SNUG_KERNEL(update_elements)(run, op, update, &constants);
    return SNUG_OK;
}
