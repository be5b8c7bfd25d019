/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Re-running instead of storing. A layer then keeps its pre-norm sums, qkv, the attention's output and the FFN's
 * pre-activation (10 h values a token); the outputs of norms and activations, half of what would be stored, are made
 * again from those right before their first use backward, with the same operations and so the same bits.
 */
#include <stdlib.h>

#include "plan/stages.h"

/* The norm that makes output out of op again from the sum that is stored; false if op is not such an operation. */
static bool rerun_of(const struct snug_op *op, int out, struct snug_op *rerun) {
    const bool embed = op->kind == SNUG_OP_EMBED;
    if (out != 1 || (!embed && op->kind != SNUG_OP_RESIDUAL_NORM)) return false;
    *rerun = (struct snug_op){.kind = SNUG_OP_NORM,
                              .phase = SNUG_PHASE_BACKWARD,
                              .layer = op->layer,
                              .in = SNUG_INPUTS(op->out[0], op->in[embed ? 3 : 2], op->in[embed ? 4 : 3]),
                              .out = SNUG_OUTPUTS(op->out[1]),
                              .eps = op->eps};
    if (embed) { /* its dropout stands behind the norm; RESIDUAL_NORM's before the sum */
        rerun->p = op->p;
        rerun->site = op->site;
    }
    return true;
}

struct recompute {
    struct snug_program *program;
    struct snug_op *old; /* the operations before the stage */
    size_t old_count;
    int32_t *again;      /* by tensor: its second incarnation, 0 if none yet */
    struct snug_op held; /* a product that waits for the activation it reads, see hold() */
    bool holds;
};

/* Emits the re-run of tensor where it can be had, and remembers the new tensor. */
static snug_status make_again(struct recompute *r, int32_t tensor) {
    for (size_t i = 0; i < r->old_count && r->old[i].phase == SNUG_PHASE_FORWARD; i++)
        for (int out = 0; out < SNUG_OP_OUTPUTS; out++) {
            struct snug_op rerun;
            if (r->old[i].out[out] != tensor || !rerun_of(&r->old[i], out, &rerun)) continue;
            const struct snug_tensor like = r->program->tensors[tensor];
            RETURN_IF_ERROR(snug_program_tensor(r->program, like, &r->again[tensor], "again.%s", like.name));
            rerun.out[0] = r->again[tensor];
            return snug_program_op(r->program, rerun);
        }
    return SNUG_OK;
}

/*
 * An activation's output is read backward by one product only, the gradient of the weights behind it.
 * ACTIVATION_BACKWARD makes it in passing, in the place of the pre-activation, which nothing needs any more: so the
 * product waits for it.
 */
static bool hold(struct recompute *r, struct snug_op op) {
    if (op.kind != SNUG_OP_LINEAR_DW || r->holds) return false;
    for (size_t i = 0; i < r->old_count && r->old[i].phase == SNUG_PHASE_FORWARD; i++) {
        if (r->old[i].kind != SNUG_OP_ACTIVATION || r->old[i].out[0] != op.in[1]) continue;
        op.in[1] = r->old[i].in[0];
        r->held = op;
        r->holds = true;
        return true;
    }
    return false;
}

static snug_status release(struct recompute *r, const struct snug_op *after) {
    if (!r->holds || after->kind != SNUG_OP_ACTIVATION_BACKWARD || after->in[1] != r->held.in[1]) return SNUG_OK;
    r->holds = false;
    return snug_program_op(r->program, r->held);
}

static snug_status recompute(struct recompute *r, size_t tensors) {
    for (size_t i = 0; i < r->old_count; i++) {
        struct snug_op op = r->old[i];
        const bool backward = op.phase == SNUG_PHASE_BACKWARD;
        if (backward && hold(r, op)) continue;
        if (r->holds && op.kind == SNUG_OP_ACTIVATION_BACKWARD) op.out[1] = op.in[1];
        for (int in = 0; backward && in < SNUG_OP_INPUTS; in++) {
            const int32_t tensor = op.in[in];
            if (tensor < 0 || (size_t)tensor >= tensors || r->program->tensors[tensor].persistent) continue;
            if (!r->again[tensor]) RETURN_IF_ERROR(make_again(r, tensor));
            if (r->again[tensor]) op.in[in] = r->again[tensor];
        }
        RETURN_IF_ERROR(snug_program_op(r->program, op));
        RETURN_IF_ERROR(release(r, &op));
    }
    return r->holds ? snug_fail(r->program->ctx, SNUG_E_INTERNAL, "an activation has no backward to be re-run in")
                    : SNUG_OK;
}

snug_status snug_stage_recompute(struct snug_program *program) {
    RETURN_IF_ERROR(snug_stage_sort(program)); /* forward operations first */
    struct recompute r = {.program = program, .old = program->ops, .old_count = program->op_count};
    const size_t tensors = program->tensor_count;
    RETURN_IF_ERROR(snug_alloc(program->ctx, tensors, sizeof *r.again, (void **)&r.again));
    program->ops = NULL;
    program->op_count = program->op_capacity = 0;
    snug_status status = recompute(&r, tensors);
    free(r.again);
    free(r.old);
    return status;
}
