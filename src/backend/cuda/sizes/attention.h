/* SPDX-License-Identifier: Apache-2.0 */
/* The scratch of attention, as its kernels lay it out. */
#ifndef SNUG_BACKEND_CUDA_SIZES_ATTENTION_H
#define SNUG_BACKEND_CUDA_SIZES_ATTENTION_H

#include "backend/cuda/sizes/constants.h"
#include "program/program.h"

/* The biases by distance, before the kernels' scratch. */
int64_t snug_cuda_attention_bias_bytes(const struct snug_op *op);
/* The same, of the row of position keys and queries of each distance; 0 without these. */
int64_t snug_cuda_attention_position_bytes(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_attention_workspace(const struct snug_program *program, const struct snug_op *op);
int64_t snug_cuda_attention_backward_workspace(const struct snug_program *program, const struct snug_op *op);

/*
 * cached_attention.cu: a block has `rows` query heads of one key/value head, with `lanes` lanes of 8 channels for each
 * key. In a step of one token for each sequence several blocks share the keys of a sequence, and leave a sum for each
 * row, with its maximum and total.
 */
static inline int snug_cuda_cached_rows(int64_t most) { return most == 1 ? 1 : most <= 4 ? 4 : 8; }
static inline int snug_cuda_cached_lanes(int head_dim) { return head_dim <= 64 ? 8 : head_dim <= 128 ? 16 : 32; }
int64_t snug_cuda_cached_attention_workspace(const struct snug_program *program, const struct snug_op *op);

/* Whether attention_wgmma_long.cu computes it on a GPU that has its matmuls, unless attention_wgmma_backward.cu does:
   both need a value or two per query and head alone, as much as attention_mma_backward.cu does besides its sums. */
bool snug_cuda_takes_long_attention(const struct snug_program *program, const struct snug_op *op);

/* attention_mma_backward.cu: a value per query and head, then sums of dq; wide: with operands of 32 bits, d: channels
   of a tile. */
int64_t snug_cuda_mma_row_bytes(const struct snug_program *program, int heads);
int64_t snug_cuda_mma_sum_bytes(const struct snug_program *program, bool wide, int d, int heads, int kv_heads);
/* Tiles of all sequences: the last tile of each may be partial. */
static inline int64_t snug_cuda_mma_tiles(bool wide, int64_t tokens, int64_t sequences) {
    return tokens / SNUG_CUDA_MMA_QUERIES(wide) + sequences + 1;
}

/* attention_bias.cu: delta, then partial sums of the biases' gradient, of tiles of `side` queries. */
int64_t snug_cuda_dbias_delta_bytes(const struct snug_program *program, int heads);
static inline int64_t snug_cuda_dbias_parts(int64_t tokens, int64_t sequences, int side) {
    return tokens / side + sequences;
}

#endif
