/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels are compiled with and the sizes of their scratch depend on. */
#ifndef SNUG_BACKEND_CUDA_SIZES_CONSTANTS_H
#define SNUG_BACKEND_CUDA_SIZES_CONSTANTS_H

#include <stdint.h>

static inline int64_t snug_cuda_round_up(int64_t rows, int64_t tile) { return (rows + tile - 1) / tile * tile; }

enum {
    /* Partial sums of columns: of a bias's gradient in LINEAR_DW; at most, in ACTIVATION_BACKWARD and NORM_BACKWARD; of
       the types' gradients in EMBED_BACKWARD. */
    SNUG_CUDA_BIAS_PARTS = 64,
    SNUG_CUDA_ACTIVATION_PARTS = 1024,
    SNUG_CUDA_NORM_PARTS = 1024,
    SNUG_CUDA_TYPE_PARTS = 512,
    SNUG_CUDA_ACTIVATION_THREADS = 256, /* of a block, with at most 8 columns each */
};

/* The workspace of LINEAR, LINEAR_DX and LINEAR_DW: cuBLASLt's; then, for the first two, a bias and a tile of the
   weight, converted to another type; for the last, partial sums of db. */
#ifndef SNUG_CUDA_MATMUL_WORKSPACE /* the emulator's is smaller, since filling it takes time */
#define SNUG_CUDA_MATMUL_WORKSPACE ((int64_t)32 << 20)
#endif
#define SNUG_CUDA_CONVERTED ((int64_t)4 << 20) /* values in a tile */
static inline int64_t snug_cuda_bias_bytes(int64_t n) { return (n * 4 + 255) / 256 * 256; }

/* Attention: distances from FARTHEST on have the same bias. */
enum { SNUG_CUDA_FARTHEST = 128, SNUG_CUDA_DISTANCES = 2 * SNUG_CUDA_FARTHEST + 1 };
/* Queries of a tile of the biases' gradient for heads of d channels, at least. */
#define SNUG_CUDA_DBIAS_LEAST_SIDE(d) ((d) > 128 ? 16 : 32)
/* Channels of a tile of attention_mma.cu for heads of d channels; 0: it does not support them. */
#define SNUG_CUDA_MMA_WIDTH(d)                                                                                         \
    ((d) < 32 || (d) % 16 || (d) > 256 ? 0 : (d) > 128 ? 256 : (d) > 64 ? 128 : (d) > 32 ? 64 : 32)
/* The sizes of a block of attention_mma_backward.cu for tiles of d channels; wide: with operands of 32 bits. */
#define SNUG_CUDA_MMA_WARPS(wide, d) ((d) >= 128 || ((wide) && (d) == 32) ? 2 : 4)
#define SNUG_CUDA_MMA_KEYS(wide, d) (32 * SNUG_CUDA_MMA_WARPS(wide, d))
#define SNUG_CUDA_MMA_QUERIES(wide) ((wide) ? 16 : 32)
/* Bytes per query and head: lse, delta, random numbers. */
enum { SNUG_CUDA_MMA_ROW = 16 };

/* Blocks among which cached_attention.cu divides the keys of few sequences. */
#define SNUG_CUDA_CACHED_BLOCKS 256

/* Blocks among which matmul/streamed.cu divides the channels of a weight of few rows: two of each of an H100's
   multiprocessors. */
#define SNUG_CUDA_STREAMED_BLOCKS 264

/* Vectors that vector_loss.cu compares with all others at a time: enough blocks for a GPU. */
#ifndef SNUG_CUDA_LOSS_ROWS /* the emulator's is smaller: its losses have several blocks, too */
#define SNUG_CUDA_LOSS_ROWS 1024
#endif

/* Columns of logits from which a block of top.cu chooses. */
#define SNUG_CUDA_TOP_PART 2048

/* Each stream of copies has its own bounce buffers, of which one is read or written by the offload file while another
   one is transferred. A piece is large enough that the constant time of its transfer and of its host function is small
   beside the disk's. */
#define SNUG_CUDA_COPY_STREAMS 4
#define SNUG_CUDA_BOUNCE_BUFFERS 2
#ifndef SNUG_CUDA_PIECE /* the emulator's is smaller: its tensors have several pieces, too */
#define SNUG_CUDA_PIECE (4 << 20)
#endif
#define SNUG_CUDA_BOUNCE_BYTES (SNUG_CUDA_COPY_STREAMS * SNUG_CUDA_BOUNCE_BUFFERS * SNUG_CUDA_PIECE)

#endif
