/* SPDX-License-Identifier: Apache-2.0 */
/* RMSPROP: torch.optim.RMSprop. */
#include "optim/formulas/rmsprop.h"

#include "backend/cpu/update.h"

struct constants {
    struct snug_rmsprop_numbers numbers;
    float clip;
};

/* Inlined into update() once for each of the four settings, so that the loop has no branch. */
static inline __attribute__((always_inline)) void walk(const struct constants *constants, bool momentum, bool centered,
                                                       float *restrict p, float *restrict v, float *restrict buffer,
                                                       float *restrict mean, const float *restrict g, int64_t n) {
    struct constants s = *constants;
    s.numbers.centered = centered;
    if (!momentum) s.numbers.momentum = 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] = snug_rmsprop_step(&s.numbers, p[i], g[i] * s.clip, &v[i], momentum ? &buffer[i] : NULL,
                                 centered ? &mean[i] : NULL);
}

static void update(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                   const float *restrict g, int64_t n) {
    const struct constants *s = constants;
    if (s->numbers.momentum != 0 && s->numbers.centered)
        walk(s, true, true, p, states[0], states[1], states[2], g, n);
    else if (s->numbers.momentum != 0)
        walk(s, true, false, p, states[0], states[1], NULL, g, n);
    else if (s->numbers.centered)
        walk(s, false, true, p, states[0], NULL, states[1], g, n);
    else
        walk(s, false, false, p, states[0], NULL, NULL, g, n);
}

snug_status SNUG_KERNEL(rmsprop)(struct snug_run *run, const struct snug_op *op) {
    const struct constants constants = {update_numbers(run, op, run->step - run->skipped, run->learning_rate).rmsprop,
                                        update_clip(run, op)};
    SNUG_KERNEL(update_elements)(run, op, update, &constants);
    return SNUG_OK;
}
