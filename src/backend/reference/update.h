/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all updates: the clipped gradient, and storing a parameter with its copy. */
#ifndef SNUG_BACKEND_REFERENCE_UPDATE_H
#define SNUG_BACKEND_REFERENCE_UPDATE_H

#include "backend/reference/reference.h"

static inline bool is_skipped(const struct snug_run *run) {
    const float *scaler = scaler_of(run);
    return scaler && scaler[SNUG_SCALE_SKIPS] != 0;
}

/* t - 1 */
static inline double updates_done(const struct snug_run *run) { return (double)(run->step - run->skipped); }

static inline double clip_of(const struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix clip = snug_matrix_of(run, op->update.clip);
    return clip.data ? load(clip, 0, 1) : 1;
}

static inline double clipped_gradient(const struct snug_run *run, const struct snug_op *op, int64_t row, int64_t c) {
    return load(snug_matrix_of(run, op->update.g), row, c) * clip_of(run, op);
}

static inline void store_parameter(const struct snug_run *run, const struct snug_op *op, int64_t row, int64_t c,
                                   double value) {
    struct snug_matrix p = snug_matrix_of(run, op->update.weight), copy = snug_matrix_of(run, op->update.copy);
    const int64_t element = row * p.cols + c;
    if (p.dtype == SNUG_BF16)
        ((uint16_t *)p.data)[element] = snug_f32_to_bf16_stochastic(
            (float)value, snug_rounding_bits(run->seed, run->step, op->update.parameter, op->element + element));
    else
        store(p, row, c, value);
    if (copy.data) store(copy, row, c, load(p, row, c));
}

#endif
