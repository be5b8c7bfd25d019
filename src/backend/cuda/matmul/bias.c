/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/matmul/bias.h"

#include "backend/cuda/state.h"

const void *snug_cuda_bias(const struct snug_run *run, int32_t bias) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t from = run->program->tensors[bias].offset;
    for (int32_t i = 0; i < cuda->bias_count; i++)
        if (cuda->biases[i].from == from) return cuda->batch.biases + cuda->biases[i].to;
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
