/* SPDX-License-Identifier: Apache-2.0 */
/* The scratch of attention, as its kernels lay it out. */
#ifndef SNUG_BACKEND_CUDA_SIZES_ATTENTION_H
#define SNUG_BACKEND_CUDA_SIZES_ATTENTION_H

#include "backend/cuda/sizes/constants.h"
#include "program/program.h"

/* The biases by distance, before the kernels' scratch. */
int64_t snug_cuda_attention_bias_bytes(const struct snug_op *op);
/* All that the next struct describes. */
int64_t snug_cuda_attention_position_bytes(const struct snug_program *program, const struct snug_op *op);

/*
 * Position keys and queries on tensor cores, in attention_positions_mma.cu. Of the tables' rows it uses those of all
 * distances in the longest sequence, which are consecutive. It has a number for each head, token and row, and in the
 * backward pass for each pair, too; in as many passes, each with some heads, as keep them below 256 MiB.
 */
struct snug_cuda_positions {
    int tables;          /* position keys, queries, or both; 0: neither */
    int32_t first, rows; /* used rows */
    int64_t tokens;      /* of a head */
    int64_t stride;      /* of used rows, in elements */
    int64_t others;      /* keys of a query, or queries of a key, in elements */
    int heads;           /* of a pass; 0 where tensor cores do not take their width */
    int parts;           /* of the tokens, in sums over all of them */
    /* The row of each distance, and the distances of each row; then of each table c2p or p2c, and then of each dS, or
       partial sums of the gradients of its rows (0: forward). */
    int64_t distance_bytes, product_bytes, pair_bytes;
};
struct snug_cuda_positions snug_cuda_positions_of(const struct snug_program *program, const struct snug_op *op);
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
