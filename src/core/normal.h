/* SPDX-License-Identifier: Apache-2.0 */
/* Normal numbers from random words. */
#ifndef SNUG_CORE_NORMAL_H
#define SNUG_CORE_NORMAL_H

#include <stdint.h>

/*
 * count normal numbers of mean 0 and the given standard deviation (Box, Muller: "A note on the generation of random
 * normal deviates", 1958): each two words give two. There are count of them, and one more where count is odd. Nothing
 * but sums, products, quotients and square roots is computed, all of them rounded exactly, so that every machine,
 * library and width of vectors gives the same numbers; they are within 1e-9 of the deviation of what is meant, before
 * they are rounded to fp32.
 */
void snug_normal(float *values, const uint32_t *words, int64_t count, double deviation);

#endif
