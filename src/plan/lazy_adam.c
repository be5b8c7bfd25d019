/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lazy updates of embedding rows (torch.optim.SparseAdam without its approximation). A step reads a few hundred rows of
 * a word embedding, and only these have gradients. Adam changes the other rows too, because their moments are not 0,
 * and that traffic is most of a small batch's update. This stage updates a row when it is next read, and the gradient
 * has only the rows that a step can use.
 */
#include "plan/stages.h"
#include "program/edits.h"

/* The table that is read by token id, if nothing else reads it (a tied decoder would); or none. */
static int32_t find_table(const struct snug_program *program) {
    int32_t table = 0;
    int readers = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        for (int k = 0; k < snug_op_operands(op); k++)
            if (snug_op_reads(op, k) && snug_op_info(op->kind)->operands[k].flags & SNUG_BY_TOKEN)
                table = op->operands[k];
    }
    for (size_t i = 0; i < program->op_count; i++) readers += snug_op_uses(&program->ops[i], table);
    return readers == 1 ? table : 0;
}

static struct snug_op *find_update(const struct snug_program *program, int32_t weight) {
    for (size_t i = 0; i < program->op_count; i++)
        if (snug_op_is(&program->ops[i], SNUG_OP_LAZY_FORM) && program->ops[i].update.weight == weight)
            return &program->ops[i];
    return NULL;
}

/* Whether a row whose moments are 0 does not change without a gradient: not with L2 decay, or if the update is 0 / 0.
 */
static bool rests(const struct snug_optimizer *optimizer) {
    return (float)optimizer->epsilon > 0 && (optimizer->decoupled || (float)optimizer->weight_decay == 0);
}

/* Passes the index to the operations that write and read the gradient. */
static void pass_index(struct snug_program *program, int32_t gradient, int32_t index) {
    for (size_t i = 0; i < program->op_count; i++) {
        struct snug_op *op = &program->ops[i];
        const int k = snug_op_operand(op, SNUG_ROW_INDEX);
        if (k >= 0 && (snug_op_uses(op, gradient) || snug_op_writes(op, gradient))) op->operands[k] = index;
    }
}

/* The update's operands without the gradient. */
static struct snug_op lazy_update_of(const struct snug_op *update) {
    struct snug_op op = *update;
    op.kind = SNUG_OP_LAZY_UPDATE;
    op.phase = SNUG_PHASE_FORWARD;
    op.update.g = op.update.clip = op.update.index = 0;
    return op;
}

snug_status snug_stage_lazy_rows(struct snug_program *program, const struct snug_methods *methods) {
    /* Update in backward frees the gradient by itself. (The history has no steps that fp16 skips: GPUs do not update
     * lazily.) */
    const bool may = methods->lazy_steps > 0 && !methods->update_in_backward;
    const int32_t table = may ? find_table(program) : 0;
    struct snug_op *update = table ? find_update(program, table) : NULL;
    const int64_t touched = program->capacity[SNUG_EXTENT_TOKENS] * methods->micro_batches;
    if (!update || !rests(methods->optimizer) || 2 * touched > program->tensors[table].rows) return SNUG_OK;

    char name[sizeof program->tensors->name];
    memcpy(name, program->tensors[table].name, sizeof name);
    struct snug_tensor like = {
        .dtype = SNUG_I32, .rows = 1, .part = update->part, .layer = update->layer, .persistent = true};
    int32_t index;
    like.memory_class = SNUG_MEMORY_GRADIENTS;
    like.cols = 1 + touched + program->tensors[table].rows;
    RETURN_IF_ERROR(snug_program_tensor(program, like, &index, "index.%s", name));
    like.memory_class = SNUG_MEMORY_OPTIMIZER;
    like.cols = program->tensors[table].rows;
    RETURN_IF_ERROR(snug_program_tensor(program, like, &update->update.updated, "updated.%s", name));
    like.dtype = SNUG_F32;
    like.rows = methods->lazy_steps;
    like.cols = 2;
    RETURN_IF_ERROR(snug_program_tensor(program, like, &update->update.history, "history.%s", name));

    program->tensors[update->update.g].rows = touched;
    program->tensors[update->update.g].index = index;
    pass_index(program, update->update.g, index);
    update->kind = SNUG_OP_ADAM_ROWS;
    const struct snug_op lazy_update = lazy_update_of(update);
    struct snug_edits edits;
    snug_status status = snug_edits_open(program, &edits);
    if (status == SNUG_OK) status = snug_edits_insert(&edits, 0, lazy_update); /* before EMBED */
    if (status == SNUG_OK)
        status = snug_edits_insert(&edits, 0,
                                   (struct snug_op){.kind = SNUG_OP_ROWS_BEGIN,
                                                    .phase = SNUG_PHASE_PREPARE,
                                                    .part = lazy_update.part,
                                                    .layer = lazy_update.layer,
                                                    .rows_begin = {.m = lazy_update.update.states[0],
                                                                   .v = lazy_update.update.states[1],
                                                                   .index = index,
                                                                   .updated = lazy_update.update.updated,
                                                                   .decay = lazy_update.update.decay}});
    return snug_edits_close(&edits, status);
}
