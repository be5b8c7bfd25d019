/* SPDX-License-Identifier: Apache-2.0 */
/* One step of Adam on one SIMD vector, for updates of whole tensors and for lazy updates of rows: the same bits. */
#ifndef SNUG_BACKEND_CPU_ADAM_H
#define SNUG_BACKEND_CPU_ADAM_H

#include "backend/cpu/vec.h"

#define SNUG_REAL vec
#define SNUG_REAL_ROOT vec_sqrt
#include "optim/formulas/adam.h"

struct adam {
    struct snug_adam_numbers numbers;
    float clip;
};

/* Returns the new p; updates m and v in place. g is not clipped yet. */
static inline vec adam_step(const struct adam *s, vec p, vec *m, vec *v, vec g) {
    return snug_adam_step(&s->numbers, p, g * s->clip, m, v);
}

#endif
