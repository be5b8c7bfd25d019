/* SPDX-License-Identifier: Apache-2.0 */
#include "program/tape.h"

#include <string.h>

bool snug_tape_needs(const struct snug_tape *tape, int32_t x) { return x > 0 && tape->needed[x]; }

int32_t snug_tape_take(struct snug_tape *tape, int32_t y) {
    const int32_t gradient = y > 0 ? tape->gradient[y] : 0;
    if (gradient) tape->gradient[y] = 0;
    return gradient;
}

static int holders(const struct snug_tape *tape, int32_t gradient) {
    int count = 0;
    for (size_t i = 1; i < tape->tensors; i++) count += tape->gradient[i] == gradient;
    return count;
}

bool snug_tape_is_free(const struct snug_tape *tape, int32_t gradient) {
    return gradient != tape->pending && holders(tape, gradient) == 0;
}

void snug_tape_emit(struct snug_tape *tape, struct snug_op op) {
    op.phase = tape->phase;
    op.part = tape->of.part;
    op.layer = tape->of.layer;
    if (tape->status == SNUG_OK) tape->status = snug_program_op(tape->program, op);
}

void snug_tape_clear(struct snug_tape *tape, int32_t tensor, enum snug_phase phase, bool first) {
    const enum snug_phase here = tape->phase;
    tape->phase = phase;
    snug_tape_emit(tape, (struct snug_op){.kind = SNUG_OP_FILL, .first = first, .fill = {.x = tensor}});
    tape->phase = here;
}

void snug_tape_refuse(struct snug_tape *tape, int32_t y, const char *why) {
    if (tape->status == SNUG_OK)
        tape->status = snug_fail(tape->program->ctx, SNUG_E_INTERNAL, "%s of %s cannot be differentiated: %s",
                                 snug_op_name(tape->of.kind), tape->program->tensors[y].name, why);
}

int32_t snug_tape_new(struct snug_tape *tape, int32_t x) {
    if (tape->status != SNUG_OK) return 0;
    struct snug_tensor like = tape->program->tensors[x];
    like.memory_class = like.persistent ? SNUG_MEMORY_GRADIENTS : SNUG_MEMORY_TEMPORARY;
    like.low_precision = !like.persistent;
    like.trainable = false;
    char name[sizeof like.name];
    memcpy(name, like.name, sizeof name);
    int32_t made = 0;
    tape->status = snug_program_tensor(tape->program, like, &made, "grad.%s", name);
    return made;
}

/* From x's gradient the linear before an activation computes the gradient of the activation's bias, too, so nothing may
   be added to it. */
static void check_bias(struct snug_tape *tape, int32_t x) {
    if (tape->gradient[x] && tape->bias[x])
        snug_tape_refuse(tape, x, "the activation that adds a bias to it must be its only reader");
}

int32_t snug_tape_target(struct snug_tape *tape, int32_t x, int32_t dy, bool *accumulate) {
    const int32_t before = tape->gradient[x];
    check_bias(tape, x);
    *accumulate = before && before != dy && holders(tape, before) == 1;
    return *accumulate ? before : snug_tape_new(tape, x);
}

int32_t snug_tape_shared(struct snug_tape *tape, int32_t x, bool *accumulate) {
    *accumulate = false;
    return tape->gradient[x] ? tape->gradient[x] : snug_tape_new(tape, x);
}

int32_t snug_tape_sum(struct snug_tape *tape, int32_t x, int32_t in_place, int32_t *addend) {
    *addend = tape->gradient[x];
    const int32_t alone = *addend && holders(tape, *addend) == 1 ? *addend : 0;
    check_bias(tape, x);
    const int32_t sum = alone ? alone : !*addend && in_place ? in_place : snug_tape_new(tape, x);
    if (snug_tape_needs(tape, x)) tape->gradient[x] = sum;
    return sum;
}

static void add(struct snug_tape *tape, int32_t x, int32_t y) {
    snug_tape_emit(tape, (struct snug_op){.kind = SNUG_OP_ADD, .add = {.x = x, .y = y}});
}

void snug_tape_give(struct snug_tape *tape, int32_t x, int32_t gradient) {
    if (tape->status != SNUG_OK || !snug_tape_needs(tape, x) || tape->gradient[x] == gradient) return;
    const int32_t before = tape->gradient[x];
    check_bias(tape, x);
    if (!before) {
        tape->gradient[x] = gradient;
    } else if (holders(tape, before) == 1) {
        add(tape, gradient, before);
    } else {
        int32_t sum = gradient;
        if (!snug_tape_is_free(tape, gradient)) { /* both are still read */
            sum = snug_tape_new(tape, x);
            snug_tape_clear(tape, sum, tape->phase, false);
            add(tape, gradient, sum);
        }
        add(tape, before, sum);
        tape->gradient[x] = sum;
    }
}

void snug_tape_give_both(struct snug_tape *tape, int32_t x, int32_t z, int32_t gradient) {
    tape->pending = snug_tape_needs(tape, z) ? gradient : 0; /* x's previous gradient is not added to it */
    snug_tape_give(tape, x, gradient);
    tape->pending = 0;
    snug_tape_give(tape, z, gradient);
}

bool snug_tape_weights(struct snug_tape *tape, struct snug_op *op, const struct snug_tape_weight weights[], int count) {
    bool touched = false, any = false;
    for (int i = 0; i < count; i++) {
        if (!snug_tape_needs(tape, weights[i].weight)) continue;
        touched |= tape->touched[weights[i].weight];
        any = true;
    }
    op->first = any && !touched;
    for (int i = 0; i < count; i++) {
        const int32_t w = weights[i].weight;
        if (!snug_tape_needs(tape, w)) continue;
        if (!tape->gradient[w]) tape->gradient[w] = snug_tape_new(tape, w);
        if (tape->status != SNUG_OK) return false;
        tape->program->tensors[w].gradient = *weights[i].gradient = tape->gradient[w];
        if (touched && !tape->touched[w]) snug_tape_clear(tape, tape->gradient[w], SNUG_PHASE_FORWARD, true);
        tape->touched[w] = true;
    }
    return any;
}
