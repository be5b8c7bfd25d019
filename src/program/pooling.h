/* SPDX-License-Identifier: Apache-2.0 */
/* The row of a sequence, of those of its tokens: the same on all devices. */
#ifndef SNUG_PROGRAM_POOLING_H
#define SNUG_PROGRAM_POOLING_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* What the row of a sequence of n tokens is: the row of its first or its last token; or a sum over its tokens' rows:
   their mean, their sum divided by the root of n, or a mean with weights 1, 2, … n. */
enum snug_pooling { SNUG_POOL_FIRST, SNUG_POOL_LAST, SNUG_POOL_MEAN, SNUG_POOL_ROOT_MEAN, SNUG_POOL_WEIGHTED_MEAN };
static inline bool snug_pool_sums(enum snug_pooling pooling) { return pooling >= SNUG_POOL_MEAN; }
/* The weight of token i is snug_pool_weight() / snug_pool_divisor(). */
static inline float snug_pool_weight(enum snug_pooling pooling, int64_t i) {
    return pooling == SNUG_POOL_WEIGHTED_MEAN ? (float)(i + 1) : 1;
}
static inline float snug_pool_divisor(enum snug_pooling pooling, int64_t n) {
    if (pooling == SNUG_POOL_ROOT_MEAN) return sqrtf((float)n);
    return pooling == SNUG_POOL_WEIGHTED_MEAN ? (float)n * (float)(n + 1) / 2 : (float)n;
}

#endif
