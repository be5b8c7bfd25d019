/* SPDX-License-Identifier: Apache-2.0 */
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void snug_program_init(struct snug_program *program, snug_context *ctx) {
    *program = (struct snug_program){.ctx = ctx};
}

snug_status snug_program_tensor(struct snug_program *program, struct snug_tensor like, int32_t *out, const char *name,
                                ...) {
    va_list args;
    va_start(args, name);
    int length = vsnprintf(like.name, sizeof like.name, name, args); /* a copy: growing the array may move the names */
    va_end(args);
    if ((size_t)length >= sizeof like.name)
        return snug_fail(program->ctx, SNUG_E_INTERNAL, "tensor name %s… is too long", like.name);
    const size_t number = program->tensor_count ? program->tensor_count : 1;
    RETURN_IF_ERROR(snug_grow(program->ctx, (void **)&program->tensors, &program->tensor_capacity, number + 1,
                              sizeof *program->tensors));
    if (number == 1) program->tensors[0] = (struct snug_tensor){.name = "none"};
    program->tensor_count = number + 1;
    *out = (int32_t)number;
    like.identity = 0;
    program->tensors[*out] = like;
    return SNUG_OK;
}

/* Stages replace operands by number; a missing operand would later be treated as none. */
static snug_status check_operands(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_op_info *info = snug_op_info(op->kind);
    for (int k = 0; k < snug_op_operands(op); k++) {
        const int32_t tensor = op->operands[k];
        if (tensor == 0 && (info->operands[k].flags & SNUG_OPTIONAL)) continue;
        if (tensor <= 0 || (size_t)tensor >= program->tensor_count)
            return snug_fail(program->ctx, SNUG_E_INTERNAL, "operation %s has no operand %s", info->name,
                             info->operands[k].name);
    }
    return SNUG_OK;
}

snug_status snug_program_op(struct snug_program *program, struct snug_op op) {
    RETURN_IF_ERROR(check_operands(program, &op));
    RETURN_IF_ERROR(snug_grow(program->ctx, (void **)&program->ops, &program->op_capacity, program->op_count + 1,
                              sizeof *program->ops));
    program->ops[program->op_count++] = op;
    return SNUG_OK;
}

snug_status snug_tensor_read(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                             int64_t first, int64_t count, void *out) {
    const struct snug_tensor *t = &program->tensors[tensor];
    const int64_t size = snug_dtype_size(t->dtype);
    int64_t begin;
    snug_tensor_stored(program, t, &begin);
    const int64_t offset = t->offset + (first - begin) * size;
    if (t->offloaded) return snug_backing_read(program->ctx, &memory->backing, offset, count * size, out);
    if (memory->copy) return memory->copy(program->ctx, out, memory->arena + offset, count * size);
    memcpy(out, memory->arena + offset, (size_t)(count * size));
    return SNUG_OK;
}

snug_status snug_tensor_write(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                              int64_t first, int64_t count, const void *values) {
    const struct snug_tensor *t = &program->tensors[tensor];
    const int64_t size = snug_dtype_size(t->dtype);
    int64_t begin;
    const int64_t end = snug_tensor_stored(program, t, &begin) + begin;
    if (t->shards.chunk)
        *memory->written = XXH3_64bits_withSeed(values, (size_t)(count * size), *memory->written + (uint64_t)first);
    if (first < begin) { /* other ranks have the elements before the shard, and after it */
        values = (const char *)values + (begin - first) * size;
        count -= begin - first;
        first = begin;
    }
    if (count > end - first) count = end - first;
    if (count <= 0) return SNUG_OK;
    const int64_t offset = t->offset + (first - begin) * size;
    if (t->offloaded) return snug_backing_write(program->ctx, &memory->backing, offset, count * size, values);
    if (memory->copy) return memory->copy(program->ctx, memory->arena + offset, values, count * size);
    memcpy(memory->arena + offset, values, (size_t)(count * size));
    return SNUG_OK;
}

void *snug_tensor_in_place(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                           int64_t first) {
    const struct snug_tensor *t = &program->tensors[tensor];
    if (t->shards.chunk || t->offloaded || memory->copy) return NULL;
    return memory->arena + t->offset + first * snug_dtype_size(t->dtype);
}

void snug_program_free(struct snug_program *program) {
    free(program->tensors);
    free(program->ops);
    free(program->parameters);
    free(program->rotations);
    *program = (struct snug_program){0};
}
