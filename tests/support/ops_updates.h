/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of one optimizer's update each. */
#ifndef SNUG_TESTS_OPS_UPDATES_H
#define SNUG_TESTS_OPS_UPDATES_H

#include "ops_programs.h"

/* One update: what it works on, and at which step. */
struct update_case {
    struct snug_optimizer optimizer;
    int64_t step;
    int segments;
    bool vector, bf16, copy; /* vectors of outputs values; p is BF16; p has a BF16 copy */
    bool decay, unclipped;   /* unclipped: no clip tensor at all */
};

/* The update of p [rows, cols] by g with states as the optimizer keeps them: all 0 at step 0, later random, where
   second moments are positive and larger than the square of a mean. */
static inline struct snug_op ops_update(struct ops *f, const struct update_case *c, int32_t p, int32_t g,
                                        int32_t clip) {
    const struct snug_weight weight = {
        .rows = f->tensors[p].rows, .cols = f->tensors[p].cols, .segments = c->segments, .vector = c->vector};
    const struct snug_states states = c->optimizer.info->states(&c->optimizer, &weight);
    struct snug_op op = {.kind = states.update,
                         .update = {.g = g,
                                    .clip = clip,
                                    .weight = p,
                                    .segments = c->segments,
                                    .vector = c->vector,
                                    .decay = c->decay,
                                    .parameter = 5}};
    if (c->copy) op.update.copy = ops_tensor(f, ops_copy_type(f), FIXED, weight.rows, weight.cols);
    for (int i = 0; i < states.count; i++) {
        int64_t rows, cols;
        snug_state_size(&states.items[i], &weight, &rows, &cols);
        const int32_t state = op.update.states[i] = ops_tensor(f, states.items[i].dtype, FIXED, rows, cols);
        const bool squares = strstr(states.items[i].name, "sq") || strcmp(states.items[i].name, "sum") == 0;
        for (int64_t k = 0; k < rows * cols; k++) {
            const double value = c->step ? ops_value(99 + (uint32_t)state, (uint64_t)k) / 4 : 0;
            ops_set(f, state, k, squares && c->step ? value * value + 0.25 : value);
        }
    }
    return op;
}

static inline void build_update(struct ops *f, const struct update_case *c) {
    const int64_t n = f->shape->outputs, rows = c->vector ? c->segments : c->segments * n;
    const int64_t cols = c->vector ? n : f->shape->h;
    int32_t g = ops_source(f, SNUG_F32, FIXED, rows, cols), clip = ops_tensor(f, SNUG_F32, FIXED, 1, 2);
    int32_t p = ops_source(f, c->bf16 ? SNUG_BF16 : SNUG_F32, FIXED, rows, cols);
    f->optimizer = c->optimizer;
    f->run.step = c->step;
    ops_fill(f, clip, 0.375);
    ops_add(f, ops_update(f, c, p, g, c->unclipped ? 0 : clip));
}

#define UPDATE_BUILDER(name, cases)                                                                                    \
    static inline void name(struct ops *f, int variant) { build_update(f, &(cases)[variant]); }
#define ADAM_SET .info = &snug_optimizer_adam, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1
#define SGD_SET .info = &snug_optimizer_sgd, .weight_decay = 0.1
#define ADAFACTOR_SET                                                                                                  \
    .info = &snug_optimizer_adafactor, .epsilon = 1e-30, .epsilon2 = 1e-3, .clip_threshold = 1, .decay_rate = -0.8,    \
    .weight_decay = 0.1
#define ADAGRAD_SET .info = &snug_optimizer_adagrad, .epsilon = 1e-10, .weight_decay = 0.1
/* Its first step divides g by its own size: weight_decay has few digits, so that a g that cancels is 0 in any
 * arithmetic. */
#define RMSPROP_SET .info = &snug_optimizer_rmsprop, .alpha = 0.99, .epsilon = 1e-8, .weight_decay = 0.125
#define LION_SET .info = &snug_optimizer_lion, .beta1 = 0.75, .beta2 = 0.99, .weight_decay = 0.1

static const struct update_case adam_cases[] = {
    {{ADAM_SET, .decoupled = true}, 3, 1, .copy = true, .decay = true},
    {{ADAM_SET, .decoupled = true}, 1000, 1, .unclipped = true},
    {{ADAM_SET, .decoupled = true}, 0, 3, .vector = true},
    {{ADAM_SET}, 3, 3, .decay = true},
    {{ADAM_SET}, 7, 1, .bf16 = true, .decay = true},
};
UPDATE_BUILDER(build_adam, adam_cases)
#define ADAM_VARIANTS (int)(sizeof adam_cases / sizeof *adam_cases)

static const struct update_case sgd_cases[] = {
    {{SGD_SET}, 0, 1, .copy = true, .decay = true},
    {{SGD_SET, .momentum = 0.9}, 0, 3, .decay = true},
    {{SGD_SET, .momentum = 0.9, .dampening = 0.25}, 0, 1, .decay = true},
    {{SGD_SET, .momentum = 0.9, .dampening = 0.25}, 3, 1, .copy = true, .decay = true},
    {{SGD_SET, .momentum = 0.9, .nesterov = true}, 3, 3, .vector = true, .unclipped = true},
    {{SGD_SET, .momentum = 0.9, .nesterov = true}, 5, 1, .bf16 = true},
};
UPDATE_BUILDER(build_sgd, sgd_cases)
#define SGD_VARIANTS (int)(sizeof sgd_cases / sizeof *sgd_cases)

static const struct update_case adafactor_cases[] = {
    {{ADAFACTOR_SET}, 3, 1, .copy = true, .decay = true},
    {{ADAFACTOR_SET}, 0, 3, .decay = true},
    {{ADAFACTOR_SET, .scale_parameter = true}, 1000, 3, .unclipped = true},
    {{ADAFACTOR_SET, .factored_momentum = true, .beta1 = 0.9}, 3, 3, .decay = true},
    {{ADAFACTOR_SET, .scale_parameter = true}, 3, 1, .vector = true, .copy = true},
    {{ADAFACTOR_SET, .factored_momentum = true, .beta1 = 0.9}, 3, 3, .vector = true, .decay = true},
    {{ADAFACTOR_SET, .scale_parameter = true}, 7, 2, .bf16 = true, .decay = true},
};
UPDATE_BUILDER(build_adafactor, adafactor_cases)
#define ADAFACTOR_VARIANTS (int)(sizeof adafactor_cases / sizeof *adafactor_cases)

static const struct update_case adagrad_cases[] = {
    {{ADAGRAD_SET, .lr_decay = 0.1}, 3, 1, .copy = true, .decay = true},
    {{ADAGRAD_SET, .initial_accumulator_value = 0.1}, 0, 3, .vector = true, .unclipped = true},
    {{ADAGRAD_SET, .initial_accumulator_value = 0.1}, 5, 2, .bf16 = true, .decay = true},
};
UPDATE_BUILDER(build_adagrad, adagrad_cases)
#define ADAGRAD_VARIANTS (int)(sizeof adagrad_cases / sizeof *adagrad_cases)

static const struct update_case rmsprop_cases[] = {
    {{RMSPROP_SET}, 0, 1, .copy = true, .decay = true},
    {{RMSPROP_SET, .momentum = 0.9}, 3, 3, .decay = true},
    {{RMSPROP_SET, .centered = true}, 3, 1, .vector = true, .unclipped = true},
    {{RMSPROP_SET, .momentum = 0.9, .centered = true}, 3, 1, .copy = true},
    {{RMSPROP_SET, .momentum = 0.9, .centered = true}, 5, 2, .bf16 = true, .decay = true},
};
UPDATE_BUILDER(build_rmsprop, rmsprop_cases)
#define RMSPROP_VARIANTS (int)(sizeof rmsprop_cases / sizeof *rmsprop_cases)

/* beta1 has few digits, so that where the direction is 0 it is so in any arithmetic. */
static const struct update_case lion_cases[] = {
    {{LION_SET}, 3, 1, .copy = true, .decay = true},
    {{LION_SET}, 0, 3, .vector = true, .unclipped = true},
    {{LION_SET}, 5, 2, .bf16 = true, .decay = true},
};
UPDATE_BUILDER(build_lion, lion_cases)
#define LION_VARIANTS (int)(sizeof lion_cases / sizeof *lion_cases)

#endif
