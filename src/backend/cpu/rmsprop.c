/* SPDX-License-Identifier: Apache-2.0 */
/* RMSPROP: torch.optim.RMSprop. */
#include <math.h>

#include "backend/cpu/update.h"

struct constants {
    float clip, decay, learning_rate, alpha, one_minus_alpha, momentum, epsilon;
    bool has_momentum, centered;
};

/* Inlined into update() once for each of the four settings, so that the loop has no branch. */
static inline __attribute__((always_inline)) void walk(const struct constants s, float *restrict p, float *restrict v,
                                                       float *restrict buffer, float *restrict mean,
                                                       const float *restrict g, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i] * s.clip + s.decay * p[i];
        float square = v[i] = v[i] * s.alpha + gradient * gradient * s.one_minus_alpha;
        if (mean) {
            mean[i] += (gradient - mean[i]) * s.one_minus_alpha;
            square -= mean[i] * mean[i];
            square = square < 0 ? 0 : square; /* a variance, up to rounding */
        }
        const float step = gradient / (sqrtf(square) + s.epsilon);
        if (buffer) buffer[i] = buffer[i] * s.momentum + step;
        p[i] -= s.learning_rate * (buffer ? buffer[i] : step);
    }
}

static void update(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                   const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    if (s.has_momentum && s.centered)
        walk(s, p, states[0], states[1], states[2], g, n);
    else if (s.has_momentum)
        walk(s, p, states[0], states[1], NULL, g, n);
    else if (s.centered)
        walk(s, p, states[0], NULL, states[1], g, n);
    else
        walk(s, p, states[0], NULL, NULL, g, n);
}

snug_status SNUG_KERNEL(rmsprop)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct constants constants = {
        .clip = update_clip(run, op),
        .decay = (float)(op->update.decay ? o->weight_decay : 0),
        .learning_rate = run->learning_rate,
        .alpha = (float)o->alpha,
        .one_minus_alpha = (float)(1 - o->alpha),
        .momentum = (float)o->momentum,
        .epsilon = (float)o->epsilon,
        .has_momentum = o->momentum != 0,
        .centered = o->centered,
    };
    SNUG_KERNEL(update_elements)(run, op, update, &constants);
    return SNUG_OK;
}
