/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where updates of offloaded weights run, and the norms of offloaded gradients.
 *
 * Deferred updates. The update of an offloaded weight takes as long as its moves, and the norm that clips its gradient
 * is known only after backward. But the next forward needs the weights one after the other. So each of these updates
 * moves to the next FORWARD, right before the first operation that reads the weight: the moves of later layers run
 * beside the operations of earlier ones. What is computed stays the same, and so do the bits: an update has the numbers
 * of its own step (struct snug_crossing), and no other operation reads the weight in between. Any other reader of
 * weights or states flushes first (snug_run_pending()).
 *
 * Nothing moves if the arena has room for all of these staging buffers at once, where the activations are at other
 * times: then the moves run beside the phases around UPDATE (plan/schedule.c), and the arena is smaller. An update also
 * stays in UPDATE if its staging buffers would raise the peak of the arena.
 *
 * Updates on the host. The update of an offloaded weight reads and writes its states, gradient and weight where they
 * are, in the backing store, with the host's cores, instead of in staging buffers on the device: fewer bytes cross the
 * link, and both work at once. Both give the same bits (optim/formulas/formula.h). It begins with UPDATE, when the
 * gradients are stored and the norm is known, and is complete when UPDATE ends. The clip factor is stored for it; a
 * 16-bit copy that is not offloaded is written to the backing store and fetched from there, after the device's own
 * updates.
 */
#include "plan/moves.h"

struct places {
    struct snug_program *program;
    const struct snug_offload *how;
    struct snug_edits edits;
    int32_t begin[SNUG_PHASE_COUNT + 1];
    int32_t *reader;     /* by tensor: the first operation of FORWARD that reads it, or, a gradient, clears it; or -1 */
    int32_t *target;     /* by operation: the one before which it runs instead, or -1 */
    int64_t *live, most; /* bytes by operation, with the staging buffers of the updates that move; their peak */
};

/* ---- norms ---------------------------------------------------------------------------------------------------- */

/* Norms of offloaded gradients move to where BACKWARD completes them, so that CLIP need not fetch them; in every
   micro-batch, because a loop of the user may make a step after any of them. */
static snug_status place_norms(struct places *p) {
    const struct snug_op *ops = p->program->ops;
    int32_t *completed; /* by gradient: the operation after the last one of BACKWARD that writes it, or 0 */
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, p->program->tensor_count, sizeof *completed, (void **)&completed));
    for (int32_t i = p->begin[SNUG_PHASE_BACKWARD]; i < p->begin[SNUG_PHASE_BACKWARD + 1]; i++)
        for (int k = 0; k < snug_op_operands(&ops[i]); k++)
            if (!snug_op_reads(&ops[i], k)) completed[ops[i].operands[k]] = i + 1;
    for (int32_t i = p->begin[SNUG_PHASE_CLIP]; i < p->begin[SNUG_PHASE_CLIP + 1]; i++) {
        struct snug_op norm = ops[i];
        const int32_t g = norm.kind == SNUG_OP_SQUARED_NORM ? norm.squared_norm.g : 0;
        if (!p->program->tensors[g].offloaded || !completed[g]) continue;
        norm.phase = SNUG_PHASE_BACKWARD;
        snug_edits_drop(&p->edits, (size_t)i);
        RETURN_IF_ERROR(snug_edits_insert(&p->edits, (size_t)completed[g], norm));
    }
    return SNUG_OK;
}

/* ---- deferred updates ----------------------------------------------------------------------------------------- */

static void find_readers(struct places *p) {
    for (size_t i = 0; i < p->program->tensor_count; i++) p->reader[i] = -1;
    for (int32_t i = p->begin[SNUG_PHASE_FORWARD + 1]; i-- > p->begin[SNUG_PHASE_FORWARD];) {
        const struct snug_op *op = &p->program->ops[i];
        for (int k = 0; k < snug_op_operands(op); k++)
            if (snug_op_reads(op, k) || snug_op_is(op, SNUG_OP_CLEARS)) p->reader[op->operands[k]] = i;
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
static int32_t target_of(const struct places *p, const struct snug_op *op) {
    if (op->phase != SNUG_PHASE_UPDATE || !snug_op_is(op, SNUG_OP_UPDATES) || op->on_host) return -1;
    if (!offloaded_bytes(p->program, op) || !p->program->tensors[op->update.g].persistent) return -1;
    int32_t target = p->reader[op->update.weight];
    const int32_t others[] = {op->update.copy ? p->reader[op->update.copy] : -1, p->reader[op->update.g]};
    if (target < 0) target = others[0];
    for (int i = 0; i < 2; i++) {
        if (others[i] >= 0 && others[i] < target) target = others[i];
    }
    return target;
}

/* Whether there is room for staging buffers of this size while they are copied: `ahead` operations before and after the
   target. Takes it. */
static bool take_room(struct places *p, int32_t target, int64_t bytes) {
    const int32_t ahead = p->how->ahead, end = p->begin[SNUG_PHASE_FORWARD + 1];
    const int32_t first = target > ahead ? target - ahead : 0, last = target + ahead < end ? target + ahead : end;
    for (int32_t i = first; i < last; i++)
        if (p->live[i] + bytes > p->most) return false;
    for (int32_t i = first; i < last; i++) p->live[i] += bytes;
    return true;
}

static snug_status defer_updates(struct places *p) {
    struct snug_program *program = p->program;
    const size_t count = program->op_count;
    int64_t all = 0;
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, program->tensor_count, sizeof *p->reader, (void **)&p->reader));
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, count, sizeof *p->target, (void **)&p->target));
    RETURN_IF_ERROR(snug_edits_alloc(&p->edits, count, sizeof *p->live, (void **)&p->live));
    snug_find_lifetimes(program);
    p->most = snug_find_live_bytes(program, p->live, count);
    find_readers(p);
    for (size_t i = 0; i < count; i++) {
        p->target[i] = target_of(p, &program->ops[i]);
        if (p->target[i] >= 0) all += offloaded_bytes(program, &program->ops[i]);
    }
    if (all <= p->most) return SNUG_OK;
    for (size_t i = count; i-- > 0;)
        if (p->target[i] >= 0 && !take_room(p, p->target[i], offloaded_bytes(program, &program->ops[i])))
            p->target[i] = -1;
    for (size_t i = 0; i < count; i++) {
        struct snug_op update = program->ops[i];
        if (p->target[i] < 0) continue;
        update.phase = SNUG_PHASE_FORWARD;
        update.crosses = program->crosses = true;
        snug_edits_drop(&p->edits, i);
        RETURN_IF_ERROR(snug_edits_insert(&p->edits, (size_t)p->target[i], update));
    }
    return SNUG_OK;
}

/* ---- updates on the host -------------------------------------------------------------------------------------- */

/* Only its size keeps it in the arena: no copy of it would be worth its start, and an update on the host needs none. */
static bool is_small(const struct places *p, const struct snug_tensor *tensor) {
    return p->how->classes >> tensor->memory_class & 1 && snug_tensor_bytes(p->program, tensor) < p->how->least;
}

/* Whether all tensors of the update are offloaded, except the clip factor, the copy and small states, which follow if
   it moves. Updates that need scratch, or whole parameters, stay on the device. */
static bool can_move(const struct places *p, const struct snug_op *op) {
    const struct snug_tensor *tensors = p->program->tensors;
    const struct snug_update *u = &op->update;
    if (op->phase != SNUG_PHASE_UPDATE || !snug_op_is(op, SNUG_OP_UPDATES) || !snug_op_is(op, SNUG_OP_ELEMENTS))
        return false;
    bool all = tensors[u->weight].offloaded && tensors[u->g].offloaded && tensors[u->g].persistent;
    for (int i = 0; i < SNUG_STATES_MAX; i++)
        all &= !u->states[i] || tensors[u->states[i]].offloaded || is_small(p, &tensors[u->states[i]]);
    return all;
}

/* Chooses updates of weights that are offloaded with their gradients and states, from the last one on, up to on_host of
   their bytes. Their states that are too small to be offloaded otherwise (absmax of 8-bit states) are offloaded with
   them. */
static void choose_host_updates(const struct places *p) {
    struct snug_program *program = p->program;
    int64_t all = 0;
    for (size_t i = 0; i < program->op_count; i++)
        if (can_move(p, &program->ops[i]))
            all += snug_tensor_bytes(program, &program->tensors[program->ops[i].update.weight]);
    int64_t left = (int64_t)(p->how->on_host * (double)all);
    for (size_t i = program->op_count; i-- > 0;) {
        struct snug_op *op = &program->ops[i];
        if (!can_move(p, op)) continue;
        const int64_t bytes = snug_tensor_bytes(program, &program->tensors[op->update.weight]);
        if (bytes > left) continue;
        op->on_host = true;
        for (int k = 0; k < SNUG_STATES_MAX; k++)
            if (op->update.states[k]) program->tensors[op->update.states[k]].offloaded = true;
        left -= bytes;
    }
}

/* A tensor of the backing store with the shape of tensor, which is in the arena. */
static snug_status add_stored(struct snug_program *program, int32_t tensor, int32_t *out) {
    const struct snug_tensor *like = &program->tensors[tensor];
    return snug_program_tensor(program,
                               (struct snug_tensor){.dtype = like->dtype,
                                                    .memory_class = like->memory_class,
                                                    .rows = like->rows,
                                                    .cols = like->cols,
                                                    .layer = like->layer,
                                                    .persistent = true,
                                                    .offloaded = true},
                               out, "host.%s", like->name);
}

/* A move that is waited for at once. */
static snug_status move_now(struct snug_moves *moves, struct snug_op op, int32_t at, int32_t tensor) {
    const struct snug_op wait = {.kind = SNUG_OP_WAIT, .phase = SNUG_PHASE_UPDATE, .layer = -1, .wait = {.x = tensor}};
    op.phase = SNUG_PHASE_UPDATE;
    RETURN_IF_ERROR(snug_edits_insert(&moves->edits, (size_t)at, op));
    return snug_edits_insert(&moves->edits, (size_t)at, wait);
}

snug_status snug_begin_host_updates(struct snug_moves *moves, int32_t **copies) {
    struct snug_program *program = moves->program;
    const int32_t at = moves->begin[SNUG_PHASE_UPDATE];
    int32_t clip = 0; /* the same for all weights */
    RETURN_IF_ERROR(snug_edits_alloc(&moves->edits, program->op_count, sizeof **copies, (void **)copies));
    for (size_t i = 0; i < program->op_count; i++) {
        struct snug_op op = program->ops[i];
        if (!op.on_host) continue;
        if (!clip) {
            RETURN_IF_ERROR(add_stored(program, op.update.clip, &clip));
            const struct snug_op store = {
                .kind = SNUG_OP_STORE, .layer = -1, .store = {.x = op.update.clip, .backing = clip}};
            RETURN_IF_ERROR(move_now(moves, store, at, op.update.clip));
        }
        op.update.clip = clip;
        if (op.update.copy && !program->tensors[op.update.copy].offloaded) {
            RETURN_IF_ERROR(add_stored(program, op.update.copy, &(*copies)[i]));
            op.update.copy = (*copies)[i];
        }
        snug_edits_drop(&moves->edits, i);
        RETURN_IF_ERROR(snug_edits_insert(&moves->edits, (size_t)at, op));
    }
    return SNUG_OK;
}

snug_status snug_end_host_updates(struct snug_moves *moves, const int32_t *copies) {
    const int32_t end = moves->begin[SNUG_PHASE_COUNT];
    for (int32_t i = 0; i < end; i++) {
        const struct snug_update *u = &moves->program->ops[i].update;
        const struct snug_op fetch = {.kind = SNUG_OP_FETCH,
                                      .layer = moves->program->ops[i].layer,
                                      .fetch = {.backing = copies[i], .x = u->copy}};
        const struct snug_op wait = {
            .kind = SNUG_OP_WAIT, .phase = SNUG_PHASE_UPDATE, .layer = -1, .wait = {.x = u->weight}};
        if (!copies[i]) continue;
        RETURN_IF_ERROR(snug_edits_insert(&moves->edits, (size_t)end, wait));
        RETURN_IF_ERROR(move_now(moves, fetch, end, u->copy));
    }
    return SNUG_OK;
}

/* ---- the step ------------------------------------------------------------------------------------------------- */

snug_status snug_place_updates(struct snug_program *program, const struct snug_offload *how) {
    struct places p = {.program = program, .how = how};
    snug_program_phases(program, p.begin);
    choose_host_updates(&p);
    snug_status status = snug_edits_open(program, &p.edits);
    if (status == SNUG_OK) status = place_norms(&p);
    if (status == SNUG_OK && how->overlaps && !program->updates_in_backward) status = defer_updates(&p);
    return snug_edits_close(&p.edits, status);
}
