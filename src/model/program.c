/* SPDX-License-Identifier: Apache-2.0 */
#include "model/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void snug_program_init(struct snug_program *program, snug_context *ctx) {
    *program = (struct snug_program){.ctx = ctx, .logits = -1, .loss = -1, .clip = -1};
}

snug_status snug_program_tensor(struct snug_program *program, struct snug_tensor like, int32_t *out, const char *name,
                                ...) {
    va_list args;
    va_start(args, name);
    int length = vsnprintf(like.name, sizeof like.name, name, args); /* of names that growing may move */
    va_end(args);
    if ((size_t)length >= sizeof like.name)
        return snug_fail(program->ctx, SNUG_E_INTERNAL, "tensor name %s… is too long", like.name);
    RETURN_IF_ERROR(snug_grow(program->ctx, (void **)&program->tensors, &program->tensor_capacity,
                              program->tensor_count + 1, sizeof *program->tensors));
    *out = (int32_t)program->tensor_count++;
    program->tensors[*out] = like;
    return SNUG_OK;
}

snug_status snug_program_op(struct snug_program *program, struct snug_op op) {
    RETURN_IF_ERROR(snug_grow(program->ctx, (void **)&program->ops, &program->op_capacity, program->op_count + 1,
                              sizeof *program->ops));
    program->ops[program->op_count++] = op;
    return SNUG_OK;
}

snug_status snug_tensor_read(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                             int64_t first, int64_t count, void *out) {
    const struct snug_tensor *t = &program->tensors[tensor];
    const int64_t size = snug_dtype_size(t->dtype), offset = t->offset + first * size;
    if (t->offloaded)
        return snug_spool_wait(program->ctx, memory->spool, snug_spool_fetch(memory->spool, out, offset, count * size));
    if (memory->copy) return memory->copy(program->ctx, out, memory->arena + offset, count * size);
    memcpy(out, memory->arena + offset, (size_t)(count * size));
    return SNUG_OK;
}

snug_status snug_tensor_write(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                              int64_t first, int64_t count, const void *values) {
    const struct snug_tensor *t = &program->tensors[tensor];
    const int64_t size = snug_dtype_size(t->dtype), offset = t->offset + first * size;
    if (t->offloaded)
        return snug_spool_wait(program->ctx, memory->spool,
                               snug_spool_store(memory->spool, values, offset, count * size));
    if (memory->copy) return memory->copy(program->ctx, memory->arena + offset, values, count * size);
    memcpy(memory->arena + offset, values, (size_t)(count * size));
    return SNUG_OK;
}

void snug_program_free(struct snug_program *program) {
    free(program->tensors);
    free(program->ops);
    free(program->parameters);
    *program = (struct snug_program){0};
}
