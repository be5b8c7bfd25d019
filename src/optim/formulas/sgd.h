/* SPDX-License-Identifier: Apache-2.0 */
/* One step of SGD: see optimizers/sgd.c, and formula.h. */
#ifndef SNUG_OPTIM_FORMULAS_SGD_H
#define SNUG_OPTIM_FORMULAS_SGD_H

#include "optim/formulas/formula.h"

/* The new p; updates the buffer, which is not used if the momentum is 0. */
static inline float snug_sgd_step(const struct snug_sgd_numbers *s, float p, float g, float *buffer) {
    g += s->l2 * p;
    float direction = g;
    if (s->momentum != 0) {
        *buffer = s->first ? g : *buffer * s->momentum + g * s->rest;
        direction = s->nesterov ? g + *buffer * s->momentum : *buffer;
    }
    return p - s->rate * direction;
}

#endif
