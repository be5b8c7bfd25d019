/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's part of a program: the gradient norm and clipping, then an update for each weight. */
#include <stdlib.h>

#include "optim/loss_scale.h"
#include "plan/update.h"

/* Marks the weights from which an operation takes single rows. */
static void mark_tables(const struct snug_program *program, bool tables[]) {
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const int operands = snug_op_operands(op);
        for (int k = 0; k < operands; k++)
            if (snug_op_info(op->kind)->operands[k].flags & SNUG_TABLE) tables[op->operands[k]] = true;
    }
}

/* The weight from an optimizer's view, and the fields of its update that depend on its parameters. */
static struct snug_weight describe(const struct snug_program *program, int32_t weight, bool table,
                                   struct snug_update *update) {
    struct snug_weight w = {
        .rows = program->tensors[weight].rows, .cols = program->tensors[weight].cols, .table = table};
    for (size_t i = program->parameter_count; i-- > 0;) {
        const struct snug_parameter *parameter = &program->parameters[i];
        if (parameter->tensor != weight) continue;
        w.segments++;
        w.vector = parameter->shape[1] == 0;
        update->decay = parameter->decay;
        update->parameter = (int32_t)i;
    }
    update->segments = w.segments;
    update->vector = w.vector;
    return w;
}

static snug_status add_states(struct snug_program *program, const struct snug_optimizer *optimizer, int32_t weight,
                              bool table, struct snug_op *update) {
    const struct snug_weight w = describe(program, weight, table, &update->update);
    const struct snug_states states = optimizer->info->states(optimizer, &w);
    const struct snug_parameter *parameter = &program->parameters[update->update.parameter];
    update->kind = states.update;
    for (int i = 0; i < states.count; i++) {
        struct snug_tensor like = program->tensors[weight];
        like.memory_class = SNUG_MEMORY_OPTIMIZER;
        like.saved = true;
        like.trainable = false;
        like.gradient = 0;
        like.dtype = states.items[i].dtype;
        if (parameter->kernel && states.items[i].shape == SNUG_STATE_ROWS)
            return snug_fail(program->ctx, SNUG_E_UNSUPPORTED,
                             "--optim: %s is the weight of a convolution, whose states are not supported where they "
                             "are those of rows and columns: choose another optimizer, as adamw_torch",
                             parameter->name);
        snug_state_size(&states.items[i], &w, &like.rows, &like.cols);
        RETURN_IF_ERROR(snug_program_tensor(program, like, &update->update.states[i], "%s.%s", states.items[i].name,
                                            program->tensors[weight].name));
    }
    return SNUG_OK;
}

/* The optimizer's operations for each weight, which the method inserts into the program. */
static snug_status list_updates(struct snug_program *program, const struct snug_optimizer *optimizer,
                                struct snug_updates *u) {
    const size_t weights = program->tensor_count;
    struct snug_tensor small = {.memory_class = SNUG_MEMORY_OPTIMIZER,
                                .rows = 1,
                                .cols = 2,
                                .part = SNUG_PART_HEAD,
                                .layer = -1,
                                .persistent = true};
    RETURN_IF_ERROR(snug_program_tensor(program, small, &program->clip, "clip"));
    if (program->compute == SNUG_F16) {
        struct snug_tensor scaler = small;
        scaler.cols = SNUG_SCALE_VALUES;
        scaler.saved = true;
        RETURN_IF_ERROR(snug_program_tensor(program, scaler, &program->scaler, "loss_scale"));
    }
    small.dtype = SNUG_F64;
    RETURN_IF_ERROR(snug_program_tensor(program, small, &u->sums, "squared_norms"));
    RETURN_IF_ERROR(snug_alloc(program->ctx, weights, sizeof *u->items, (void **)&u->items));
    bool *tables;
    RETURN_IF_ERROR(snug_alloc(program->ctx, weights, sizeof *tables, (void **)&tables));
    mark_tables(program, tables);
    snug_status status = SNUG_OK;
    for (size_t i = 1; i < weights && status == SNUG_OK; i++) {
        const int32_t weight = (int32_t)i, gradient = program->tensors[i].gradient;
        if (!gradient) continue;
        struct snug_op update = {.phase = SNUG_PHASE_UPDATE,
                                 .part = program->tensors[i].part,
                                 .layer = program->tensors[i].layer,
                                 .update = {.g = gradient, .clip = program->clip, .weight = weight}};
        status = add_states(program, optimizer, weight, tables[i], &update);
        const struct snug_op norm = {
            .kind = SNUG_OP_SQUARED_NORM,
            .phase = SNUG_PHASE_CLIP,
            .part = update.part,
            .layer = update.layer,
            .squared_norm = {
                .g = gradient, .sums = u->sums, .slot = (int32_t)u->count, .parameter = update.update.parameter}};
        u->items[u->count++] = (struct snug_weight_update){.norm = norm, .update = update};
    }
    program->tensors[u->sums].cols = (int64_t)u->count;
    free(tables);
    return status;
}

static snug_status after_backward(struct snug_program *program, const struct snug_updates *u) {
    for (size_t i = 0; i < u->count; i++) {
        RETURN_IF_ERROR(snug_program_op(program, u->items[i].norm));
        RETURN_IF_ERROR(snug_program_op(program, u->items[i].update));
    }
    return SNUG_OK;
}

snug_status snug_stage_update(struct snug_program *program, const struct snug_methods *methods) {
    struct snug_updates u = {0};
    snug_status status = list_updates(program, methods->optimizer, &u);
    /* With loss scaling no weight may change before all gradients are known to be finite: the same order as with
     * clipping. */
    struct snug_methods own = *methods;
    own.clips |= program->scaler != 0;
    /* Accumulated gradients live until the last micro-batch; their norm is known only then. */
    const bool inside = own.update_in_backward && !(own.accumulates && own.clips);
    if (status == SNUG_OK) status = inside ? snug_update_in_backward(program, &own, &u) : after_backward(program, &u);
    if (status == SNUG_OK)
        status = snug_program_op(
            program, (struct snug_op){.kind = SNUG_OP_CLIP,
                                      .phase = SNUG_PHASE_CLIP,
                                      .part = SNUG_PART_HEAD,
                                      .layer = -1,
                                      .clip = {.sums = u.sums, .clip = program->clip, .scaler = program->scaler}});
    if (status == SNUG_OK && program->scaler)
        status = snug_program_op(program, (struct snug_op){.kind = SNUG_OP_RESCALE,
                                                           .phase = SNUG_PHASE_UPDATE,
                                                           .part = SNUG_PART_HEAD,
                                                           .layer = -1,
                                                           .rescale = {.scaler = program->scaler}});
    free(u.items);
    return status;
}
