/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of one step's update, which all elements of a weight share: settings and bias corrections, computed once
 * on the host, in double, and rounded to fp32. All backends use these numbers, so no backend calls pow().
 *
 * Weight decay is keep, the factor of p where it is decoupled, and l2, the factor with which p is added to the gradient
 * where it is not; for a weight without decay, 1 and 0.
 */
#ifndef SNUG_OPTIM_UPDATE_NUMBERS_H
#define SNUG_OPTIM_UPDATE_NUMBERS_H

#include <stdbool.h>

/* rest1 and rest2: 1 - beta, computed in double: in fp32, 1 - 0.999f has an error of 5e-5. */
struct snug_adam_numbers {
    float keep, l2, rest1, beta2, rest2;
    float rate, root; /* lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float epsilon;
};
/* As bitsandbytes: of betas that are fp32 numbers, so rest is 1 - beta in fp32. */
struct snug_adam_8bit_numbers {
    float keep, l2, beta1, rest1, beta2, rest2;
    float rate, epsilon; /* -lr c / (1 - beta1^t), c eps, where c = sqrt(1 - beta2^t) */
};
struct snug_sgd_numbers {
    float keep, l2, rate, momentum, rest; /* rest: 1 - dampening */
    bool nesterov, first;                 /* first: the buffer begins as the gradient */
};
struct snug_adagrad_numbers {
    float keep, l2, rate, start, epsilon; /* start: what the sum begins with, in the first step */
};
struct snug_rmsprop_numbers {
    float keep, l2, rate, alpha, rest, momentum, epsilon; /* rest: 1 - alpha */
    bool centered;
};
struct snug_lion_numbers {
    float keep, l2, rate, beta1, rest1, beta2, rest2;
};
struct snug_adafactor_numbers {
    float decay, rate, kept, fresh; /* decay: 0 for a weight without it; fresh: t^decay_rate; kept: 1 - fresh */
    float epsilon, epsilon2, threshold, beta1, rest1;
    bool scales; /* scale_parameter */
};

/* Those of a run's optimizer; of 8-bit Adam both, because small weights have 32-bit states. */
union snug_update_numbers {
    struct {
        struct snug_adam_numbers adam;
        struct snug_adam_8bit_numbers adam_8bit;
    };
    struct snug_sgd_numbers sgd;
    struct snug_adagrad_numbers adagrad;
    struct snug_rmsprop_numbers rmsprop;
    struct snug_lion_numbers lion;
    struct snug_adafactor_numbers adafactor;
};

#endif
