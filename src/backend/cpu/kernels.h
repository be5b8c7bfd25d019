/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of one instruction set. Every file here but cpu.c, gemm.c, updates.c and workspace.c is compiled once for
 * each instruction set, with SNUG_ISA set to its name. SNUG_KERNEL() names the external functions of such a file, so
 * that the variants do not clash.
 */
#ifndef SNUG_BACKEND_CPU_KERNELS_H
#define SNUG_BACKEND_CPU_KERNELS_H

#include "backend/backend.h"

#define SNUG_KERNEL_PASTE(name, isa) snug_##name##_##isa
#define SNUG_KERNEL_EXPAND(name, isa) SNUG_KERNEL_PASTE(name, isa)
#define SNUG_KERNEL(name) SNUG_KERNEL_EXPAND(name, SNUG_ISA)

#define SNUG_PROTOTYPE(KIND, name, member) snug_op_fn SNUG_KERNEL(name);
SNUG_OPS_COMMON(SNUG_PROTOTYPE)
SNUG_OPS_LAZY_ROWS(SNUG_PROTOTYPE)
SNUG_OPS_GENERATION(SNUG_PROTOTYPE)
#undef SNUG_PROTOTYPE

/* Rotates q and k of CACHE_ROWS, whose workspace is that of ROTATE. */
void SNUG_KERNEL(rotate_new_rows)(struct snug_run *run, const struct snug_cache_rows *c);

/* Bytes of scratch of the operations that need some. */
typedef int64_t snug_workspace_fn(const struct snug_program *program, const struct snug_op *op, int threads);
snug_workspace_fn SNUG_KERNEL(linear_workspace), SNUG_KERNEL(linear_dx_workspace), SNUG_KERNEL(linear_dw_workspace);
snug_workspace_fn SNUG_KERNEL(squared_norm_workspace);
snug_workspace_fn SNUG_KERNEL(lazy_adam_workspace);
snug_workspace_fn SNUG_KERNEL(adafactor_workspace);

#endif
