/* SPDX-License-Identifier: Apache-2.0 */
/* One step of RMSprop: see optimizers/rmsprop.c, and formula.h. */
#ifndef SNUG_OPTIM_FORMULAS_RMSPROP_H
#define SNUG_OPTIM_FORMULAS_RMSPROP_H

#include "optim/formulas/formula.h"

/* The new p; updates v, the buffer if the momentum is not 0, the mean if centered. */
static inline float snug_rmsprop_step(const struct snug_rmsprop_numbers *s, float p, float g, float *v, float *buffer,
                                      float *mean) {
    g += s->l2 * p;
    *v = *v * s->alpha + g * g * s->rest;
    float square = *v;
    if (s->centered) {
        *mean += (g - *mean) * s->rest;
        square -= *mean * *mean;
        square = square < 0 ? 0 : square; /* a variance, up to rounding */
    }
    float direction = g / (sqrtf(square) + s->epsilon);
    if (s->momentum != 0) direction = *buffer = *buffer * s->momentum + direction;
    return p - s->rate * direction;
}

#endif
