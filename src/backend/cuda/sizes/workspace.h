/* SPDX-License-Identifier: Apache-2.0 */
/* The scratch of all operations, at a program's capacity. */
#ifndef SNUG_BACKEND_CUDA_SIZES_WORKSPACE_H
#define SNUG_BACKEND_CUDA_SIZES_WORKSPACE_H

#include "backend/cuda/sizes/constants.h"
#include "program/program.h"

/* Which operands of a matmul are c, a and b. */
struct snug_cuda_roles {
    int32_t c, a, b;
};
struct snug_cuda_roles snug_cuda_roles_of(const struct snug_op *op);

/* struct snug_backend's workspace; wgmma: of GPUs that have matmuls of four warps. */
int64_t snug_cuda_workspace(const struct snug_program *program, const struct snug_op *op, int threads);
int64_t snug_cuda_wgmma_workspace(const struct snug_program *program, const struct snug_op *op, int threads);

#endif
