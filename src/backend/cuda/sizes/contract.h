/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan asks of the CUDA backend. The files of this folder use no CUDA: they are part of the plug-in and of the
 * program, so that a plan for a GPU can be made on a machine without one, with the same bytes.
 */
#ifndef SNUG_BACKEND_CUDA_SIZES_CONTRACT_H
#define SNUG_BACKEND_CUDA_SIZES_CONTRACT_H

#include "backend/backend.h"
#include "backend/cuda/sizes/batch.h"
#include "backend/cuda/sizes/constants.h"
#include "backend/cuda/sizes/graph.h"
#include "backend/cuda/sizes/limits.h"
#include "backend/cuda/sizes/workspace.h"

#define SNUG_CUDA_OPS(X)                                                                                               \
    SNUG_OPS_COMMON(X) SNUG_OPS_LOSS_SCALING(X) SNUG_OPS_GENERATION(X) SNUG_OPS_RANKS(X) SNUG_OPS_OFFLOAD(X)

/* Compute capability 7.5, whose blocks have 64 KiB of shared memory. */
enum { SNUG_CUDA_LEAST_CAPABILITY = 75, SNUG_CUDA_LEAST_BLOCK_MEMORY = 64 << 10 };
/* From compute capability 8.0 on GPUs multiply bf16 and TF32; 9.0 has matmuls of four warps. */
enum { SNUG_CUDA_BF16_CAPABILITY = 80, SNUG_CUDA_WGMMA_CAPABILITY = 90 };

/* Backends that differ in what they plan: (generation, whether it lacks bf16, the workspace of its operations). */
#define SNUG_CUDA_GENERATIONS(X)                                                                                       \
    X(SNUG_CUDA_TURING, true, snug_cuda_workspace)                                                                     \
    X(SNUG_CUDA_AMPERE, false, snug_cuda_workspace)                                                                    \
    X(SNUG_CUDA_WGMMA, false, snug_cuda_wgmma_workspace)
#define SNUG_CUDA_GENERATION(name, lacks_bf16, workspace) name,
enum snug_cuda_generation { SNUG_CUDA_GENERATIONS(SNUG_CUDA_GENERATION) };
static inline enum snug_cuda_generation snug_cuda_generation_of(int capability) {
    return capability == SNUG_CUDA_WGMMA_CAPABILITY ? SNUG_CUDA_WGMMA
           : capability < SNUG_CUDA_BF16_CAPABILITY ? SNUG_CUDA_TURING
                                                    : SNUG_CUDA_AMPERE;
}

/* The members of struct snug_backend on which a plan depends. Loss positions: the decoder's gradient is read and
   written once per chunk. A part of 16 MiB in fp32: a copy's fixed time is small beside its transfer. */
#define SNUG_CUDA_PLANNED                                                                                              \
    .name = "cuda", .on_device = true, .asynchronous = true, .updates_on_host = true, .loss_positions = 2048,          \
    .prompt_tokens = 2048, .batch = snug_cuda_batch_bytes, .supports = snug_cuda_supports, .low_logits = true,         \
    .captured = snug_cuda_captured_bytes, .captured_phases = SNUG_CUDA_GRAPHS, .bounce = SNUG_CUDA_BOUNCE_BYTES,       \
    .lazy_rows = false, .scales_loss = true,                                                                           \
    .copying = {                                                                                                       \
        .ahead = 4,                                                                                                    \
        .part = 1 << 22,                                                                                               \
        .least = 1 << 18,                                                                                              \
        .reads_rows = true,                                                                                            \
        .overlaps = true,                                                                                              \
    }

#endif
