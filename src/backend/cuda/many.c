/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One launch over many tensors: a model has hundreds of gradients and updates, most of them small. Where a phase has
 * all operations of a kind in a row, the first of them does the work of all, and the others nothing. A tensor is cut
 * into blocks of SNUG_CUDA_BLOCK elements; the table of tensors travels with the batch.
 */
#include "backend/cuda/cuda.h"

static bool belongs(const struct snug_op *op, enum snug_op_kind kind) {
    if (op->kind != kind || op->last || op->accumulate) return false;
    return kind != SNUG_OP_SQUARED_NORM || op->in[1] < 0;
}

/* Blocks of the table; states of 8 bits are cut into blocks of their own, parameter by parameter, and Adafactor cuts
   matrices by rows. */
static int64_t blocks_of(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *g = &program->tensors[op->in[0]];
    int64_t elements = g->rows * g->cols;
    if (op->kind == SNUG_OP_ADAFACTOR)
        return op->segments * (op->vector ? 1 : snug_cuda_parts(g->rows / op->segments, true));
    if (op->kind == SNUG_OP_ADAM_8BIT) {
        const int64_t each = elements / op->segments;
        elements = op->segments * ((each + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK) * SNUG_QUANTISED_BLOCK;
    }
    return (elements + SNUG_CUDA_BLOCK - 1) / SNUG_CUDA_BLOCK;
}

/* Updates of other kinds may stand between: each has a weight of its own. */
struct snug_cuda_many snug_cuda_find_many(const struct snug_program *program, enum snug_op_kind kind) {
    const struct snug_cuda_many none = {.first = -1};
    struct snug_cuda_many many = none;
    bool ended = false;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind != kind) {
            ended |= many.first >= 0 && !snug_is_update(op->kind);
            continue;
        }
        if (!belongs(op, kind) || ended || (many.first >= 0 && op->phase != program->ops[many.first].phase))
            return none;
        if (many.first < 0) many.first = (int64_t)i;
        many.last = (int64_t)i;
        many.count++;
        many.blocks += blocks_of(program, op);
    }
    return many;
}

/* Of the optimizer whose states are not of 8 bits: a program has one. */
struct snug_cuda_many snug_cuda_find_updates(const struct snug_program *program) {
    static const enum snug_op_kind kinds[] = {SNUG_OP_ADAM,    SNUG_OP_SGD,  SNUG_OP_ADAGRAD,
                                              SNUG_OP_RMSPROP, SNUG_OP_LION, SNUG_OP_ADAFACTOR};
    struct snug_cuda_many many = {.first = -1};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && many.first < 0; i++)
        many = snug_cuda_find_many(program, kinds[i]);
    return many;
}

static int64_t place_of(const struct snug_program *program, int32_t tensor) {
    return tensor < 0 ? -1 : program->tensors[tensor].offset;
}

void snug_cuda_list_many(const struct snug_program *program, const struct snug_cuda_many *many,
                         struct snug_cuda_piece *pieces) {
    int64_t block = 0, scratch = 0;
    int32_t i = 0;
    for (int64_t number = many->first; i < many->count; number++) {
        const struct snug_op *op = &program->ops[number];
        if (op->kind != program->ops[many->first].kind) continue;
        const struct snug_tensor *g = &program->tensors[op->in[0]];
        const bool updates = snug_is_update(op->kind), copies = updates && op->out[1] >= 0;
        pieces[i] = (struct snug_cuda_piece){.block = block,
                                             .count = g->rows * g->cols,
                                             .g = g->offset,
                                             .p = updates ? place_of(program, op->out[0]) : -1,
                                             .copy = updates ? place_of(program, op->out[1]) : -1,
                                             .parameter = op->parameter,
                                             .segments = op->segments,
                                             .slot = op->slot,
                                             .vector = op->vector,
                                             .decay = op->decay,
                                             .low = updates && program->tensors[op->out[0]].dtype == SNUG_BF16,
                                             .half = copies && program->tensors[op->out[1]].dtype == SNUG_F16};
        for (int k = 0; k < 4; k++) pieces[i].state[k] = updates ? place_of(program, op->out[2 + k]) : -1;
        block += blocks_of(program, op);
        if (op->kind == SNUG_OP_ADAFACTOR) {
            pieces[i].cols = g->cols;
            pieces[i].parts = op->vector ? 1 : snug_cuda_parts(g->rows / op->segments, true);
            pieces[i].scratch = scratch;
            scratch += snug_cuda_adafactor_scratch(program, op, true);
        }
        i++;
    }
}

enum snug_cuda_turn snug_cuda_turn_of(const struct snug_run *run, const struct snug_op *op,
                                      const struct snug_cuda_many *many) {
    const int64_t number = op - run->program->ops;
    if (!snug_cuda_of(run)->padded || many->first < 0 || number < many->first || number > many->last)
        return SNUG_CUDA_ALONE;
    return number == many->first ? SNUG_CUDA_FOR_ALL : SNUG_CUDA_DONE;
}
