/* SPDX-License-Identifier: Apache-2.0 */
/* How the sums over GPUs are cut: see backend/cuda/ranks/collectives.c. */
#ifndef SNUG_BACKEND_CUDA_SIZES_RANKS_H
#define SNUG_BACKEND_CUDA_SIZES_RANKS_H

#include "backend/backend.h"

/* Bytes of the buffer for what other ranks send: 0 for one rank. An eighth of the gradients, so that the sums of most
   of them run during backward, and at most 32 MiB: half of it is long enough for the full bandwidth. */
int64_t snug_cuda_received_bytes(const struct snug_program *program);

#endif
