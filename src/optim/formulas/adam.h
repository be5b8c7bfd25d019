/* SPDX-License-Identifier: Apache-2.0 */
/* One step of Adam: see optimizers/adam.c, and formula.h. */
#ifndef SNUG_OPTIM_FORMULAS_ADAM_H
#define SNUG_OPTIM_FORMULAS_ADAM_H

#include "optim/formulas/formula.h"

/* The new p; updates m and v. */
static inline SNUG_REAL snug_adam_step(const struct snug_adam_numbers *s, SNUG_REAL p, SNUG_REAL g, SNUG_REAL *m,
                                       SNUG_REAL *v) {
    if (s->l2 != 0) g += s->l2 * p;
    *m += (g - *m) * s->rest1;
    *v = *v * s->beta2 + g * g * s->rest2;
    return p * s->keep - s->rate * *m / (SNUG_REAL_ROOT(*v) * s->root + s->epsilon);
}

#endif
