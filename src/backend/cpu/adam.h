/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step of Adam on one SIMD vector, for updates of whole tensors and for lazy updates of rows. The bits are the
 * same, because both use this function and the files that use it are compiled without contraction of a*b+c.
 */
#ifndef SNUG_BACKEND_CPU_ADAM_H
#define SNUG_BACKEND_CPU_ADAM_H

#include <math.h>

#include "backend/cpu/vec.h"

struct adam {
    float clip, keep, decay, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_correction, epsilon;
};

/* The factors of step number `step`, from 0. */
static inline struct adam adam_of(const struct snug_run *run, const struct snug_op *op, int64_t step,
                                  double learning_rate, float clip) {
    const struct snug_optimizer *o = run->optimizer;
    const double t = (double)step + 1, decay = op->update.decay ? o->weight_decay : 0;
    return (struct adam){
        .clip = clip,
        .keep = (float)(o->decoupled ? 1 - learning_rate * decay : 1),
        .decay = (float)(o->decoupled ? 0 : decay),
        .one_minus_beta1 = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .one_minus_beta2 = (float)(1 - o->beta2),
        .step_size = (float)(learning_rate / (1 - pow(o->beta1, t))),
        .inverse_correction = (float)(1 / sqrt(1 - pow(o->beta2, t))),
        .epsilon = (float)o->epsilon,
    };
}

/* Returns the new p; updates m and v in place. */
static inline vec adam_step(const struct adam *s, vec p, vec *m, vec *v, vec g) {
    vec gradient = g * s->clip;
    if (s->decay != 0) gradient = vec_fma(p, vec_all(s->decay), gradient);
    *m = vec_fma(gradient - *m, vec_all(s->one_minus_beta1), *m);
    *v = vec_fma(gradient * gradient, vec_all(s->one_minus_beta2), *v * s->beta2);
    return p * s->keep - s->step_size * *m / (vec_sqrt(*v) * s->inverse_correction + s->epsilon);
}

#endif
