/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-tensor launches: a model has hundreds of gradients and updates, most of them small. Of the longest series of
 * consecutive operations of a kind in a phase the first does the work of all, and the others do nothing. A tensor is
 * divided into blocks of SNUG_CUDA_BLOCK elements; the table of tensors is transferred with the batch.
 */
#include "backend/cuda/sizes/multi_tensor.h"

#include "optim/formulas/adafactor.h"

static int32_t gradient_of(const struct snug_op *op) {
    return op->kind == SNUG_OP_SQUARED_NORM ? op->squared_norm.g : op->update.g;
}

/* Whether op may share a launch, if it is not a later part of an offloaded tensor. */
static bool can_share(const struct snug_op *op) {
    return !op->last && (op->kind != SNUG_OP_SQUARED_NORM || op->squared_norm.index == 0);
}

/* Blocks of the table; 8-bit states are divided into blocks per segment, and Adafactor divides matrices by rows. */
static int64_t blocks_of(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *g = &program->tensors[gradient_of(op)];
    int64_t elements = g->rows * g->cols;
    if (op->kind == SNUG_OP_ADAFACTOR)
        return op->update.segments * (op->update.vector ? 1 : snug_adafactor_parts(g->rows / op->update.segments));
    if (op->kind == SNUG_OP_ADAM_8BIT) {
        const int64_t each = elements / op->update.segments;
        elements =
            op->update.segments * ((each + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK) * SNUG_QUANTISED_BLOCK;
    }
    return (elements + SNUG_CUDA_BLOCK - 1) / SNUG_CUDA_BLOCK;
}

int32_t snug_cuda_adafactor_parts(int64_t rows, bool all) {
    const int64_t parts = (rows + 7) / 8;
    return all ? snug_adafactor_parts(rows) : (int32_t)(parts < 256 ? parts : 256);
}

int64_t snug_cuda_adafactor_scratch(const struct snug_program *program, const struct snug_op *op, bool all) {
    const struct snug_tensor *g = &program->tensors[op->update.g];
    const int64_t parts = snug_cuda_adafactor_parts(g->rows / op->update.segments, all);
    const int64_t doubles = 2 * parts + 1, floats = (parts + 1) * g->cols;
    const int64_t bytes = op->update.segments * (doubles * (int64_t)sizeof(double) + floats * (int64_t)sizeof(float));
    return op->update.vector ? 0 : (bytes + 255) / 256 * 256;
}

/* Updates that cross phases run where their weight is read. Updates of other kinds may be in between: each has its own
   weight. Copies of offloaded tensors and collectives end a series. */
struct snug_cuda_multi_tensor snug_cuda_find_multi_tensor(const struct snug_program *program, enum snug_op_kind kind) {
    const struct snug_cuda_multi_tensor none = {.first = -1};
    struct snug_cuda_multi_tensor most = none, series = none;
    enum snug_phase phase = SNUG_PHASE_COUNT; /* of all operations of the kind; COUNT: there was none yet */
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->crosses || op->on_host) continue;
        if (op->kind != kind) {
            if (snug_op_is(op, SNUG_OP_COPIES) || snug_op_is(op, SNUG_OP_COLLECTIVE)) series = none;
            continue;
        }
        if (op->alone || !can_share(op) || (phase != SNUG_PHASE_COUNT && op->phase != phase)) return none;
        phase = op->phase;
        if (op->accumulate) {
            series = none;
            continue;
        }
        if (series.first < 0) series.first = (int64_t)i;
        series.last = (int64_t)i;
        series.count++;
        series.blocks += blocks_of(program, op);
        if (series.count > most.count) most = series;
    }
    return most;
}

/* A program has one optimizer; ADAM may serve parameters that ADAM_8BIT does not. */
struct snug_cuda_multi_tensor snug_cuda_find_updates(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (snug_op_is(op, SNUG_OP_UPDATES) && op->kind != SNUG_OP_ADAM_8BIT)
            return snug_cuda_find_multi_tensor(program, op->kind);
    }
    return (struct snug_cuda_multi_tensor){.first = -1};
}

static int64_t offset_of(const struct snug_program *program, int32_t tensor) {
    return tensor == 0 ? -1 : program->tensors[tensor].offset;
}

static struct snug_cuda_entry norm_entry(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *g = &program->tensors[op->squared_norm.g];
    return (struct snug_cuda_entry){.count = g->rows * g->cols, .g = g->offset, .slot = op->squared_norm.slot};
}

static struct snug_cuda_entry update_entry(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_update *u = &op->update;
    const struct snug_tensor *t = program->tensors, *g = &t[u->g];
    struct snug_cuda_entry entry = {.count = g->rows * g->cols,
                                    .g = g->offset,
                                    .p = offset_of(program, u->weight),
                                    .copy = offset_of(program, u->copy),
                                    .parameter = u->parameter,
                                    .element = op->element,
                                    .segments = u->segments,
                                    .vector = u->vector,
                                    .decay = u->decay,
                                    .low = t[u->weight].dtype == SNUG_BF16,
                                    .half = u->copy && t[u->copy].dtype == SNUG_F16};
    for (int k = 0; k < SNUG_STATES_MAX; k++) entry.state[k] = offset_of(program, u->states[k]);
    if (op->kind == SNUG_OP_ADAFACTOR) {
        entry.cols = g->cols;
        entry.parts = u->vector ? 1 : snug_adafactor_parts(g->rows / u->segments);
    }
    return entry;
}

void snug_cuda_list_entries(const struct snug_program *program, const struct snug_cuda_multi_tensor *multi,
                            struct snug_cuda_entry *entries) {
    int64_t block = 0, scratch = 0;
    int32_t i = 0;
    for (int64_t number = multi->first; i < multi->count; number++) {
        const struct snug_op *op = &program->ops[number];
        if (op->kind != program->ops[multi->first].kind || op->crosses || op->on_host) continue;
        entries[i] = op->kind == SNUG_OP_SQUARED_NORM ? norm_entry(program, op) : update_entry(program, op);
        entries[i].block = block;
        block += blocks_of(program, op);
        if (op->kind == SNUG_OP_ADAFACTOR) {
            entries[i].scratch = scratch;
            scratch += snug_cuda_adafactor_scratch(program, op, true);
        }
        i++;
    }
}
