/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that wait. Of a word embedding, a step reads a few hundred rows and has gradients for no others; Adam moves the
 * others all the same, by what is left of their moments, and that traffic is most of a small batch's update. Here they
 * are brought up to date when they are next read, and the gradient holds only the rows that a step can touch.
 */
#include "plan/stages.h"

/* The table of the program's EMBED if nothing else reads it (a tied decoder does), or -1. */
static int32_t find_table(const struct snug_program *program) {
    int32_t table = -1;
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_EMBED) table = program->ops[i].in[0];
    for (size_t i = 0; i < program->op_count; i++)
        for (int in = 0; in < SNUG_OP_INPUTS; in++)
            if (program->ops[i].in[in] == table && program->ops[i].kind != SNUG_OP_EMBED) return -1;
    return table;
}

static struct snug_op *find_update(const struct snug_program *program, int32_t weight) {
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_ADAM && program->ops[i].out[0] == weight) return &program->ops[i];
    return NULL;
}

/* Without a gradient, a row at rest must stay there: not so with L2 decay, or 0 / 0. */
static bool rests(const struct snug_optimizer *optimizer) {
    return (float)optimizer->epsilon > 0 && (optimizer->decoupled || (float)optimizer->weight_decay == 0);
}

/* The gradient's writer and its reader learn which rows it holds. */
static void pass_index(struct snug_program *program, int32_t gradient, int32_t index) {
    for (size_t i = 0; i < program->op_count; i++) {
        struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_EMBED_BACKWARD && op->out[0] == gradient) op->out[5] = index;
        if (op->kind == SNUG_OP_SQUARED_NORM && op->in[0] == gradient) op->in[1] = index;
    }
}

/* An operation on what update updates. */
static struct snug_op beside(const struct snug_op *update, enum snug_op_kind kind, enum snug_phase phase) {
    struct snug_op op = *update;
    op.kind = kind;
    op.phase = phase;
    memcpy(op.in, (const int32_t[])SNUG_INPUTS(-1), sizeof op.in);
    return op;
}

/* Before the operations of its phase that are there already: it is to run before EMBED. */
static void move_to_front(struct snug_program *program) {
    const struct snug_op last = program->ops[program->op_count - 1];
    memmove(program->ops + 1, program->ops, (program->op_count - 1) * sizeof *program->ops);
    program->ops[0] = last;
}

snug_status snug_stage_wait(struct snug_program *program, const struct snug_methods *methods) {
    /* Update in backward frees the gradient by itself. (Steps that fp16 skips would be in no history: a GPU's rows do
       not wait.) */
    const bool may = methods->waiting_steps > 0 && !methods->update_in_backward;
    const int32_t table = may ? find_table(program) : -1;
    struct snug_op *update = table >= 0 ? find_update(program, table) : NULL;
    const int64_t touched = program->capacity[SNUG_EXTENT_TOKENS] * methods->micro_batches;
    if (!update || !rests(methods->optimizer) || 2 * touched > program->tensors[table].rows) return SNUG_OK;

    char name[sizeof program->tensors->name];
    memcpy(name, program->tensors[table].name, sizeof name);
    struct snug_tensor like = {.dtype = SNUG_I32, .rows = 1, .layer = -1, .persistent = true};
    int32_t index;
    like.memory_class = SNUG_MEMORY_GRADIENTS;
    like.cols = 1 + touched + program->tensors[table].rows;
    RETURN_IF_ERROR(snug_program_tensor(program, like, &index, "index.%s", name));
    like.memory_class = SNUG_MEMORY_OPTIMIZER;
    like.cols = program->tensors[table].rows;
    RETURN_IF_ERROR(snug_program_tensor(program, like, &update->out[6], "updated.%s", name));
    like.dtype = SNUG_F32;
    like.rows = methods->waiting_steps;
    like.cols = 2;
    RETURN_IF_ERROR(snug_program_tensor(program, like, &update->out[7], "history.%s", name));

    program->tensors[update->in[0]].rows = touched;
    pass_index(program, update->in[0], index);
    update->kind = SNUG_OP_ADAM_ROWS;
    update->in[2] = index;
    const struct snug_op settle = beside(update, SNUG_OP_SETTLE, SNUG_PHASE_SETTLE);
    const struct snug_op catch_up = beside(update, SNUG_OP_CATCH_UP, SNUG_PHASE_FORWARD);
    RETURN_IF_ERROR(snug_program_op(program, (struct snug_op){.kind = SNUG_OP_ROWS_BEGIN,
                                                              .phase = SNUG_PHASE_PREPARE,
                                                              .layer = update->layer,
                                                              .in = SNUG_INPUTS(update->out[2], update->out[3]),
                                                              .out = SNUG_OUTPUTS(index, update->out[6]),
                                                              .decay = update->decay}));
    RETURN_IF_ERROR(snug_program_op(program, settle));
    RETURN_IF_ERROR(snug_program_op(program, catch_up));
    move_to_front(program);
    return SNUG_OK;
}
