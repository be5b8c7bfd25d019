/* SPDX-License-Identifier: Apache-2.0 */
/* LION: bitsandbytes' 32-bit Lion. */
#include "backend/cpu/update.h"

struct constants {
    float clip, keep, learning_rate, beta1, one_minus_beta1, beta2, one_minus_beta2;
};

static void update(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                   const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    float *restrict m = states[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i] * s.clip, direction = m[i] * s.beta1 + gradient * s.one_minus_beta1;
        const float sign = direction > 0 ? 1 : direction < 0 ? -1 : direction; /* sign(0) is 0, sign(NaN) is NaN */
        p[i] = p[i] * s.keep - s.learning_rate * sign;
        m[i] = m[i] * s.beta2 + gradient * s.one_minus_beta2;
    }
}

snug_status SNUG_KERNEL(lion)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct constants constants = {
        .clip = update_clip(run, op),
        .keep = (float)(1 - run->learning_rate * (op->update.decay ? o->weight_decay : 0)),
        .learning_rate = run->learning_rate,
        .beta1 = (float)o->beta1,
        .one_minus_beta1 = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .one_minus_beta2 = (float)(1 - o->beta2),
    };
    SNUG_KERNEL(update_elements)(run, op, update, &constants);
    return SNUG_OK;
}
