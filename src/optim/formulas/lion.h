/* SPDX-License-Identifier: Apache-2.0 */
/* One step of Lion: see optimizers/lion.c, and formula.h. */
#ifndef SNUG_OPTIM_FORMULAS_LION_H
#define SNUG_OPTIM_FORMULAS_LION_H

#include "optim/formulas/formula.h"

/* The new p; updates m. */
static inline float snug_lion_step(const struct snug_lion_numbers *s, float p, float g, float *m) {
    const float direction = *m * s->beta1 + g * s->rest1;
    const float sign = direction > 0 ? 1 : direction < 0 ? -1 : direction; /* sign(0) is 0, sign(NaN) is NaN */
    *m = *m * s->beta2 + g * s->rest2;
    return p * s->keep - s->rate * sign;
}

#endif
