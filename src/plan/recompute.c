/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Re-running instead of storing. A layer then keeps its pre-norm sums, qkv, the attention's output and the FFN's
 * pre-activation (10 h values a token); the outputs of norms and activations, half of what would be stored, are made
 * again from those right before their first use backward, with the same operations and so the same bits.
 */
#include <stdlib.h>

#include "plan/stages.h"

/* The operation that makes output out of op again from tensors that are stored; false if there is none. */
static bool rerun_of(const struct snug_op *op, int out, struct snug_op *rerun) {
    *rerun = *op;
    rerun->phase = SNUG_PHASE_BACKWARD;
    switch (op->kind) {
    case SNUG_OP_ACTIVATION: return true;
    case SNUG_OP_RESIDUAL_NORM:
        *rerun = (struct snug_op){.kind = SNUG_OP_NORM,
                                  .phase = SNUG_PHASE_BACKWARD,
                                  .layer = op->layer,
                                  .in = SNUG_INPUTS(op->out[0], op->in[2], op->in[3]),
                                  .out = SNUG_OUTPUTS(op->out[1]),
                                  .eps = op->eps}; /* its dropout stands before the sum */
        return out == 1;
    case SNUG_OP_EMBED:
        *rerun = (struct snug_op){.kind = SNUG_OP_NORM,
                                  .phase = SNUG_PHASE_BACKWARD,
                                  .layer = op->layer,
                                  .in = SNUG_INPUTS(op->out[0], op->in[3], op->in[4]),
                                  .out = SNUG_OUTPUTS(op->out[1]),
                                  .eps = op->eps,
                                  .p = op->p,
                                  .site = op->site};
        return out == 1;
    default: return false;
    }
}

struct recompute {
    struct snug_program *program;
    struct snug_op *old; /* the operations before the stage */
    size_t old_count;
    int32_t *again; /* by tensor: its second incarnation, 0 if none yet */
};

/* Emits the re-run of tensor where it can be had, and remembers the new tensor. */
static snug_status make_again(struct recompute *r, int32_t tensor) {
    for (size_t i = 0; i < r->old_count && r->old[i].phase == SNUG_PHASE_FORWARD; i++)
        for (int out = 0; out < SNUG_OP_OUTPUTS; out++) {
            struct snug_op rerun;
            if (r->old[i].out[out] != tensor || !rerun_of(&r->old[i], out, &rerun)) continue;
            const struct snug_tensor like = r->program->tensors[tensor];
            RETURN_IF_ERROR(snug_program_tensor(r->program, like, &r->again[tensor], "again.%.80s", like.name));
            rerun.out[0] = r->again[tensor];
            return snug_program_op(r->program, rerun);
        }
    return SNUG_OK;
}

static snug_status recompute(struct recompute *r, size_t tensors) {
    for (size_t i = 0; i < r->old_count; i++) {
        struct snug_op op = r->old[i];
        for (int in = 0; op.phase == SNUG_PHASE_BACKWARD && in < SNUG_OP_INPUTS; in++) {
            const int32_t tensor = op.in[in];
            if (tensor < 0 || (size_t)tensor >= tensors || r->program->tensors[tensor].persistent) continue;
            if (!r->again[tensor]) RETURN_IF_ERROR(make_again(r, tensor));
            if (r->again[tensor]) op.in[in] = r->again[tensor];
        }
        RETURN_IF_ERROR(snug_program_op(r->program, op));
    }
    return SNUG_OK;
}

snug_status snug_stage_recompute(struct snug_program *program) {
    RETURN_IF_ERROR(snug_stage_sort(program)); /* forward operations first */
    struct recompute r = {program, program->ops, program->op_count, NULL};
    const size_t tensors = program->tensor_count;
    RETURN_IF_ERROR(snug_alloc(program->ctx, tensors, sizeof *r.again, (void **)&r.again));
    program->ops = NULL;
    program->op_count = program->op_capacity = 0;
    snug_status status = recompute(&r, tensors);
    free(r.again);
    free(r.old);
    return status;
}
