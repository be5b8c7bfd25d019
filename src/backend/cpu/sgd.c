/* SPDX-License-Identifier: Apache-2.0 */
/* SGD: torch.optim.SGD. */
#include "optim/formulas/sgd.h"

#include "backend/cpu/update.h"

struct constants {
    struct snug_sgd_numbers numbers;
    float clip;
};

static void update_plain(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                         const float *restrict g, int64_t n) {
    struct constants s = *(const struct constants *)constants;
    (void)states;
    s.numbers.momentum = 0; /* known to the compiler */
#pragma omp simd
    for (int64_t i = 0; i < n; i++) p[i] = snug_sgd_step(&s.numbers, p[i], g[i] * s.clip, NULL);
}

static void update_momentum(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                            const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    float *restrict buffer = states[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) p[i] = snug_sgd_step(&s.numbers, p[i], g[i] * s.clip, &buffer[i]);
}

snug_status SNUG_KERNEL(sgd)(struct snug_run *run, const struct snug_op *op) {
    const struct constants constants = {update_numbers(run, op, run->step - run->skipped, run->learning_rate).sgd,
                                        update_clip(run, op)};
    SNUG_KERNEL(update_elements)(run, op, run->optimizer->momentum != 0 ? update_momentum : update_plain, &constants);
    return SNUG_OK;
}
