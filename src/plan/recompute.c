/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * Activation recomputation (gradient checkpointing; Chen et al., arXiv:1604.06174). Tensors that a layer's level does not
 * store are recomputed right before their first use in backward, by the same operations from the stored tensors, so they
 * have the same bits:
 *
 *   NONE         everything that backward reads is stored
 *   ELEMENTWISE  outputs of norms and activations are recomputed: 10 h values per token are stored in BERT, no matmul runs twice
 *   FFN          and the feed-forward network's pre-activation: 6 h are stored, one matmul is recomputed
 *   ATTENTION    elementwise, and query, key, value and the attention's output: 6 h are stored
 *   LAYER        everything but the layer's last pre-norm sum: h are stored, all matmuls but the layer's last are recomputed
 */
/* clang-format on */
#include "plan/stages.h"
#include "program/edits.h"

struct recompute {
    struct snug_program *program;
    struct snug_edits edits;
    const enum snug_recompute *levels;
    struct snug_op *old; /* the operations before the stage, forward ones first */
    size_t old_count, forward_count;
    size_t at;           /* the operation of backward that is rewritten */
    int32_t *maker;      /* by tensor: the forward operation that writes it last, or -1 */
    int32_t *before;     /* by forward operation that works in place: the one that wrote its operand before */
    bool *dropped;       /* by tensor: not stored */
    int32_t *again;      /* by tensor: the tensor with its recomputed values, or none */
    struct snug_op held; /* a weight gradient that is deferred until the output it reads is recomputed, see hold() */
    int32_t held_place;  /* the tensor with that output: the operand that it may overwrite */
    int32_t held_output;
    bool holds;
    int layers;
};

/* ---- what is not stored --------------------------------------------------------------------------------------- */

/* Embeddings use the level of the first layer, operations after the layers that of the last. */
static enum snug_recompute level_of(const struct recompute *r, const struct snug_op *op) {
    if (!r->levels) return SNUG_RECOMPUTE_ELEMENTWISE;
    return r->levels[op->part == SNUG_PART_LAYER ? op->layer : op->part == SNUG_PART_EMBEDDINGS ? 0 : r->layers - 1];
}

static bool is_stored(const struct snug_op *op) {
    const int operands = snug_op_operands(op);
    for (int k = 0; k < operands; k++)
        if (op->operands[k] && !snug_op_reads(op, k) && !(snug_op_info(op->kind)->operands[k].flags & SNUG_CHEAP))
            return true;
    return false;
}

/* Whether op is the last operation of its layer that has an output to store. */
static bool is_last_of_layer(const struct recompute *r, size_t op) {
    for (size_t i = op + 1; i < r->forward_count; i++) {
        if (r->old[i].part != r->old[op].part || r->old[i].layer != r->old[op].layer) return true;
        if (is_stored(&r->old[i])) return false;
    }
    return true;
}

static bool drops(const struct recompute *r, size_t index, int k) {
    const struct snug_op *op = &r->old[index];
    const enum snug_recompute level = level_of(r, op);
    if (level == SNUG_RECOMPUTE_NONE) return false;
    if (snug_op_info(op->kind)->operands[k].flags & SNUG_CHEAP) return true;
    switch (level) {
    case SNUG_RECOMPUTE_FFN: return op->block == SNUG_IN_FFN;
    case SNUG_RECOMPUTE_ATTENTION: return op->block == SNUG_IN_ATTENTION;
    case SNUG_RECOMPUTE_LAYER: return !is_last_of_layer(r, index);
    default: return false;
    }
}

static void find_dropped(struct recompute *r, size_t tensors) {
    for (size_t i = 0; i < tensors; i++) r->maker[i] = -1;
    for (size_t i = 0; i < r->forward_count; i++) {
        const struct snug_op *op = &r->old[i];
        const int operands = snug_op_is(op, SNUG_OP_CLEARS) ? 0 : snug_op_operands(op);
        for (int k = 0; k < operands; k++) {
            const int32_t tensor = op->operands[k];
            if (!tensor || snug_op_reads(op, k)) continue;
            const bool in_place = snug_op_uses(op, tensor); /* it is dropped only if what it overwrites is */
            r->before[i] = r->maker[tensor];
            r->maker[tensor] = (int32_t)i;
            r->dropped[tensor] = drops(r, i, k) && (!in_place || r->dropped[tensor]);
        }
    }
}

/* ---- recomputing ------------------------------------------------------------------------------------------------- */

static snug_status new_tensor(struct recompute *r, int32_t tensor) {
    const struct snug_tensor like = r->program->tensors[tensor];
    return snug_program_tensor(r->program, like, &r->again[tensor], "again.%s", like.name);
}

/* What recomputes the outputs of forward operation `index`: itself, or, if only a norm's output is missing, that norm
   alone. */
static struct snug_op maker_of(const struct recompute *r, int32_t index) {
    const struct snug_op *op = &r->old[index];
    if (!snug_op_is(op, SNUG_OP_NORM_OF_SUM)) return *op;
    const struct snug_op norm = snug_op_info(op->kind)->norm_of(op);
    return norm.norm.s && !r->dropped[norm.norm.s] ? norm : *op;
}

static snug_status require(struct recompute *r, int32_t *tensor);

/* Emits forward operation `index` again, after those that recompute what it reads. */
static snug_status emit_again(struct recompute *r, int32_t index) {
    const struct snug_op maker = maker_of(r, index);
    struct snug_op op = maker;
    const int operands = snug_op_operands(&op);
    op.phase = SNUG_PHASE_BACKWARD;
    for (int k = 0; k < operands; k++) {
        if (!op.operands[k] || !snug_op_reads(&op, k) || r->program->tensors[op.operands[k]].persistent) continue;
        if (!snug_op_writes(&maker, op.operands[k])) {
            RETURN_IF_ERROR(require(r, &op.operands[k]));
        } else { /* in place */
            RETURN_IF_ERROR(emit_again(r, r->before[index]));
            op.operands[k] = r->again[op.operands[k]];
        }
    }
    for (int k = 0; k < operands; k++) {
        if (!op.operands[k] || snug_op_reads(&op, k)) continue;
        if (!snug_op_uses(&maker, op.operands[k])) RETURN_IF_ERROR(new_tensor(r, op.operands[k]));
        op.operands[k] = r->again[op.operands[k]];
    }
    return snug_edits_insert(&r->edits, r->at, op);
}

/* Sets *tensor to the tensor with its values in backward, after emitting the operations that recompute them. */
static snug_status require(struct recompute *r, int32_t *tensor) {
    if (!r->dropped[*tensor]) return SNUG_OK;
    if (!r->again[*tensor]) RETURN_IF_ERROR(emit_again(r, r->maker[*tensor]));
    *tensor = r->again[*tensor];
    return SNUG_OK;
}

/* The operand with this flag, or none. */
static int32_t *marked(struct snug_op *op, unsigned flag) {
    const int k = snug_op_operand(op, flag);
    return k < 0 ? NULL : &op->operands[k];
}

/*
 * Only one matmul of backward reads an activation's output: the gradient of the next weights. ACTIVATION_BACKWARD
 * recomputes this output at no extra cost and overwrites the pre-activation with it, which is not needed any more. So
 * the matmul is deferred until then.
 */
static bool is_recomputed_for_free(struct recompute *r, int32_t place) {
    int readers = 0;
    bool given = false;
    for (size_t i = 0; i < r->old_count; i++) {
        if (!snug_op_uses(&r->old[i], place)) continue;
        readers += i < r->forward_count;
        given |= r->old[i].phase == SNUG_PHASE_BACKWARD && marked(&r->old[i], SNUG_REMADE);
    }
    return readers == 1 && given;
}

/* Whether an operation writes an operand of op, which is deferred, before one that reads place. */
static bool is_overwritten(const struct recompute *r, const struct snug_op *op, int32_t place) {
    for (size_t i = r->at + 1; i < r->old_count && !snug_op_uses(&r->old[i], place); i++)
        for (int k = snug_op_operands(op); k-- > 0;)
            if (snug_op_reads(op, k) && snug_op_writes(&r->old[i], op->operands[k])) return true;
    return false;
}

static bool hold(struct recompute *r, const struct snug_op *op) {
    if (r->holds || !snug_op_is(op, SNUG_OP_WEIGHT_GRADIENT)) return false;
    const int operands = snug_op_operands(op);
    for (int k = 0; k < operands; k++) {
        const int32_t x = op->operands[k];
        if (!x || !snug_op_reads(op, k) || r->maker[x] < 0 || !r->dropped[x]) continue;
        const int32_t *place = marked(&r->old[r->maker[x]], SNUG_REMADE);
        if (!place || !is_recomputed_for_free(r, *place) || is_overwritten(r, op, *place)) continue;
        r->held = *op;
        r->held_place = *place;
        r->held_output = x;
        return r->holds = true;
    }
    return false;
}

/* Whether op recomputes the output that the deferred matmul needs; *output is then the operand with it. */
static bool releases(const struct recompute *r, struct snug_op *op, int32_t **output) {
    if (!r->holds || !snug_op_uses(op, r->held_place)) return false;
    *output = marked(op, SNUG_REMADE);
    return *output != NULL;
}

static snug_status backward(struct recompute *r, struct snug_op op) {
    int32_t *output = NULL, place = r->held_place;
    const bool released = releases(r, &op, &output);
    if (hold(r, &op)) return SNUG_OK;
    const int operands = snug_op_operands(&op);
    for (int k = 0; k < operands; k++) {
        const int32_t before = op.operands[k];
        if (!before || !snug_op_reads(&op, k) || r->maker[before] < 0) continue;
        RETURN_IF_ERROR(require(r, &op.operands[k]));
        if (before == r->held_place) place = op.operands[k];
    }
    if (released) *output = place;
    RETURN_IF_ERROR(snug_edits_insert(&r->edits, r->at, op));
    if (!released) return SNUG_OK;
    r->holds = false;
    for (int k = 0; k < snug_op_operands(&r->held); k++)
        if (r->held.operands[k] == r->held_output) r->held.operands[k] = place;
    return snug_edits_insert(&r->edits, r->at, r->held);
}

static snug_status recompute(struct recompute *r) {
    const size_t tensors = r->program->tensor_count;
    RETURN_IF_ERROR(snug_edits_alloc(&r->edits, tensors, sizeof *r->again, (void **)&r->again));
    RETURN_IF_ERROR(snug_edits_alloc(&r->edits, tensors, sizeof *r->maker, (void **)&r->maker));
    RETURN_IF_ERROR(snug_edits_alloc(&r->edits, tensors, sizeof *r->dropped, (void **)&r->dropped));
    RETURN_IF_ERROR(snug_edits_alloc(&r->edits, r->old_count, sizeof *r->before, (void **)&r->before));
    find_dropped(r, tensors);
    for (r->at = 0; r->at < r->old_count; r->at++) {
        if (r->old[r->at].phase != SNUG_PHASE_BACKWARD) continue;
        snug_edits_drop(&r->edits, r->at);
        RETURN_IF_ERROR(backward(r, r->old[r->at]));
    }
    return r->holds ? snug_fail(r->program->ctx, SNUG_E_INTERNAL,
                                "no backward operation recomputes an activation that is not stored")
                    : SNUG_OK;
}

snug_status snug_stage_recompute(struct snug_program *program, const enum snug_recompute levels[]) {
    RETURN_IF_ERROR(snug_program_sort(program)); /* forward operations first */
    struct recompute r = {.program = program, .levels = levels, .old = program->ops, .old_count = program->op_count};
    while (r.forward_count < r.old_count && r.old[r.forward_count].phase == SNUG_PHASE_FORWARD) {
        if (r.old[r.forward_count].layer >= r.layers) r.layers = r.old[r.forward_count].layer + 1;
        r.forward_count++;
    }
    snug_status status = snug_edits_open(program, &r.edits);
    if (status == SNUG_OK) status = recompute(&r);
    return snug_edits_close(&r.edits, status);
}
