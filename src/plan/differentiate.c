/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse-mode differentiation of a program: the stage visits the forward operations from last to first, and each emits
 * its own backward (program/tape.h). A backward operation has the forward values that it needs as operands; the
 * recompute stage decides which of them are stored and which are recomputed.
 */
#include <stdlib.h>

#include "plan/stages.h"
#include "program/tape.h"

/* A tensor needs a gradient if it depends on a trainable weight. */
static void find_needed(struct snug_tape *tape) {
    const struct snug_program *program = tape->program;
    for (size_t i = 1; i < tape->tensors; i++) tape->needed[i] = program->tensors[i].trainable;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const int operands = snug_op_operands(op);
        bool needed = false;
        for (int k = 0; k < operands; k++)
            needed |= op->operands[k] && snug_op_reads(op, k) && tape->needed[op->operands[k]];
        for (int k = 0; k < operands; k++)
            if (op->operands[k] && !snug_op_reads(op, k)) tape->needed[op->operands[k]] |= needed;
    }
}

/* Only weights get updates, and only from the operands that hold weights. */
static void check_operands(struct snug_tape *tape, const struct snug_op *op) {
    const struct snug_op_info *info = snug_op_info(op->kind);
    const int operands = snug_op_operands(op);
    for (int k = 0; k < operands && tape->status == SNUG_OK; k++) {
        const int32_t x = op->operands[k];
        if (!snug_op_reads(op, k) || !snug_tape_needs(tape, x)) continue;
        const struct snug_tensor *tensor = &tape->program->tensors[x];
        const bool weight = info->operands[k].flags & SNUG_WEIGHT;
        if (tensor->trainable == weight) continue;
        tape->status =
            snug_fail(tape->program->ctx, SNUG_E_INTERNAL,
                      "%s reads %s as its %s, but %s: snug cannot compute its gradient", info->name, tensor->name,
                      info->operands[k].name, weight ? "it is not a weight" : "it is a trainable weight");
    }
}

static void differentiate(struct snug_tape *tape, size_t index) {
    const struct snug_op op = tape->program->ops[index];
    tape->of = op; /* a copy: emitting may reallocate the list */
    tape->index = index;
    /* After a loss over the step the head is differentiated with the rest: another micro-batch may be the current one.
     */
    const bool with_rest = op.phase == SNUG_PHASE_FORWARD || tape->program->loss_of_step;
    tape->phase = with_rest ? SNUG_PHASE_BACKWARD : SNUG_PHASE_HEAD;
    if (snug_op_is(&op, SNUG_OP_MODEL)) {
        check_operands(tape, &op);
        snug_op_info(op.kind)->differentiate(tape, &op);
    } else {
        tape->status =
            snug_fail(tape->program->ctx, SNUG_E_INTERNAL,
                      "%s cannot be differentiated: it is not an operation of a model", snug_op_name(op.kind));
    }
}

/* The gradient of a bias that an activation adds is computed by the linear before it. */
static void check_biases(struct snug_tape *tape) {
    for (size_t i = 1; i < tape->tensors && tape->status == SNUG_OK; i++)
        if (snug_tape_needs(tape, tape->bias[i]))
            tape->status =
                snug_fail(tape->program->ctx, SNUG_E_INTERNAL,
                          "%s is added to %s, which is not the output of a linear: snug cannot compute its gradient",
                          tape->program->tensors[tape->bias[i]].name, tape->program->tensors[i].name);
}

static snug_status walk(struct snug_tape *tape) {
    struct snug_program *program = tape->program;
    const size_t ops = program->op_count;
    find_needed(tape);
    if (!snug_tape_needs(tape, program->loss))
        return snug_fail(program->ctx, SNUG_E_USAGE, "nothing is trained: all parameters are frozen (--freeze)");
    for (size_t i = ops; i-- > 0 && tape->status == SNUG_OK;) differentiate(tape, i);
    check_biases(tape);
    return tape->status;
}

snug_status snug_stage_differentiate(struct snug_program *program) {
    /* Gradients are never differentiated, so the number of forward tensors is enough. */
    struct snug_tape tape = {.program = program, .tensors = program->tensor_count};
    snug_status status = snug_alloc(program->ctx, tape.tensors, sizeof *tape.gradient, (void **)&tape.gradient);
    if (status == SNUG_OK) status = snug_alloc(program->ctx, tape.tensors, sizeof *tape.bias, (void **)&tape.bias);
    if (status == SNUG_OK) status = snug_alloc(program->ctx, tape.tensors, sizeof *tape.needed, (void **)&tape.needed);
    if (status == SNUG_OK)
        status = snug_alloc(program->ctx, tape.tensors, sizeof *tape.touched, (void **)&tape.touched);
    if (status == SNUG_OK) status = walk(&tape);
    free(tape.gradient);
    free(tape.bias);
    free(tape.needed);
    free(tape.touched);
    return status;
}
