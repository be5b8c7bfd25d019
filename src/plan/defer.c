/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deferred updates. The update of an offloaded weight takes as long as its copies, and the norm that clips its gradient
 * is known only after backward. But the next forward needs the weights one after the other. So each of these updates
 * moves to the next FORWARD, right before the first operation that reads the weight: the copies of later layers run
 * beside the operations of earlier ones. What is computed stays the same, and so do the bits: an update has the numbers
 * of its own step (struct snug_crossing), and no other operation reads the weight in between. Whoever else reads
 * weights or states flushes first (snug_run_pending()).
 *
 * Nothing moves if the arena has room for all of these staging buffers at once, where the activations are at other
 * times: then the copies overlap with the phases around UPDATE (plan/overlap.c), and the arena is smaller. An update
 * also stays in UPDATE if its staging buffers would raise the peak of the arena.
 */
#include <stdlib.h>

#include "plan/update.h"

struct defer {
    int32_t *reader;     /* by tensor: the first operation of FORWARD that reads it, or, a gradient, clears it; or -1 */
    int32_t *head;       /* by operation of FORWARD: the first update that moves to it, or -1 */
    int32_t *next;       /* by update: the next one that moves to the same operation, or -1 */
    bool *moves;         /* by operation */
    int64_t *live, most; /* bytes by operation, with the staging buffers of the updates that move; their peak */
};

static snug_status allocate(struct snug_program *program, struct defer *d) {
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->tensor_count, sizeof *d->reader, (void **)&d->reader));
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *d->head, (void **)&d->head));
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *d->next, (void **)&d->next));
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->op_count, sizeof *d->moves, (void **)&d->moves));
    for (size_t i = 0; i < program->tensor_count; i++) d->reader[i] = -1;
    for (size_t i = 0; i < program->op_count; i++) d->head[i] = d->next[i] = -1;
    return snug_find_live_bytes(program, &d->live, &d->most);
}

static void find_readers(const struct snug_program *program, int32_t *reader) {
    for (size_t i = program->op_count; i-- > 0;) {
        const struct snug_op *op = &program->ops[i];
        for (int k = 0; op->phase == SNUG_PHASE_FORWARD && k < snug_op_operands(op); k++)
            if (snug_op_reads(op, k) || snug_op_is(op, SNUG_OP_CLEARS)) reader[op->operands[k]] = (int32_t)i;
    }
}

/* Bytes of the offloaded tensors that op uses. */
static int64_t offloaded_bytes(const struct snug_program *program, const struct snug_op *op) {
    int64_t bytes = 0;
    for (int k = 0; k < snug_op_operands(op); k++)
        if (program->tensors[op->operands[k]].offloaded)
            bytes += snug_tensor_bytes(program, &program->tensors[op->operands[k]]);
    return bytes;
}

/* The operation before which the update can run at the latest; -1: it stays where it is, as in a second backward, whose
   gradients are not kept. */
static int32_t target_of(const struct snug_program *program, const struct defer *d, const struct snug_op *op) {
    if (op->phase != SNUG_PHASE_UPDATE || !snug_op_is(op, SNUG_OP_UPDATES) || op->on_host) return -1;
    if (!offloaded_bytes(program, op) || !program->tensors[op->update.g].persistent) return -1;
    int32_t target = d->reader[op->update.weight];
    const int32_t others[] = {op->update.copy ? d->reader[op->update.copy] : -1, d->reader[op->update.g]};
    if (target < 0) target = others[0];
    for (int i = 0; i < 2; i++) {
        /* untested: no model reads a copy, or clears a gradient, before it reads the weight */
        if (others[i] >= 0 && others[i] < target) target = others[i];
    }
    return target;
}

/* Whether there is room for staging buffers of this size while they are copied: `ahead` operations before and after the
   target. Takes it. */
static bool take_room(struct defer *d, int32_t target, int32_t end, int32_t ahead, int64_t bytes) {
    const int32_t first = target > ahead ? target - ahead : 0, last = target + ahead < end ? target + ahead : end;
    for (int32_t i = first; i < last; i++)
        if (d->live[i] + bytes > d->most) return false;
    for (int32_t i = first; i < last; i++) d->live[i] += bytes;
    return true;
}

static void find_moves(const struct snug_program *program, struct defer *d, int32_t end, int32_t ahead) {
    int64_t all = 0;
    for (size_t i = 0; i < program->op_count; i++)
        if (target_of(program, d, &program->ops[i]) >= 0) all += offloaded_bytes(program, &program->ops[i]);
    if (all <= d->most) return;
    for (int32_t i = (int32_t)program->op_count; i-- > 0;) {
        const struct snug_op *op = &program->ops[i];
        const int32_t target = target_of(program, d, op);
        if (target < 0 || !take_room(d, target, end, ahead, offloaded_bytes(program, op))) continue;
        d->moves[i] = true;
        d->next[i] = d->head[target];
        d->head[target] = i;
    }
}

static snug_status merge(struct snug_program *program, const struct defer *d) {
    struct snug_op *ops = program->ops;
    const size_t count = program->op_count;
    snug_status status = SNUG_OK;
    program->ops = NULL;
    program->op_count = program->op_capacity = 0;
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        for (int32_t k = d->head[i]; k >= 0 && status == SNUG_OK; k = d->next[k]) {
            struct snug_op update = ops[k];
            update.phase = SNUG_PHASE_FORWARD;
            update.crosses = program->crosses = true;
            status = snug_program_op(program, update);
        }
        if (!d->moves[i] && status == SNUG_OK) status = snug_program_op(program, ops[i]);
    }
    free(ops);
    return status;
}

snug_status snug_defer_updates(struct snug_program *program, int32_t end, int32_t ahead) {
    struct defer d = {0};
    snug_status status = allocate(program, &d);
    if (status == SNUG_OK) {
        find_readers(program, d.reader);
        find_moves(program, &d, end, ahead);
        status = merge(program, &d);
    }
    free(d.reader);
    free(d.head);
    free(d.next);
    free(d.moves);
    free(d.live);
    return status;
}
