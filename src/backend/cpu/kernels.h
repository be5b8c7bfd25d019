/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of one instruction set. Every file here but codes.c, cpu.c, products.c and workspace.c is compiled once
 * for each, with SNUG_ISA set to its name; what such a file shows to others is named by SNUG_KERNEL, so that the
 * variants do not clash.
 */
#ifndef SNUG_BACKEND_CPU_KERNELS_H
#define SNUG_BACKEND_CPU_KERNELS_H

#include "backend/backend.h"

#define SNUG_KERNEL_PASTE(name, isa) snug_##name##_##isa
#define SNUG_KERNEL_EXPAND(name, isa) SNUG_KERNEL_PASTE(name, isa)
#define SNUG_KERNEL(name) SNUG_KERNEL_EXPAND(name, SNUG_ISA)

snug_op_fn SNUG_KERNEL(embed), SNUG_KERNEL(embed_backward);
snug_op_fn SNUG_KERNEL(linear), SNUG_KERNEL(linear_dx), SNUG_KERNEL(linear_dw);
snug_op_fn SNUG_KERNEL(attention), SNUG_KERNEL(attention_backward);
snug_op_fn SNUG_KERNEL(residual_norm), SNUG_KERNEL(norm), SNUG_KERNEL(norm_backward);
snug_op_fn SNUG_KERNEL(activation), SNUG_KERNEL(activation_backward);
snug_op_fn SNUG_KERNEL(dropout);
snug_op_fn SNUG_KERNEL(gather), SNUG_KERNEL(gather_backward);
snug_op_fn SNUG_KERNEL(loss);
snug_op_fn SNUG_KERNEL(fill);
snug_op_fn SNUG_KERNEL(squared_norm), SNUG_KERNEL(clip), SNUG_KERNEL(adam), SNUG_KERNEL(adam_8bit);
snug_op_fn SNUG_KERNEL(rows_begin), SNUG_KERNEL(catch_up), SNUG_KERNEL(settle), SNUG_KERNEL(adam_rows);
snug_op_fn SNUG_KERNEL(sgd), SNUG_KERNEL(adafactor), SNUG_KERNEL(adagrad), SNUG_KERNEL(rmsprop), SNUG_KERNEL(lion);
snug_op_fn SNUG_KERNEL(cast);

/* Bytes of scratch of those that need some. */
typedef int64_t snug_workspace_fn(const struct snug_program *program, const struct snug_op *op, int threads);
snug_workspace_fn SNUG_KERNEL(linear_workspace);
snug_workspace_fn SNUG_KERNEL(squared_norm_workspace);
snug_workspace_fn SNUG_KERNEL(adam_rows_workspace);
snug_workspace_fn SNUG_KERNEL(adafactor_workspace);

#endif
