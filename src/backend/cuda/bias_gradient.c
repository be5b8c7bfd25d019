/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bias's gradient is the column sums of dy, which LINEAR_DW would have to read once more. Where the operation that
 * writes dy has its columns in registers, it adds them up in passing and writes the gradient for LINEAR_DW, which comes
 * later in the same phase. The gradient must persist, since a transient one has its bytes from LINEAR_DW on only.
 */
#include "backend/cuda/cuda.h"

static bool writes(const struct snug_op *op, int32_t tensor) {
    for (int i = 0; i < SNUG_OP_OUTPUTS; i++)
        if (op->out[i] == tensor) return true;
    return false;
}

/* What op writes of which it can give the column sums, or -1. */
static int32_t summed_output(const struct snug_op *op) {
    if (op->kind == SNUG_OP_ACTIVATION_BACKWARD) return op->out[0];
    return op->kind == SNUG_OP_NORM_BACKWARD ? op->out[op->out[1] >= 0] : -1;
}

const struct snug_op *snug_cuda_bias_of(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_op *end = program->ops + program->op_count;
    const int32_t dy = summed_output(op);
    if (dy < 0) return NULL;
    for (const struct snug_op *next = op + 1; next < end && next->phase == op->phase; next++) {
        if (next->kind == SNUG_OP_LINEAR_DW && next->in[0] == dy)
            return next->out[1] >= 0 && program->tensors[next->out[1]].persistent ? next : NULL;
        if (writes(next, dy)) return NULL;
    }
    return NULL;
}

bool snug_cuda_bias_is_given(const struct snug_run *run, const struct snug_op *op) {
    const struct snug_program *program = run->program;
    if (!snug_cuda_of(run)->padded) return false;
    for (const struct snug_op *before = op; before-- > program->ops && before->phase == op->phase;)
        if (writes(before, op->in[0])) return snug_cuda_bias_of(program, before) == op;
    return false;
}

float *snug_cuda_bias_to_give(const struct snug_run *run, const struct snug_op *op, bool *overwrite) {
    const struct snug_op *linear = snug_cuda_of(run)->padded ? snug_cuda_bias_of(run->program, op) : NULL;
    *overwrite = linear && snug_run_overwrites(run, linear);
    return linear ? (float *)snug_run_data(run, linear->out[1]) : NULL;
}
