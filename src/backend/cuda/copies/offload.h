/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of offloaded tensors, see copies.c; and what operations wait for alike, see collectives.c. */
#ifndef SNUG_BACKEND_CUDA_COPIES_OFFLOAD_H
#define SNUG_BACKEND_CUDA_COPIES_OFFLOAD_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#include "backend/cuda/sizes/constants.h"

struct snug_cuda_file_copy;
struct snug_cuda_host_update;
struct snug_cuda_step;

struct snug_cuda_copied {
    cudaEvent_t done;                  /* NULL: the tensor is no staging buffer, and no collective's */
    bool awaited;                      /* no operation has waited for it */
    struct snug_cuda_file_copy *files; /* list of the copies of this staging buffer from and to the offload file */
};

/* Updates on the host, see host_update.c; all NULL if there are none. */
struct snug_cuda_host_updates {
    cudaStream_t stream;
    struct snug_cuda_step *step; /* page-locked: the numbers of the update */
    struct snug_cuda_host_update *updates;
};

/* Part of a program's state; all zeros where operations wait for nothing. */
struct snug_cuda_offload {
    /* For copies to the device and from it; [1]: for copies that cross phases, for which others must not wait. */
    cudaStream_t stream[2][2];
    struct snug_cuda_copied *copied; /* by tensor: the last copy of this staging buffer, or its last collective */
    size_t count;
    cudaEvent_t ready; /* what a copy waits for */
    struct snug_cuda_host_updates host;
};

#endif
