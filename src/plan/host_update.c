/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates on the host. The update of an offloaded weight reads and writes its states, gradient and weight where they
 * are, in the backing store, with the host's cores, instead of in staging buffers on the device: fewer bytes cross the
 * link, and both work at once. Both give the same bits (optim/formulas/formula.h).
 *
 * An update on the host begins with UPDATE, when the gradients are stored and the norm is known, and is complete when
 * UPDATE ends. The clip factor is stored for it; a 16-bit copy that is not offloaded is written to the backing store
 * and fetched from there, after the device's own updates.
 */
#include <stdlib.h>

#include "plan/update.h"

/* Only its size keeps it in the arena: no copy of it would be worth its start, and an update on the host needs none. */
static bool is_small(const struct snug_program *program, const struct snug_tensor *tensor,
                     const struct snug_offload *how) {
    return how->classes >> tensor->memory_class & 1 && snug_tensor_bytes(program, tensor) < how->least;
}

/* Whether all tensors of the update are offloaded, except the clip factor, the copy and small states, which follow if
   it moves. Updates that need scratch, or whole parameters, stay on the device. */
static bool can_move(const struct snug_program *program, const struct snug_op *op, const struct snug_offload *how) {
    const struct snug_update *u = &op->update;
    if (op->phase != SNUG_PHASE_UPDATE || !snug_op_is(op, SNUG_OP_UPDATES) || !snug_op_is(op, SNUG_OP_ELEMENTS))
        return false;
    bool all =
        program->tensors[u->weight].offloaded && program->tensors[u->g].offloaded && program->tensors[u->g].persistent;
    for (int i = 0; i < SNUG_STATES_MAX; i++) {
        const struct snug_tensor *state = &program->tensors[u->states[i]];
        all &= !u->states[i] || state->offloaded || is_small(program, state, how);
    }
    return all;
}

static int64_t weight_bytes(const struct snug_program *program, const struct snug_op *op) {
    return snug_tensor_bytes(program, &program->tensors[op->update.weight]);
}

void snug_choose_host_updates(struct snug_program *program, const struct snug_offload *how) {
    int64_t all = 0;
    for (size_t i = 0; i < program->op_count; i++)
        if (can_move(program, &program->ops[i], how)) all += weight_bytes(program, &program->ops[i]);
    int64_t left = (int64_t)(how->on_host * (double)all);
    for (size_t i = program->op_count; i-- > 0;) {
        struct snug_op *op = &program->ops[i];
        if (!can_move(program, op, how) || weight_bytes(program, op) > left) continue;
        op->on_host = true;
        for (int k = 0; k < SNUG_STATES_MAX; k++)
            if (op->update.states[k]) program->tensors[op->update.states[k]].offloaded = true;
        left -= weight_bytes(program, op);
    }
}

/* A tensor of the backing store with the shape of tensor, which is in the arena. */
static snug_status add_twin(struct snug_program *program, int32_t tensor, int32_t *out) {
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

static snug_status add_wait(struct snug_program *program, int32_t tensor) {
    return snug_program_op(
        program,
        (struct snug_op){.kind = SNUG_OP_WAIT, .phase = SNUG_PHASE_UPDATE, .layer = -1, .wait = {.x = tensor}});
}

/* The factor is the same for all weights. */
static snug_status store_clip(struct snug_program *program, int32_t clip, int32_t *twin) {
    RETURN_IF_ERROR(add_twin(program, clip, twin));
    RETURN_IF_ERROR(snug_program_op(program, (struct snug_op){.kind = SNUG_OP_STORE,
                                                              .phase = SNUG_PHASE_UPDATE,
                                                              .layer = -1,
                                                              .store = {.x = clip, .backing = *twin}}));
    return add_wait(program, clip);
}

/* Sets twins[i] to the backing store of the copy of update i, if it has one. */
static snug_status begin_updates(struct snug_program *program, const struct snug_op *ops, size_t count,
                                 int32_t *twins) {
    int32_t twin = 0;
    for (size_t i = 0; i < count; i++) {
        if (!ops[i].on_host) continue;
        const struct snug_update *u = &ops[i].update;
        if (!twin) RETURN_IF_ERROR(store_clip(program, u->clip, &twin));
        struct snug_op op = ops[i];
        op.update.clip = twin;
        if (u->copy && !program->tensors[u->copy].offloaded) {
            RETURN_IF_ERROR(add_twin(program, u->copy, &twins[i]));
            op.update.copy = twins[i];
        }
        RETURN_IF_ERROR(snug_program_op(program, op));
    }
    return SNUG_OK;
}

static snug_status end_updates(struct snug_program *program, const struct snug_op *ops, size_t count,
                               const int32_t *twins) {
    for (size_t i = 0; i < count; i++) {
        const struct snug_update *u = &ops[i].update;
        if (!twins[i]) continue;
        RETURN_IF_ERROR(add_wait(program, u->weight));
        RETURN_IF_ERROR(snug_program_op(program, (struct snug_op){.kind = SNUG_OP_FETCH,
                                                                  .phase = SNUG_PHASE_UPDATE,
                                                                  .layer = ops[i].layer,
                                                                  .fetch = {.backing = twins[i], .x = u->copy}}));
        RETURN_IF_ERROR(add_wait(program, u->copy));
    }
    return SNUG_OK;
}

static snug_status place(struct snug_program *program, const struct snug_op *ops, size_t count, int32_t *twins) {
    bool begun = false;
    for (size_t i = 0; i < count; i++) {
        if (!begun && ops[i].phase == SNUG_PHASE_UPDATE) RETURN_IF_ERROR(begin_updates(program, ops, count, twins));
        begun |= ops[i].phase == SNUG_PHASE_UPDATE;
        if (!ops[i].on_host) RETURN_IF_ERROR(snug_program_op(program, ops[i]));
    }
    return end_updates(program, ops, count, twins);
}

snug_status snug_stage_host_updates(struct snug_program *program) {
    bool any = false;
    for (size_t i = 0; i < program->op_count; i++) any |= program->ops[i].on_host;
    if (!any) return SNUG_OK;
    struct snug_op *ops = program->ops;
    const size_t count = program->op_count;
    int32_t *twins; /* by update on the host */
    RETURN_IF_ERROR(snug_alloc(program->ctx, count, sizeof *twins, (void **)&twins));
    program->ops = NULL;
    program->op_count = program->op_capacity = 0;
    const snug_status status = place(program, ops, count, twins);
    free(twins);
    free(ops);
    return status;
}
