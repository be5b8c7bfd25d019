/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision: activations in the compute type; fp32 master weights with copies of those that products read, or
   bf16 weights without either. */
#include <stdlib.h>

#include "plan/stages.h"

/* The copy of weight in the compute type, made at its first use; the optimizer keeps it up to date. */
static snug_status copy_of(struct snug_program *program, int32_t weight, int32_t *copy) {
    if (*copy) return SNUG_OK;
    struct snug_tensor like = program->tensors[weight];
    like.dtype = program->compute;
    RETURN_IF_ERROR(snug_program_tensor(program, like, copy, "copy.%s", program->tensors[weight].name));
    for (size_t i = 0; i < program->op_count; i++)
        if (snug_is_update(program->ops[i].kind) && program->ops[i].out[0] == weight) program->ops[i].out[1] = *copy;
    return snug_program_op(program, (struct snug_op){.kind = SNUG_OP_CAST,
                                                     .phase = SNUG_PHASE_PREPARE,
                                                     .layer = like.layer,
                                                     .in = SNUG_INPUTS(weight),
                                                     .out = SNUG_OUTPUTS(*copy)});
}

snug_status snug_stage_precision(struct snug_program *program, enum snug_dtype weights) {
    /* Vectors stay: biases and norms are few, and products add them in fp32. */
    for (size_t i = 0; i < program->parameter_count; i++)
        if (program->parameters[i].shape[1]) program->tensors[program->parameters[i].tensor].dtype = weights;
    if (program->compute == SNUG_F32) return SNUG_OK;
    const size_t tensors = program->tensor_count, ops = program->op_count;
    for (size_t i = 0; i < tensors; i++)
        if (program->tensors[i].low_precision) program->tensors[i].dtype = program->compute;
    int32_t *copies;
    RETURN_IF_ERROR(snug_alloc(program->ctx, tensors, sizeof *copies, (void **)&copies));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < ops && status == SNUG_OK; i++) {
        if (program->ops[i].kind != SNUG_OP_LINEAR && program->ops[i].kind != SNUG_OP_LINEAR_DX) continue;
        const int32_t weight = program->ops[i].in[1];
        if (program->tensors[weight].dtype == program->compute) continue;
        status = copy_of(program, weight, &copies[weight]);
        program->ops[i].in[1] = copies[weight];
    }
    free(copies);
    return status;
}
