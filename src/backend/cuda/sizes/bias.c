/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/sizes/bias.h"

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

/* ---- gradients ---- */

/* The tensor that op writes and whose columns it can sum; 0: none. */
static int32_t summed_output(const struct snug_op *op) {
    if (op->kind == SNUG_OP_ACTIVATION_BACKWARD) return op->activation_backward.du;
    if (op->kind != SNUG_OP_NORM_BACKWARD) return 0;
    return op->norm_backward.dz ? op->norm_backward.dz : op->norm_backward.ds;
}

/* Whether an operation after `from` and before `to` writes or reads tensor. */
static bool is_touched(const struct snug_op *from, const struct snug_op *to, int32_t tensor) {
    for (const struct snug_op *op = from + 1; op < to; op++)
        if (snug_op_writes(op, tensor) || snug_op_uses(op, tensor)) return true;
    return false;
}

const struct snug_op *snug_cuda_bias_gradient_of(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_op *end = program->ops + program->op_count;
    const int32_t dy = summed_output(op);
    if (dy == 0) return NULL;
    for (const struct snug_op *next = op + 1; next < end && next->phase == op->phase; next++) {
        if (next->kind == SNUG_OP_LINEAR_DW && next->linear_dw.dy == dy && next->linear_dw.db) {
            const int32_t db = next->linear_dw.db;
            return program->tensors[db].persistent && !is_touched(op, next, db) ? next : NULL;
        }
        if (snug_op_writes(next, dy)) return NULL;
    }
    return NULL;
}
