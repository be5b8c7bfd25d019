/* SPDX-License-Identifier: Apache-2.0 */
/* The table of one instruction set. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/workspace.h"
#include "backend/host.h"

static int64_t workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    switch (op->kind) {
    case SNUG_OP_LINEAR: return SNUG_KERNEL(linear_workspace)(program, op, threads);
    case SNUG_OP_LINEAR_DX: return SNUG_KERNEL(linear_dx_workspace)(program, op, threads);
    case SNUG_OP_LINEAR_DW: return SNUG_KERNEL(linear_dw_workspace)(program, op, threads);
    case SNUG_OP_SQUARED_NORM: return SNUG_KERNEL(squared_norm_workspace)(program, op, threads);
    case SNUG_OP_ADAM_ROWS:
    case SNUG_OP_LAZY_UPDATE: return SNUG_KERNEL(lazy_adam_workspace)(program, op, threads);
    case SNUG_OP_SUM_RANKS: return snug_host_ranks_workspace(program, op);
    case SNUG_OP_ADAFACTOR: return SNUG_KERNEL(adafactor_workspace)(program, op, threads);
    default: return snug_cpu_workspace(program, op, threads);
    }
}

const struct snug_backend SNUG_KERNEL(backend_cpu) = {
    .name = "cpu",
    .loss_positions = 128,
    .independent_rows = SNUG_CPU_FEW_ROWS,
    .independent_low_rows = SNUG_CPU_FEW_LOW_ROWS,
    .prompt_tokens = 512,
    .allocate = snug_host_allocate,
    .batch = snug_host_batch,
    .load = snug_host_load,
    .begin = snug_host_begin,
    .end = snug_host_end,
    .open = snug_cpu_open,
    .close = snug_cpu_close,
    .library = snug_cpu_library,
    .workspace = workspace,
    .lazy_rows = true,
    .copying = SNUG_HOST_COPYING,
    .ops =
        {
#define SNUG_ENTRY(KIND, name, member) [SNUG_OP_##KIND] = SNUG_KERNEL(name),
            SNUG_OPS_COMMON(SNUG_ENTRY) SNUG_OPS_LAZY_ROWS(SNUG_ENTRY) SNUG_OPS_GENERATION(SNUG_ENTRY)
#undef SNUG_ENTRY
                SNUG_OPS_RANKS(SNUG_HOST_ENTRY) SNUG_OPS_OFFLOAD(SNUG_HOST_ENTRY)},
};
