/* SPDX-License-Identifier: Apache-2.0 */
/* The table of one instruction set. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/workspace.h"
#include "backend/host.h"

static int64_t workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    switch (op->kind) {
    case SNUG_OP_LINEAR:
    case SNUG_OP_LINEAR_DX:
    case SNUG_OP_LINEAR_DW: return SNUG_KERNEL(linear_workspace)(program, op, threads);
    case SNUG_OP_SQUARED_NORM: return SNUG_KERNEL(squared_norm_workspace)(program, op, threads);
    case SNUG_OP_ADAM_ROWS:
    case SNUG_OP_CATCH_UP:
    case SNUG_OP_SETTLE: return SNUG_KERNEL(adam_rows_workspace)(program, op, threads);
    case SNUG_OP_ADAFACTOR: return SNUG_KERNEL(adafactor_workspace)(program, op, threads);
    default: return snug_cpu_workspace(program, op, threads);
    }
}

const struct snug_backend SNUG_KERNEL(backend_cpu) = {
    .name = "cpu",
    .head_rows = 128,
    .allocate = snug_host_allocate,
    .batch = snug_host_batch,
    .load = snug_host_load,
    .begin = snug_host_begin,
    .end = snug_host_end,
    .open = snug_cpu_open,
    .close = snug_cpu_close,
    .library = snug_cpu_library,
    .workspace = workspace,
    .ops = {[SNUG_OP_EMBED] = SNUG_KERNEL(embed),
            [SNUG_OP_LINEAR] = SNUG_KERNEL(linear),
            [SNUG_OP_ATTENTION] = SNUG_KERNEL(attention),
            [SNUG_OP_RESIDUAL_NORM] = SNUG_KERNEL(residual_norm),
            [SNUG_OP_NORM] = SNUG_KERNEL(norm),
            [SNUG_OP_ACTIVATION] = SNUG_KERNEL(activation),
            [SNUG_OP_DROPOUT] = SNUG_KERNEL(dropout),
            [SNUG_OP_GATHER] = SNUG_KERNEL(gather),
            [SNUG_OP_LOSS] = SNUG_KERNEL(loss),
            [SNUG_OP_FILL] = SNUG_KERNEL(fill),
            [SNUG_OP_EMBED_BACKWARD] = SNUG_KERNEL(embed_backward),
            [SNUG_OP_LINEAR_DX] = SNUG_KERNEL(linear_dx),
            [SNUG_OP_LINEAR_DW] = SNUG_KERNEL(linear_dw),
            [SNUG_OP_ATTENTION_BACKWARD] = SNUG_KERNEL(attention_backward),
            [SNUG_OP_NORM_BACKWARD] = SNUG_KERNEL(norm_backward),
            [SNUG_OP_ACTIVATION_BACKWARD] = SNUG_KERNEL(activation_backward),
            [SNUG_OP_GATHER_BACKWARD] = SNUG_KERNEL(gather_backward),
            [SNUG_OP_SQUARED_NORM] = SNUG_KERNEL(squared_norm),
            [SNUG_OP_CLIP] = SNUG_KERNEL(clip),
            [SNUG_OP_ADAM] = SNUG_KERNEL(adam),
            [SNUG_OP_ADAM_ROWS] = SNUG_KERNEL(adam_rows),
            [SNUG_OP_CATCH_UP] = SNUG_KERNEL(catch_up),
            [SNUG_OP_SETTLE] = SNUG_KERNEL(settle),
            [SNUG_OP_ROWS_BEGIN] = SNUG_KERNEL(rows_begin),
            [SNUG_OP_SGD] = SNUG_KERNEL(sgd),
            [SNUG_OP_ADAFACTOR] = SNUG_KERNEL(adafactor),
            [SNUG_OP_ADAGRAD] = SNUG_KERNEL(adagrad),
            [SNUG_OP_RMSPROP] = SNUG_KERNEL(rmsprop),
            [SNUG_OP_LION] = SNUG_KERNEL(lion),
            [SNUG_OP_ADAM_8BIT] = SNUG_KERNEL(adam_8bit),
            [SNUG_OP_CAST] = SNUG_KERNEL(cast),
            [SNUG_OP_FETCH] = snug_host_fetch,
            [SNUG_OP_STORE] = snug_host_store,
            [SNUG_OP_WAIT] = snug_host_wait},
};
