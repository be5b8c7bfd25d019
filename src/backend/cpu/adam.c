/* SPDX-License-Identifier: Apache-2.0 */
/* ADAM: torch.optim.AdamW and Adam. */
#include "backend/cpu/adam.h"

#include "backend/cpu/update.h"

static void update(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                   const float *restrict g, int64_t n) {
    const struct adam adam = *(const struct adam *)constants;
    float *restrict m = states[0], *restrict v = states[1];
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vec mean = vec_load(m, SNUG_F32, i, n), square = vec_load(v, SNUG_F32, i, n);
        vec value = adam_step(&adam, vec_load(p, SNUG_F32, i, n), &mean, &square, vec_load(g, SNUG_F32, i, n));
        vec_store(m, SNUG_F32, i, n, mean);
        vec_store(v, SNUG_F32, i, n, square);
        vec_store(p, SNUG_F32, i, n, value);
    }
}

snug_status SNUG_KERNEL(adam)(struct snug_run *run, const struct snug_op *op) {
    const struct adam adam = {update_numbers(run, op, run->step - run->skipped, run->learning_rate).adam,
                              update_clip(run, op)};
    SNUG_KERNEL(update_elements)(run, op, update, &adam);
    return SNUG_OK;
}
