/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of offloaded tensors, see offload.c. */
#ifndef SNUG_BACKEND_CUDA_OFFLOAD_H
#define SNUG_BACKEND_CUDA_OFFLOAD_H

#include <cuda_runtime_api.h>

#include "core/block.h"
#include "program/program.h"

struct snug_cuda;

/* Part of a program's state; all zeros where nothing is offloaded. */
struct snug_cuda_offload {
    cudaStream_t stream[2]; /* of the copies to the device, from the device */
    cudaEvent_t *copied;    /* by tensor: the last copy of this staging buffer is done */
    size_t count;
    cudaEvent_t ready; /* what a copy waits for */
};

/* A zeroed, page-locked block of host memory. */
snug_status snug_cuda_allocate_backing(snug_context *ctx, int64_t bytes, struct snug_block *out);
snug_status snug_cuda_open_offload(snug_context *ctx, const struct snug_program *program, struct snug_cuda *cuda);
void snug_cuda_close_offload(struct snug_cuda *cuda);

#endif
