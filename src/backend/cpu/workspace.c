/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/workspace.h"

/* Keys transposed, values; queries, products; scores, two masks. */
int64_t snug_cpu_attention_floats(int64_t longest, int64_t d) {
    int64_t keys = snug_cpu_key_stride(longest), channels = snug_cpu_padded(d);
    return channels * keys + keys * channels + 2 * SNUG_CPU_QUERIES * channels + (SNUG_CPU_QUERIES + 2) * keys;
}

/* Keys and values transposed; keys, their gradients, the values' gradients; queries, output gradients, products;
   scores, their gradients, two masks, a row. */
int64_t snug_cpu_attention_backward_floats(int64_t longest, int64_t d) {
    int64_t keys = snug_cpu_key_stride(longest), channels = snug_cpu_padded(d);
    return 2 * channels * keys + 3 * keys * channels + 3 * SNUG_CPU_QUERIES * channels +
           (2 * SNUG_CPU_QUERIES + 3) * keys;
}

int64_t snug_cpu_workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    const int64_t size = sizeof(float);
    const struct snug_tensor *first = op->in[0] < 0 ? NULL : &program->tensors[op->in[0]];

    switch (op->kind) {
    case SNUG_OP_EMBED:
    case SNUG_OP_RESIDUAL_NORM:
    case SNUG_OP_NORM: return size * threads * 2 * snug_cpu_padded(first->cols);
    case SNUG_OP_DROPOUT: return size * threads * snug_cpu_padded(first->cols);
    case SNUG_OP_EMBED_BACKWARD:
    case SNUG_OP_NORM_BACKWARD: return size * (threads * 3 + SNUG_CPU_BLOCKS * 2) * snug_cpu_padded(first->cols);
    case SNUG_OP_ATTENTION:
        return size * threads * snug_cpu_attention_floats(program->longest, first->cols / 3 / op->heads);
    case SNUG_OP_ATTENTION_BACKWARD:
        return size * threads * snug_cpu_attention_backward_floats(program->longest, first->cols / op->heads);
    case SNUG_OP_LOSS: return (int64_t)sizeof(double) * program->capacity[SNUG_EXTENT_ROWS];
    default: return 0;
    }
}
