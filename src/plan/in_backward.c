/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates inside backward (Lv et al., arXiv:2306.09782): a gradient is used and its memory freed as soon as it is
 * complete, so that all gradients are never in memory at the same time.
 *
 * - Without clipping, the weight's update follows its gradient in BACKWARD, once nothing reads the old weight any more.
 * - With clipping, the update needs the norm of all gradients first. BACKWARD then computes the norms only, and
 * backward runs a second time in UPDATE, with the updates: the same bits, at the cost of a second backward. The first
 * pass does not overwrite inputs of the second (activations, the gradient that the head returns). Gradients of the
 * embeddings, which come last, and of the head, which come first, are kept between the passes and not computed twice,
 * unless their operation computes something else as well: a table of biases that all layers' attention reads, the last
 * norm of a pre-norm model.
 * - With accumulation gradients live until the last micro-batch. Without clipping they are applied in its backward;
 * with clipping after it, as in an ordinary program.
 */
#include "plan/update.h"
#include "program/edits.h"

struct passes {
    struct snug_program *program;
    struct snug_edits edits;
    const struct snug_updates *updates;
    const struct snug_op *old; /* the operations before the stage, by phase */
    size_t begin, end;         /* range of BACKWARD in old, which it ends */
    bool two_passes;
    bool *before;     /* by tensor: written before BACKWARD */
    int32_t *renamed; /* by tensor: the one that replaces it in the current pass, or none */
    bool *left_out;   /* by operation: of the first pass only */
    bool *kept;       /* by update: its gradient is kept between the passes, so it is not recomputed */
    size_t *ready,
        *complete; /* by update: the operation of BACKWARD that it may follow, which completes its gradient */
};

static bool persists(const struct passes *p, int32_t tensor) { return p->program->tensors[tensor].persistent; }

static bool is_output(const struct snug_op *op, int k) { return op->operands[k] && !snug_op_reads(op, k); }

/* Whether op computes more than gradients of weights. */
static bool gives_values(const struct passes *p, const struct snug_op *op) {
    const int operands = snug_op_operands(op);
    for (int k = 0; k < operands; k++)
        if (is_output(op, k) && p->program->tensors[op->operands[k]].memory_class != SNUG_MEMORY_GRADIENTS) return true;
    return false;
}

/* With two passes: gradients outside the layers, except those computed together with values that the second pass
   needs. */
static bool is_kept(const struct passes *p, const struct snug_weight_update *item) {
    if (!p->two_passes || item->update.part == SNUG_PART_LAYER) return false;
    for (size_t i = p->begin; i < p->end; i++)
        if (snug_op_writes(&p->old[i], item->norm.squared_norm.g) && gives_values(p, &p->old[i])) return false;
    return true;
}

/* The operation that an update may follow: after it the gradient is complete and the weight's old value is no longer
   read. begin - 1 if that is the case before BACKWARD. */
static void find_places(struct passes *p) {
    for (size_t k = 0; k < p->updates->count; k++) {
        const struct snug_weight_update *item = &p->updates->items[k];
        p->complete[k] = p->begin - 1;
        p->kept[k] = is_kept(p, item);
        for (size_t i = p->begin; i < p->end; i++)
            if (snug_op_writes(&p->old[i], item->norm.squared_norm.g)) {
                p->complete[k] = i;
                p->left_out[i] |= p->kept[k];
            }
    }
    for (size_t k = 0; k < p->updates->count; k++) {
        const struct snug_update *update = &p->updates->items[k].update.update;
        p->ready[k] = p->begin - 1;
        for (size_t i = p->begin; i < p->end; i++)
            if (!p->left_out[i] && (snug_op_writes(&p->old[i], update->g) || snug_op_uses(&p->old[i], update->weight)))
                p->ready[k] = i;
    }
}

/* ---- without clipping ----------------------------------------------------------------------------------------- */

static snug_status run_once(struct passes *p, bool accumulates) {
    for (size_t k = 0; k < p->updates->count; k++) {
        struct snug_weight_update item = p->updates->items[k];
        item.norm.phase = item.update.phase = SNUG_PHASE_BACKWARD;
        item.norm.last = item.update.last = accumulates;
        item.norm.alone = item.update.alone = true;
        item.update.update.clip = 0;
        RETURN_IF_ERROR(snug_edits_insert(&p->edits, p->ready[k] + 1, item.norm));
        RETURN_IF_ERROR(snug_edits_insert(&p->edits, p->ready[k] + 1, item.update));
    }
    return SNUG_OK;
}

/* ---- with clipping -------------------------------------------------------------------------------------------- */

static void read_renamed(const struct passes *p, struct snug_op *op) {
    const int operands = snug_op_operands(op);
    for (int k = 0; k < operands; k++)
        if (snug_op_reads(op, k) && p->renamed[op->operands[k]]) op->operands[k] = p->renamed[op->operands[k]];
}

static snug_status rename_output(struct passes *p, const char *prefix, int32_t *out) {
    if (!p->renamed[*out]) {
        const struct snug_tensor like = p->program->tensors[*out];
        RETURN_IF_ERROR(snug_program_tensor(p->program, like, &p->renamed[*out], "%s.%s", prefix, like.name));
    }
    *out = p->renamed[*out];
    return SNUG_OK;
}

/* Replaces output k of op, operation i of the first pass, by another tensor, which begins as a copy if op adds to it.
 */
static snug_status spare_output(struct passes *p, size_t i, struct snug_op *op, int k) {
    const enum snug_access access = snug_op_info(op->kind)->operands[k].access;
    const int32_t before = op->operands[k];
    const bool adds = access == SNUG_MODIFY || (access == SNUG_GRADIENT && op->accumulate);
    const bool copied = adds && !p->renamed[before];
    RETURN_IF_ERROR(rename_output(p, "first", &op->operands[k]));
    if (!copied) return SNUG_OK;
    struct snug_op copy = {.kind = SNUG_OP_FILL, .phase = op->phase, .part = op->part, .layer = op->layer};
    copy.fill.x = op->operands[k];
    RETURN_IF_ERROR(snug_edits_insert(&p->edits, i, copy));
    copy.kind = SNUG_OP_ADD;
    copy.add = (struct snug_add){.x = before, .y = op->operands[k]};
    return snug_edits_insert(&p->edits, i, copy);
}

/* Values written before BACKWARD are not changed: the second pass needs them. */
static snug_status norm_pass(struct passes *p) {
    for (size_t i = p->begin; i < p->end; i++) {
        struct snug_op op = p->old[i];
        read_renamed(p, &op);
        for (int k = 0; k < snug_op_operands(&op); k++)
            if (is_output(&op, k) && !persists(p, op.operands[k]) && p->before[op.operands[k]] &&
                p->program->tensors[op.operands[k]].memory_class != SNUG_MEMORY_GRADIENTS)
                RETURN_IF_ERROR(spare_output(p, i, &op, k));
        RETURN_IF_ERROR(snug_edits_replace(&p->edits, i, op));
        for (size_t k = 0; k < p->updates->count; k++) {
            struct snug_op norm = p->updates->items[k].norm;
            if (p->kept[k] || p->complete[k] != i) continue;
            norm.phase = SNUG_PHASE_BACKWARD;
            norm.alone = true;
            RETURN_IF_ERROR(snug_edits_insert(&p->edits, i + 1, norm));
        }
    }
    return SNUG_OK;
}

static snug_status emit_updates(struct passes *p, size_t index) {
    for (size_t k = 0; k < p->updates->count; k++) {
        struct snug_op update = p->updates->items[k].update;
        if (p->ready[k] != index) continue;
        update.alone = true;
        read_renamed(p, &update);
        RETURN_IF_ERROR(snug_edits_insert(&p->edits, p->end, update));
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
        for (int k = 0; k < snug_op_operands(&op); k++)
            if (is_output(&op, k) && !persists(p, op.operands[k]) && !p->before[op.operands[k]])
                RETURN_IF_ERROR(rename_output(p, "second", &op.operands[k]));
        RETURN_IF_ERROR(snug_edits_insert(&p->edits, p->end, op));
        RETURN_IF_ERROR(emit_updates(p, i));
    }
    return SNUG_OK;
}

static snug_status run_twice(struct passes *p, size_t tensors) {
    RETURN_IF_ERROR(norm_pass(p));
    for (size_t k = 0; k < p->updates->count; k++)
        if (p->kept[k]) RETURN_IF_ERROR(snug_edits_insert(&p->edits, p->end, p->updates->items[k].norm));
    for (size_t i = 0; i < tensors; i++) p->renamed[i] = 0;
    return update_pass(p);
}

/* Removes operations of the second pass whose outputs are unused: only the kept gradients depended on them. */
static snug_status drop_unread(struct snug_program *program) {
    struct snug_edits edits;
    bool *read;
    RETURN_IF_ERROR(snug_edits_open(program, &edits));
    snug_status status = snug_edits_alloc(&edits, program->tensor_count, sizeof *read, (void **)&read);
    for (size_t i = program->op_count; i-- > 0 && status == SNUG_OK && program->ops[i].phase == SNUG_PHASE_UPDATE;) {
        const struct snug_op *op = &program->ops[i];
        const int operands = snug_op_operands(op);
        bool needed = snug_op_is(op, SNUG_OP_UPDATES);
        for (int k = 0; k < operands; k++) needed |= is_output(op, k) && read[op->operands[k]];
        if (!needed) snug_edits_drop(&edits, i);
        for (int k = 0; k < operands && needed; k++)
            if (snug_op_reads(op, k)) read[op->operands[k]] = true;
    }
    return snug_edits_close(&edits, status);
}

/* ---- the stage ------------------------------------------------------------------------------------------------ */

static snug_status place_updates(struct passes *p, const struct snug_methods *methods) {
    const size_t tensors = p->program->tensor_count, updates = p->updates->count;
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, tensors, sizeof *p->before, (void **)&p->before));
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, tensors, sizeof *p->renamed, (void **)&p->renamed));
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, p->end, sizeof *p->left_out, (void **)&p->left_out));
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, updates, sizeof *p->kept, (void **)&p->kept));
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, updates, sizeof *p->ready, (void **)&p->ready));
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, updates, sizeof *p->complete, (void **)&p->complete));
    find_places(p);
    for (size_t i = 0; i < p->begin; i++)
        for (int k = 0; k < snug_op_operands(&p->old[i]); k++)
            if (is_output(&p->old[i], k)) p->before[p->old[i].operands[k]] = true;
    for (size_t k = 0; k < updates && !methods->accumulates; k++)
        p->program->tensors[p->updates->items[k].norm.squared_norm.g].persistent = false;
    p->program->updates_in_backward = !methods->clips;
    return p->two_passes ? run_twice(p, tensors) : run_once(p, methods->accumulates);
}

snug_status snug_update_in_backward(struct snug_program *program, const struct snug_methods *methods,
                                    const struct snug_updates *updates) {
    int32_t begin[SNUG_PHASE_COUNT + 1];
    RETURN_IF_ERROR(snug_program_sort(program));
    snug_program_phases(program, begin);
    struct passes p = {.program = program,
                       .updates = updates,
                       .old = program->ops,
                       .begin = (size_t)begin[SNUG_PHASE_BACKWARD],
                       .end = program->op_count,
                       .two_passes = methods->clips};
    snug_status status = snug_edits_open(program, &p.edits);
    if (status == SNUG_OK) status = place_updates(&p, methods);
    status = snug_edits_close(&p.edits, status);
    return status == SNUG_OK && methods->clips ? drop_unread(program) : status;
}
