/* SPDX-License-Identifier: Apache-2.0 */
/* SGD: torch.optim.SGD. */
#include "backend/cpu/update.h"

struct constants {
    float clip, decay, learning_rate, momentum, add;
    bool nesterov;
};

static void update_plain(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                         const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    (void)states;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) p[i] -= s.learning_rate * (g[i] * s.clip + s.decay * p[i]);
}

static void update_momentum(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                            const float *restrict g, int64_t n) {
    const struct constants s = *(const struct constants *)constants;
    float *restrict buffer = states[0];
    /* The direction is the buffer, or with Nesterov's momentum g + momentum * buffer. */
    const float of_gradient = s.nesterov ? 1 : 0, of_buffer = s.nesterov ? s.momentum : 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i] * s.clip + s.decay * p[i];
        buffer[i] = buffer[i] * s.momentum + gradient * s.add;
        p[i] -= s.learning_rate * (gradient * of_gradient + buffer[i] * of_buffer);
    }
}

snug_status SNUG_KERNEL(sgd)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const bool first = run->step == 0; /* PyTorch's buffer begins as the first gradient, undamped */
    const struct constants constants = {
        .clip = update_clip(run, op),
        .decay = (float)(op->update.decay ? o->weight_decay : 0),
        .learning_rate = run->learning_rate,
        .momentum = (float)o->momentum,
        .add = (float)(first ? 1 : 1 - o->dampening),
        .nesterov = o->nesterov,
    };
    SNUG_KERNEL(update_elements)(run, op, o->momentum != 0 ? update_momentum : update_plain, &constants);
    return SNUG_OK;
}
