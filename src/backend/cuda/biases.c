/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Biases in the type of the outputs that they are added to, as the matmuls' epilogue requires: one launch converts all
 * of a program when FORWARD begins. They do not change until BACKWARD, which recomputes outputs with the same ones.
 */
#include "backend/cuda/bias.h"

#include "backend/cuda/state.h"

/* The bias that op's matmul needs converted, or 0: F32 logits of 16-bit operands get their bias in a kernel. */
static int32_t bias_of(const struct snug_program *program, const struct snug_op *op) {
    if (op->kind != SNUG_OP_LINEAR || !program->tensors[op->linear.b].persistent) return 0; /* none, or offloaded */
    const enum snug_dtype type = program->tensors[op->linear.y].dtype;
    return type != SNUG_F32 && type == program->tensors[op->linear.x].dtype ? op->linear.b : 0;
}

static bool is_listed(const struct snug_cuda_bias *list, int32_t count, int64_t from) {
    for (int32_t i = 0; i < count; i++)
        if (list[i].from == from) return true;
    return false;
}

int32_t snug_cuda_list_biases(const struct snug_program *program, struct snug_cuda_bias *list, int32_t most) {
    int32_t count = 0;
    int64_t to = 0;
    for (size_t i = 0; i < program->op_count && count < most; i++) {
        const int32_t bias = bias_of(program, &program->ops[i]);
        if (bias == 0 || is_listed(list, count, program->tensors[bias].offset)) continue;
        const struct snug_tensor *t = &program->tensors[bias];
        list[count] = (struct snug_cuda_bias){.from = t->offset, .to = to, .count = t->rows * t->cols};
        to += (list[count++].count * 2 + 255) / 256 * 256;
    }
    return count;
}

int32_t snug_cuda_count_biases(const struct snug_program *program, int64_t *bytes) {
    int32_t count = 0;
    *bytes = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const int32_t bias = bias_of(program, &program->ops[i]);
        if (bias == 0) continue;
        count++; /* at most: a recomputed layer has its biases twice */
        *bytes += (program->tensors[bias].rows * program->tensors[bias].cols * 2 + 255) / 256 * 256;
    }
    return count;
}

const void *snug_cuda_bias(const struct snug_run *run, int32_t bias) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t from = run->program->tensors[bias].offset;
    for (int32_t i = 0; i < cuda->bias_count; i++)
        if (cuda->biases[i].from == from) return cuda->batch.biases + cuda->biases[i].to;
    return NULL;
}
