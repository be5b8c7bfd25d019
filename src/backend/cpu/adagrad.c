/* SPDX-License-Identifier: Apache-2.0 */
/* ADAGRAD: torch.optim.Adagrad. */
#include "optim/formulas/adagrad.h"

#include "backend/cpu/update.h"

struct constants {
    struct snug_adagrad_numbers numbers;
    float clip;
};

static void update(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                   const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    float *restrict sum = states[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) p[i] = snug_adagrad_step(&s.numbers, p[i], g[i] * s.clip, &sum[i]);
}

snug_status SNUG_KERNEL(adagrad)(struct snug_run *run, const struct snug_op *op) {
    const struct constants constants = {update_numbers(run, op, run->step - run->skipped, run->learning_rate).adagrad,
                                        update_clip(run, op)};
    SNUG_KERNEL(update_elements)(run, op, update, &constants);
    return SNUG_OK;
}
