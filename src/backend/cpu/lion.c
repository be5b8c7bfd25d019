/* SPDX-License-Identifier: Apache-2.0 */
/* LION: bitsandbytes' 32-bit Lion. */
#include "optim/formulas/lion.h"

#include "backend/cpu/update.h"

struct constants {
    struct snug_lion_numbers numbers;
    float clip;
};

static void update(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                   const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    float *restrict m = states[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) p[i] = snug_lion_step(&s.numbers, p[i], g[i] * s.clip, &m[i]);
}

snug_status SNUG_KERNEL(lion)(struct snug_run *run, const struct snug_op *op) {
    const struct constants constants = {update_numbers(run, op, run->step - run->skipped, run->learning_rate).lion,
                                        update_clip(run, op)};
    SNUG_KERNEL(update_elements)(run, op, update, &constants);
    return SNUG_OK;
}
