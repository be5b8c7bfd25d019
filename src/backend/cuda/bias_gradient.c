/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bias's gradient is the column sums of dy, for which LINEAR_DW would have to read dy once more. Where the operation
 * that writes dy has its columns in registers, it sums them in passing and writes db instead of LINEAR_DW, which
 * follows in the same phase. The gradient must be persistent: the memory of a transient gradient is allocated from
 * LINEAR_DW on only.
 */
#include "backend/cuda/bias.h"

#include "backend/cuda/state.h"

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

bool snug_cuda_bias_gradient_is_done(const struct snug_run *run, const struct snug_op *op) {
    const struct snug_program *program = run->program;
    if (!snug_cuda_of(run)->padded) return false;
    for (const struct snug_op *before = op; before-- > program->ops && before->phase == op->phase;)
        if (snug_op_writes(before, op->linear_dw.dy)) return snug_cuda_bias_gradient_of(program, before) == op;
    return false;
}

float *snug_cuda_bias_gradient_output(const struct snug_run *run, const struct snug_op *op, bool *overwrite) {
    const struct snug_op *linear = snug_cuda_of(run)->padded ? snug_cuda_bias_gradient_of(run->program, op) : NULL;
    *overwrite = linear && snug_run_overwrites(run, linear);
    return linear ? (float *)snug_run_data(run, linear->linear_dw.db) : NULL;
}
