/* SPDX-License-Identifier: Apache-2.0 */
/* One step of Adagrad: see optimizers/adagrad.c, and formula.h. */
#ifndef SNUG_OPTIM_FORMULAS_ADAGRAD_H
#define SNUG_OPTIM_FORMULAS_ADAGRAD_H

#include "optim/formulas/formula.h"

/* The new p; updates the sum. */
static inline float snug_adagrad_step(const struct snug_adagrad_numbers *s, float p, float g, float *sum) {
    g += s->l2 * p;
    *sum += s->start + g * g;
    return p - s->rate * g / (sqrtf(*sum) + s->epsilon);
}

#endif
