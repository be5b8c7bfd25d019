/* SPDX-License-Identifier: Apache-2.0 */
/* The row of a sequence, of those of its tokens: the same on all devices. */
#ifndef SNUG_PROGRAM_POOLING_H
#define SNUG_PROGRAM_POOLING_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* What the row of a sequence is: the row of its first or its last token; or a sum over its tokens' rows: their mean,
   their sum divided by the root of their number, or a mean with weights 1, 2, … The first token of first and of sums is
   the sequence's loss position: a later one than its first where a prompt is left out. Weights count from its first. */
enum snug_pooling { SNUG_POOL_FIRST, SNUG_POOL_LAST, SNUG_POOL_MEAN, SNUG_POOL_ROOT_MEAN, SNUG_POOL_WEIGHTED_MEAN };
static inline bool snug_pool_sums(enum snug_pooling pooling) { return pooling >= SNUG_POOL_MEAN; }
/* The weight of token i, from the sequence's first one, is snug_pool_weight() / snug_pool_divisor(), where the sum is
   over tokens begin … end - 1. */
static inline float snug_pool_weight(enum snug_pooling pooling, int64_t i) {
    return pooling == SNUG_POOL_WEIGHTED_MEAN ? (float)(i + 1) : 1;
}
static inline float snug_pool_divisor(enum snug_pooling pooling, int64_t begin, int64_t end) {
    const float n = (float)(end - begin);
    if (pooling == SNUG_POOL_ROOT_MEAN) return sqrtf(n);
    return pooling == SNUG_POOL_WEIGHTED_MEAN ? n * (float)(begin + end + 1) / 2 : n;
}

#endif
