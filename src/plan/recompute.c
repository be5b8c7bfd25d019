/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * Re-running instead of storing (Chen et al., arXiv:1604.06174). What a layer's level says is not stored is made again
 * right before its first use backward, by the same operations from what is stored, and so with the same bits:
 *
 *   NONE         everything that backward reads is stored
 *   ELEMENTWISE  outputs of norms and activations are made again: 10 h values a token stay in BERT, no product is run twice
 *   FFN          and the feed-forward network's pre-activation: 6 h stay, one product is run again
 *   ATTENTION    elementwise, and query, key, value and the attention's output: 6 h stay
 *   LAYER        everything but the layer's last pre-norm sum: h stay, all but the layer's last product are run again
 */
/* clang-format on */
#include <stdlib.h>

#include "plan/stages.h"

struct recompute {
    struct snug_program *program;
    const enum snug_recompute *levels;
    struct snug_op *old; /* the operations before the stage, forward ones first */
    size_t old_count, forward_count;
    int32_t *maker;      /* by tensor: the forward operation that writes it, or -1 */
    bool *dropped;       /* by tensor: not stored */
    int32_t *again;      /* by tensor: its second incarnation, or -1 */
    struct snug_op held; /* a product that waits for the activation it reads, see hold() */
    bool holds;
};

/* ---- what is not stored --------------------------------------------------------------------------------------- */

/* Embeddings go with the first layer. */
static enum snug_recompute level_of(const struct recompute *r, const struct snug_op *op) {
    return r->levels ? r->levels[op->layer < 0 ? 0 : op->layer] : SNUG_RECOMPUTE_ELEMENTWISE;
}

static bool feeds(const struct recompute *r, int32_t tensor, enum snug_op_kind kind) {
    for (size_t i = 0; i < r->forward_count; i++)
        if (r->old[i].kind == kind && r->old[i].in[0] == tensor) return true;
    return false;
}

static bool is_last_of_layer(const struct recompute *r, size_t op) {
    return op + 1 == r->forward_count || r->old[op + 1].layer != r->old[op].layer;
}

static bool drops(const struct recompute *r, size_t index, int out) {
    const struct snug_op *op = &r->old[index];
    const enum snug_recompute level = level_of(r, op);
    const bool norm = op->kind == SNUG_OP_EMBED || op->kind == SNUG_OP_RESIDUAL_NORM;
    if (level == SNUG_RECOMPUTE_NONE) return false;
    if (op->kind == SNUG_OP_ACTIVATION || (norm && out == 1)) return true;
    switch (level) {
    case SNUG_RECOMPUTE_FFN: return feeds(r, op->out[out], SNUG_OP_ACTIVATION);
    case SNUG_RECOMPUTE_ATTENTION: return op->kind == SNUG_OP_ATTENTION || feeds(r, op->out[out], SNUG_OP_ATTENTION);
    case SNUG_RECOMPUTE_LAYER: return !is_last_of_layer(r, index);
    default: return false;
    }
}

static void find_dropped(struct recompute *r, size_t tensors) {
    for (size_t i = 0; i < tensors; i++) r->maker[i] = r->again[i] = -1;
    for (size_t i = 0; i < r->forward_count; i++)
        for (int out = 0; out < SNUG_OP_OUTPUTS; out++) {
            const int32_t tensor = r->old[i].out[out];
            if (tensor < 0 || r->old[i].kind == SNUG_OP_FILL) continue;
            r->maker[tensor] = (int32_t)i;
            r->dropped[tensor] = drops(r, i, out);
        }
}

/* ---- making again --------------------------------------------------------------------------------------------- */

static snug_status new_tensor(struct recompute *r, int32_t tensor) {
    const struct snug_tensor like = r->program->tensors[tensor];
    return snug_program_tensor(r->program, like, &r->again[tensor], "again.%s", like.name);
}

/* The norm behind a stored sum; its dropout, if it is the embeddings', stands behind the norm, RESIDUAL_NORM's before
   the sum. */
static struct snug_op norm_of(const struct snug_op *op) {
    const bool embed = op->kind == SNUG_OP_EMBED;
    return (struct snug_op){.kind = SNUG_OP_NORM,
                            .layer = op->layer,
                            .in = SNUG_INPUTS(op->out[0], op->in[embed ? 3 : 2], op->in[embed ? 4 : 3]),
                            .out = SNUG_OUTPUTS(op->out[1]),
                            .eps = op->eps,
                            .p = embed ? op->p : 0,
                            .site = embed ? op->site : 0};
}

/* Sets *tensor to where its values stand backward, after the operations that put them there. */
static snug_status require(struct recompute *r, int32_t *tensor) {
    if (!r->dropped[*tensor]) return SNUG_OK;
    if (r->again[*tensor] >= 0) {
        *tensor = r->again[*tensor];
        return SNUG_OK;
    }
    struct snug_op op = r->old[r->maker[*tensor]];
    const bool norm = op.kind == SNUG_OP_EMBED || op.kind == SNUG_OP_RESIDUAL_NORM;
    if (norm && op.out[1] == *tensor && (!r->dropped[op.out[0]] || r->again[op.out[0]] >= 0)) op = norm_of(&op);
    op.phase = SNUG_PHASE_BACKWARD;
    for (int in = 0; in < SNUG_OP_INPUTS; in++)
        if (op.in[in] >= 0 && !r->program->tensors[op.in[in]].persistent) RETURN_IF_ERROR(require(r, &op.in[in]));
    for (int out = 0; out < SNUG_OP_OUTPUTS; out++) {
        if (op.out[out] < 0) continue;
        RETURN_IF_ERROR(new_tensor(r, op.out[out]));
        op.out[out] = r->again[op.out[out]];
    }
    *tensor = r->again[*tensor];
    return snug_program_op(r->program, op);
}

/*
 * An activation's output is read backward by one product only, the gradient of the weights behind it.
 * ACTIVATION_BACKWARD makes it in passing, in the place of the pre-activation, which nothing needs any more: so the
 * product waits for it.
 */
static bool hold(struct recompute *r, struct snug_op *op) {
    if (op->kind != SNUG_OP_LINEAR_DW || r->holds) return false;
    const int32_t x = op->in[1];
    if (!r->dropped[x] || r->old[r->maker[x]].kind != SNUG_OP_ACTIVATION) return false;
    r->held = *op;
    r->held.in[1] = r->old[r->maker[x]].in[0];
    return r->holds = true;
}

static snug_status backward(struct recompute *r, struct snug_op op) {
    const bool releases = r->holds && op.kind == SNUG_OP_ACTIVATION_BACKWARD && op.in[1] == r->held.in[1];
    if (hold(r, &op)) return SNUG_OK;
    for (int in = 0; in < SNUG_OP_INPUTS; in++)
        if (op.in[in] >= 0 && r->maker[op.in[in]] >= 0) RETURN_IF_ERROR(require(r, &op.in[in]));
    if (releases) op.out[1] = r->held.in[1] = op.in[1];
    RETURN_IF_ERROR(snug_program_op(r->program, op));
    if (!releases) return SNUG_OK;
    r->holds = false;
    return snug_program_op(r->program, r->held);
}

static snug_status recompute(struct recompute *r, size_t tensors) {
    find_dropped(r, tensors);
    for (size_t i = 0; i < r->old_count; i++) {
        if (r->old[i].phase == SNUG_PHASE_BACKWARD)
            RETURN_IF_ERROR(backward(r, r->old[i]));
        else
            RETURN_IF_ERROR(snug_program_op(r->program, r->old[i]));
    }
    return r->holds ? snug_fail(r->program->ctx, SNUG_E_INTERNAL, "an activation has no backward to be re-run in")
                    : SNUG_OK;
}

snug_status snug_stage_recompute(struct snug_program *program, const enum snug_recompute levels[]) {
    RETURN_IF_ERROR(snug_stage_sort(program)); /* forward operations first */
    struct recompute r = {.program = program, .levels = levels, .old = program->ops, .old_count = program->op_count};
    while (r.forward_count < r.old_count && r.old[r.forward_count].phase == SNUG_PHASE_FORWARD) r.forward_count++;
    const size_t tensors = program->tensor_count;
    snug_status status = snug_alloc(program->ctx, tensors, sizeof *r.again, (void **)&r.again);
    if (status == SNUG_OK) status = snug_alloc(program->ctx, tensors, sizeof *r.maker, (void **)&r.maker);
    if (status == SNUG_OK) status = snug_alloc(program->ctx, tensors, sizeof *r.dropped, (void **)&r.dropped);
    if (status == SNUG_OK) {
        program->ops = NULL;
        program->op_count = program->op_capacity = 0;
        status = recompute(&r, tensors);
        free(r.old);
    }
    free(r.again);
    free(r.maker);
    free(r.dropped);
    return status;
}
