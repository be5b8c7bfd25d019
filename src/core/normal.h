/* SPDX-License-Identifier: Apache-2.0 */
/* Gaussian samples from random words. */
#ifndef SNUG_CORE_NORMAL_H
#define SNUG_CORE_NORMAL_H

#include <stdint.h>

/*
 * count Gaussian samples of mean 0 and the given standard deviation (Box, Muller: "A note on the generation of random
 * normal deviates", 1958). Two words give two samples. words has count words, and one more if count is odd. Only
 * correctly rounded operations are used (sums, products, quotients and square roots), so that every machine, library
 * and vector width gives the same numbers. Before rounding to fp32 the error is below 1e-9 standard deviations.
 */
void snug_normal(float *values, const uint32_t *words, int64_t count, double deviation);

#endif
