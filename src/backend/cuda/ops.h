/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the CUDA backend, and the scratch that they need at a program's capacity. */
#ifndef SNUG_BACKEND_CUDA_OPS_H
#define SNUG_BACKEND_CUDA_OPS_H

#include "backend/backend.h"

#define SNUG_CUDA_OPS(X) SNUG_OPS_COMMON(X) SNUG_OPS_LOSS_SCALING(X) SNUG_OPS_OFFLOAD(X)

#define SNUG_CUDA_FUNCTION(KIND, name, member) snug_op_fn snug_cuda_##name;
SNUG_CUDA_OPS(SNUG_CUDA_FUNCTION)
#undef SNUG_CUDA_FUNCTION

int64_t snug_cuda_linear_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_norm_backward_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_activation_backward_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_embed_backward_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_attention_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_attention_backward_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_loss_workspace(const struct snug_program *program);
int64_t snug_cuda_squared_norm_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_adafactor_workspace(const struct snug_program *program, const struct snug_op *op);

#endif
