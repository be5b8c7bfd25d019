/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference backend defines in plain C what each operation of program/op.h computes. It reads any storage type as
 * double, computes in double, and rounds once, when it stores. Nothing here is fast; everything else is compared with
 * it.
 */
#ifndef SNUG_BACKEND_REFERENCE_REFERENCE_H
#define SNUG_BACKEND_REFERENCE_REFERENCE_H

#include <math.h>

#include "backend/backend.h"
#include "core/philox.h"
#include "optim/loss_scale.h"

#define SNUG_PROTOTYPE(KIND, name, member) snug_op_fn snug_reference_##name;
SNUG_OPS_COMMON(SNUG_PROTOTYPE)
SNUG_OPS_LOSS_SCALING(SNUG_PROTOTYPE)
SNUG_OPS_LAZY_ROWS(SNUG_PROTOTYPE)
SNUG_OPS_GENERATION(SNUG_PROTOTYPE)
#undef SNUG_PROTOTYPE

static inline double load(struct snug_matrix m, int64_t row, int64_t col) {
    int64_t i = row * m.cols + col;
    switch (m.dtype) {
    case SNUG_BF16: return snug_bf16_to_f32(((const uint16_t *)m.data)[i]);
    case SNUG_F16: return snug_f16_to_f32(((const uint16_t *)m.data)[i]);
    default: return ((const float *)m.data)[i];
    }
}

static inline void store(struct snug_matrix m, int64_t row, int64_t col, double value) {
    int64_t i = row * m.cols + col;
    switch (m.dtype) {
    case SNUG_BF16: ((uint16_t *)m.data)[i] = snug_f32_to_bf16((float)value); break;
    case SNUG_F16: ((uint16_t *)m.data)[i] = snug_f32_to_f16((float)value); break;
    default: ((float *)m.data)[i] = (float)value; break;
    }
}

/* See "Loss scaling" in backend.h: the tensor's values, or NULL. */
static inline float *scaler_of(const struct snug_run *run) { return snug_run_data(run, run->program->scaler); }

/* y = x in `heads` heads of a row from `column` on, rotated; factor: as snug_rotation_factor() gives it. */
void snug_reference_rotate_row(struct snug_matrix y, struct snug_matrix x, int64_t row, int64_t column, int64_t heads,
                               int64_t head_dim, const struct snug_rotation *r, double position, double factor);

/* What dropout multiplies an element by, 0 or 1 / (1 - p). The element has that half of that word of the block which
   the counter's first two words, the sample and the head name: see philox.h. */
static inline double dropout_factor_of(const struct snug_run *run, const struct snug_op *op, int64_t c0, int64_t c1,
                                       int32_t sample, int32_t head, int64_t word, int64_t half) {
    if (op->p == 0) return 1;
    const uint32_t threshold = snug_dropout_threshold(op->p);
    const struct snug_philox_block block =
        snug_philox_rounds((uint32_t)c0, (uint32_t)c1, (uint32_t)sample,
                           (uint32_t)SNUG_PHILOX_DROPOUT << 29 | op->site << 12 | (uint32_t)head,
                           snug_philox_key(run->seed), (uint32_t)run->step, SNUG_DROPOUT_ROUNDS);
    return snug_dropout_half(block.word[word], (uint32_t)half) < threshold ? 0 : snug_dropout_scale(threshold);
}

/* An element of an optional vector: 0 if there is none. */
/* An element of a gradient, which is overwritten or added to: the sum is rounded before it is added, so that
   micro-batches add up to the bits of a sum over ranks with a micro-batch each. */
static inline void add_sum(struct snug_matrix m, int64_t row, int64_t col, double sum, bool overwrites) {
    store(m, row, col, overwrites ? sum : load(m, row, col) + (double)(float)sum);
}

static inline double load_or_0(struct snug_matrix m, int64_t col) { return m.data ? load(m, 0, col) : 0; }

/* Dropout of a row's channel, and of a token's. */
static inline double dropout_factor_at(const struct snug_run *run, const struct snug_op *op, struct snug_row_key key,
                                       int64_t channel) {
    return dropout_factor_of(run, op, channel / 8, key.position, key.sample, 0, channel % 8 / 2, channel % 2);
}
static inline double dropout_factor(const struct snug_run *run, const struct snug_op *op, int64_t token,
                                    int64_t channel) {
    const struct snug_row_key key = {run->batch->positions[token], run->batch->sample[token]};
    return dropout_factor_at(run, op, key, channel);
}

/* Doubles of workspace of attention, forward or backward. */
int64_t snug_reference_attention_doubles(const struct snug_program *program, const struct snug_op *op);

#endif
