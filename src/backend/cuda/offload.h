/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of offloaded tensors, see offload.c. */
#ifndef SNUG_BACKEND_CUDA_OFFLOAD_H
#define SNUG_BACKEND_CUDA_OFFLOAD_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "core/block.h"
#include "program/program.h"

struct snug_cuda;
struct snug_run;

struct snug_cuda_copied {
    cudaEvent_t done; /* NULL: the tensor is no staging buffer */
    bool awaited;     /* no operation has waited for it */
};

/* Part of a program's state; all zeros where nothing is offloaded. */
struct snug_cuda_offload {
    /* Of the copies to the device and from the device; [1]: of those that cross phases, behind which others must not
     * wait. */
    cudaStream_t stream[2][2];
    struct snug_cuda_copied *copied; /* by tensor: the last copy of this staging buffer */
    size_t count;
    cudaEvent_t ready; /* what a copy waits for */
};

/* A zeroed, page-locked block of host memory. */
snug_status snug_cuda_allocate_backing(snug_context *ctx, int64_t bytes, struct snug_block *out);
snug_status snug_cuda_open_offload(snug_context *ctx, const struct snug_program *program, struct snug_cuda *cuda);
/* Makes later operations wait for all copies that no operation has waited for: those that cross phases. */
snug_status snug_cuda_await_copies(struct snug_run *run);
void snug_cuda_close_offload(struct snug_cuda *cuda);

#endif
