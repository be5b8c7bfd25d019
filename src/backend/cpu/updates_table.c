/* SPDX-License-Identifier: Apache-2.0 */
/* The updates of one instruction set. */
#include "backend/cpu/updates.h"

#include "backend/cpu/kernels.h"

static int64_t workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    return op->kind == SNUG_OP_ADAFACTOR ? SNUG_KERNEL(adafactor_workspace)(program, op, threads) : 0;
}

const struct snug_backend SNUG_KERNEL(backend_updates) = {
    .name = "cpu",
    .open = snug_cpu_updates_open,
    .close = snug_cpu_updates_close,
    .workspace = workspace,
    .ops =
        {
#define SNUG_ENTRY(KIND, name, member) [SNUG_OP_##KIND] = SNUG_KERNEL(name),
            SNUG_OPTIMIZERS(SNUG_ENTRY)
#undef SNUG_ENTRY
        },
};
