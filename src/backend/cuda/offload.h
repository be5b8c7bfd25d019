/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of offloaded tensors, see copies.c. */
#ifndef SNUG_BACKEND_CUDA_OFFLOAD_H
#define SNUG_BACKEND_CUDA_OFFLOAD_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* Each stream of copies has its own bounce buffers, of which one is read or written by the offload file while another
   one is transferred. A piece is large enough that the constant time of its transfer and of its host function is small
   beside the disk's. */
#define SNUG_CUDA_COPY_STREAMS 4
#define SNUG_CUDA_BOUNCE_BUFFERS 2
#ifndef SNUG_CUDA_PIECE /* the emulator's is smaller: its tensors have several pieces, too */
#define SNUG_CUDA_PIECE (4 << 20)
#endif
#define SNUG_CUDA_BOUNCE_BYTES (SNUG_CUDA_COPY_STREAMS * SNUG_CUDA_BOUNCE_BUFFERS * SNUG_CUDA_PIECE)

struct snug_cuda_file_copy;

struct snug_cuda_copied {
    cudaEvent_t done;                  /* NULL: the tensor is no staging buffer */
    bool awaited;                      /* no operation has waited for it */
    struct snug_cuda_file_copy *files; /* list of the copies of this staging buffer from and to the offload file */
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

#endif
