/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LoRA's second matmul adds to the output of its base: y = x w^T, then y += u b^T, which reads and writes y once more.
 * The base's matmul has enough work to hide that traffic, so it comes last and adds: y = u b^T, then y += x w^T. The
 * stage comes after differentiation, whose backward has the best order already: there the base's matmul is the last to
 * add to dx.
 */
#include "plan/stages.h"
#include "program/edits.h"

/* The matmul that adds to the output of the one at `base`, if nothing between them needs it; 0: there is none. */
static size_t find_addition(const struct snug_program *program, size_t base) {
    const struct snug_linear *to = &program->ops[base].linear;
    if (program->ops[base].kind != SNUG_OP_LINEAR || to->addend) return 0;
    for (size_t i = base + 1; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (!snug_op_uses(op, to->y)) continue;
        return op->kind == SNUG_OP_LINEAR && op->linear.addend == to->y ? i : 0;
    }
    return 0;
}

snug_status snug_stage_addends(struct snug_program *program) {
    struct snug_edits edits;
    snug_status status = snug_edits_open(program, &edits);
    for (size_t i = 0; i < program->op_count && status == SNUG_OK; i++) {
        const size_t at = find_addition(program, i);
        if (!at) continue;
        struct snug_op base = program->ops[i], addition = program->ops[at];
        base.linear.addend = base.linear.y;
        addition.linear.addend = 0;
        snug_edits_drop(&edits, i);
        status = snug_edits_replace(&edits, at, addition);
        if (status == SNUG_OK) status = snug_edits_insert(&edits, at + 1, base);
    }
    return snug_edits_close(&edits, status);
}
