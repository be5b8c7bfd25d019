/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates inside backward (Lv et al., arXiv:2306.09782): a gradient is used and its memory freed as soon as it is
 * complete, so that gradients never stand all at once.
 *
 * - Without clipping, the weight's update follows its gradient in BACKWARD, once nothing reads the old weight any more.
 * - With clipping, the update needs the norm of all gradients first. BACKWARD then takes the norms only, and backward
 *   runs a second time in UPDATE, with the updates: the same bits, for the price of one backward. What the second pass
 *   needs (activations, the gradient that comes out of the head) is not overwritten in the first. Gradients of the
 *   embeddings, which come last, and of the head, which stands before, are kept between the passes and not made twice.
 * - With accumulation gradients have to stand until the last micro-batch. Without clipping they are applied in its
 *   backward; with clipping after it, as in an ordinary program.
 */
#include <stdlib.h>

#include "plan/update.h"

struct passes {
    struct snug_program *program;
    const struct snug_updates *updates;
    struct snug_op *old; /* the operations before the stage, by phase */
    size_t old_count;
    size_t begin, end; /* of BACKWARD in old */
    bool two_passes;
    bool *before;             /* by tensor: written before BACKWARD */
    int32_t *renamed;         /* by tensor: its name in the pass at hand, or -1 */
    bool *left_out;           /* by operation: of the first pass only */
    size_t *ready, *complete; /* by update: the operation of BACKWARD that it may follow, that completes its gradient */
};

static bool persists(const struct passes *p, int32_t tensor) { return p->program->tensors[tensor].persistent; }

static bool writes(const struct snug_op *op, int32_t tensor) {
    for (int out = 0; out < SNUG_OP_OUTPUTS; out++)
        if (op->out[out] == tensor) return true;
    return false;
}

static bool reads(const struct snug_op *op, int32_t tensor) {
    for (int in = 0; in < SNUG_OP_INPUTS; in++)
        if (op->in[in] == tensor) return true;
    return false;
}

/* With two passes: gradients that are kept between them, and so not made again. */
static bool is_kept(const struct passes *p, const struct snug_weight_update *item) {
    return p->two_passes && item->update.layer < 0;
}

/* An update may follow the operation after which its gradient is complete and the weight's old value not needed any
   more: begin - 1 where that is so before BACKWARD. */
static void find_places(struct passes *p) {
    for (size_t k = 0; k < p->updates->count; k++) {
        const struct snug_weight_update *item = &p->updates->items[k];
        p->complete[k] = p->begin - 1;
        for (size_t i = p->begin; i < p->end; i++)
            if (writes(&p->old[i], item->norm.in[0])) {
                p->complete[k] = i;
                p->left_out[i] |= is_kept(p, item);
            }
    }
    for (size_t k = 0; k < p->updates->count; k++) {
        const struct snug_op *update = &p->updates->items[k].update;
        p->ready[k] = p->begin - 1;
        for (size_t i = p->begin; i < p->end; i++)
            if (!p->left_out[i] && (writes(&p->old[i], update->in[0]) || reads(&p->old[i], update->out[0])))
                p->ready[k] = i;
    }
}

/* ---- without clipping ----------------------------------------------------------------------------------------- */

static snug_status emit_ready(struct passes *p, size_t index, bool accumulates) {
    for (size_t k = 0; k < p->updates->count; k++) {
        struct snug_weight_update item = p->updates->items[k];
        if (p->ready[k] != index) continue;
        item.norm.phase = item.update.phase = SNUG_PHASE_BACKWARD;
        item.norm.last = item.update.last = accumulates;
        item.update.in[1] = -1;
        RETURN_IF_ERROR(snug_program_op(p->program, item.norm));
        RETURN_IF_ERROR(snug_program_op(p->program, item.update));
    }
    return SNUG_OK;
}

static snug_status run_once(struct passes *p, bool accumulates) {
    RETURN_IF_ERROR(emit_ready(p, p->begin - 1, accumulates));
    for (size_t i = p->begin; i < p->end; i++) {
        RETURN_IF_ERROR(snug_program_op(p->program, p->old[i]));
        RETURN_IF_ERROR(emit_ready(p, i, accumulates));
    }
    return SNUG_OK;
}

/* ---- with clipping -------------------------------------------------------------------------------------------- */

static void read_renamed(const struct passes *p, struct snug_op *op) {
    for (int in = 0; in < SNUG_OP_INPUTS; in++)
        if (op->in[in] >= 0 && p->renamed[op->in[in]] >= 0) op->in[in] = p->renamed[op->in[in]];
}

static snug_status rename_output(struct passes *p, const char *prefix, int32_t *out) {
    if (p->renamed[*out] < 0) {
        const struct snug_tensor like = p->program->tensors[*out];
        RETURN_IF_ERROR(snug_program_tensor(p->program, like, &p->renamed[*out], "%s.%s", prefix, like.name));
    }
    *out = p->renamed[*out];
    return SNUG_OK;
}

/* What stood before BACKWARD is left as it is for the second pass. */
static snug_status norm_pass(struct passes *p) {
    for (size_t i = p->begin; i < p->end; i++) {
        struct snug_op op = p->old[i];
        read_renamed(p, &op);
        for (int out = 0; out < SNUG_OP_OUTPUTS; out++)
            if (op.out[out] >= 0 && !persists(p, op.out[out]) && p->before[op.out[out]] &&
                p->program->tensors[op.out[out]].memory_class != SNUG_MEMORY_GRADIENTS)
                RETURN_IF_ERROR(rename_output(p, "first", &op.out[out]));
        RETURN_IF_ERROR(snug_program_op(p->program, op));
        for (size_t k = 0; k < p->updates->count; k++) {
            struct snug_op norm = p->updates->items[k].norm;
            if (is_kept(p, &p->updates->items[k]) || p->complete[k] != i) continue;
            norm.phase = SNUG_PHASE_BACKWARD;
            RETURN_IF_ERROR(snug_program_op(p->program, norm));
        }
    }
    return SNUG_OK;
}

static snug_status emit_updates(struct passes *p, size_t index) {
    for (size_t k = 0; k < p->updates->count; k++) {
        struct snug_op update = p->updates->items[k].update;
        if (p->ready[k] != index) continue;
        read_renamed(p, &update);
        RETURN_IF_ERROR(snug_program_op(p->program, update));
    }
    return SNUG_OK;
}

static snug_status update_pass(struct passes *p) {
    RETURN_IF_ERROR(emit_updates(p, p->begin - 1));
    for (size_t i = p->begin; i < p->end; i++) {
        struct snug_op op = p->old[i];
        if (p->left_out[i]) continue;
        op.phase = SNUG_PHASE_UPDATE;
        read_renamed(p, &op);
        for (int out = 0; out < SNUG_OP_OUTPUTS; out++)
            if (op.out[out] >= 0 && !persists(p, op.out[out]) && !p->before[op.out[out]])
                RETURN_IF_ERROR(rename_output(p, "second", &op.out[out]));
        RETURN_IF_ERROR(snug_program_op(p->program, op));
        RETURN_IF_ERROR(emit_updates(p, i));
    }
    return SNUG_OK;
}

/* Removes operations of the second pass that nothing reads: what only the kept gradients were made from. */
static snug_status drop_unread(struct passes *p, size_t first) {
    struct snug_program *program = p->program;
    bool *read;
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->tensor_count, sizeof *read, (void **)&read));
    size_t kept = program->op_count;
    for (size_t i = program->op_count; i-- > first;) {
        const struct snug_op op = program->ops[i];
        bool needed = snug_is_update(op.kind);
        for (int out = 0; out < SNUG_OP_OUTPUTS; out++) needed |= op.out[out] >= 0 && read[op.out[out]];
        if (!needed) continue;
        for (int in = 0; in < SNUG_OP_INPUTS; in++)
            if (op.in[in] >= 0) read[op.in[in]] = true;
        program->ops[--kept] = op;
    }
    const size_t left = program->op_count - kept;
    memmove(program->ops + first, program->ops + kept, left * sizeof *program->ops);
    program->op_count = first + left;
    free(read);
    return SNUG_OK;
}

static snug_status run_twice(struct passes *p, size_t tensors) {
    RETURN_IF_ERROR(norm_pass(p));
    for (size_t k = 0; k < p->updates->count; k++)
        if (is_kept(p, &p->updates->items[k])) RETURN_IF_ERROR(snug_program_op(p->program, p->updates->items[k].norm));
    for (size_t i = 0; i < tensors; i++) p->renamed[i] = -1;
    const size_t first = p->program->op_count;
    RETURN_IF_ERROR(update_pass(p));
    return drop_unread(p, first);
}

/* ---- the stage ------------------------------------------------------------------------------------------------ */

static snug_status place_updates(struct passes *p, const struct snug_methods *methods) {
    const size_t tensors = p->program->tensor_count;
    RETURN_IF_ERROR(snug_alloc(p->program->ctx, tensors, sizeof *p->before, (void **)&p->before));
    RETURN_IF_ERROR(snug_alloc(p->program->ctx, tensors, sizeof *p->renamed, (void **)&p->renamed));
    RETURN_IF_ERROR(snug_alloc(p->program->ctx, p->end, sizeof *p->left_out, (void **)&p->left_out));
    RETURN_IF_ERROR(snug_alloc(p->program->ctx, p->updates->count, sizeof *p->ready, (void **)&p->ready));
    RETURN_IF_ERROR(snug_alloc(p->program->ctx, p->updates->count, sizeof *p->complete, (void **)&p->complete));
    find_places(p);
    for (size_t i = 0; i < tensors; i++) p->renamed[i] = -1;
    for (size_t i = 0; i < p->begin; i++) {
        for (int out = 0; out < SNUG_OP_OUTPUTS; out++)
            if (p->old[i].out[out] >= 0) p->before[p->old[i].out[out]] = true;
        RETURN_IF_ERROR(snug_program_op(p->program, p->old[i]));
    }
    for (size_t k = 0; k < p->updates->count && !methods->accumulates; k++)
        p->program->tensors[p->updates->items[k].norm.in[0]].persistent = false;
    p->program->updates_in_backward = !methods->clips;
    return p->two_passes ? run_twice(p, tensors) : run_once(p, methods->accumulates);
}

snug_status snug_update_in_backward(struct snug_program *program, const struct snug_methods *methods,
                                    const struct snug_updates *updates) {
    RETURN_IF_ERROR(snug_stage_sort(program));
    struct passes p = {.program = program,
                       .updates = updates,
                       .old = program->ops,
                       .old_count = program->op_count,
                       .two_passes = methods->clips};
    while (p.begin < p.old_count && p.old[p.begin].phase < SNUG_PHASE_BACKWARD) p.begin++;
    p.end = p.old_count;
    program->ops = NULL;
    program->op_count = program->op_capacity = 0;
    snug_status status = place_updates(&p, methods);
    free(p.old);
    free(p.before);
    free(p.renamed);
    free(p.left_out);
    free(p.ready);
    free(p.complete);
    return status;
}
