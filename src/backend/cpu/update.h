/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by all updates. An update is memory-bound, so it makes one pass over its values, in parts that fit the L1
 * cache: each part of the parameter is widened if it is stored in bf16, updated, rounded and copied.
 */
#ifndef SNUG_BACKEND_CPU_UPDATE_H
#define SNUG_BACKEND_CPU_UPDATE_H

#include "backend/cpu/kernels.h"

/* Values of a part: five arrays of this size fit the L1 cache. A multiple of the quantized blocks. */
enum { SNUG_UPDATE_PART = 1024 };

/* An elementwise update: p, states and g point to n values of the part. */
typedef void snug_update_fn(const void *constants, float *restrict p, float *const states[SNUG_STATES_MAX],
                            const float *restrict g, int64_t n);
/* Runs update over the whole tensor, in parallel; all states are F32 and have the parameter's shape. */
void SNUG_KERNEL(update_elements)(struct snug_run *run, const struct snug_op *op, snug_update_fn *update,
                                  const void *constants);

/* For updates with their own loops. Reads count values of the parameter from first on: in place, or widened into
 * buffer; and stores them with their copy when they are updated. Each thread calls them for its own values. */
float *SNUG_KERNEL(update_begin)(const struct snug_run *run, const struct snug_op *op, float *buffer, int64_t first,
                                 int64_t count);
void SNUG_KERNEL(update_end)(const struct snug_run *run, const struct snug_op *op, const float *p, int64_t first,
                             int64_t count);

/* The numbers of the update of step number step, from 0, for op's weight. */
static inline union snug_update_numbers update_numbers(const struct snug_run *run, const struct snug_op *op,
                                                       int64_t step, float learning_rate) {
    struct snug_optimizer optimizer = *run->optimizer;
    if (!op->update.decay) optimizer.weight_decay = 0;
    return optimizer.info->numbers(&optimizer, (double)step, learning_rate);
}

/* The gradient's clip factor. */
static inline float update_clip(const struct snug_run *run, const struct snug_op *op) {
    const float *clip = snug_run_data(run, op->update.clip);
    return clip ? clip[1] : 1.0f;
}

#endif
