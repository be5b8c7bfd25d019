/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes that the kernels support. */
#ifndef SNUG_BACKEND_CUDA_SIZES_LIMITS_H
#define SNUG_BACKEND_CUDA_SIZES_LIMITS_H

#include "program/program.h"

enum {
    SNUG_CUDA_ROW_THREADS = 256,     /* of a block that holds a row in its registers; at most */
    SNUG_CUDA_HEAD_MOST = 256,       /* channels of an attention head */
    SNUG_CUDA_SEQUENCES_MOST = 65535 /* of a batch: a dimension of attention's grid */
};

/* Vectors of 16 bytes that a thread holds of a row of values of this size; and values, where rows are not whole
 * vectors. */
#define SNUG_CUDA_ROW_VECTORS(size) ((size) == 4 ? 4 : 2)
enum { SNUG_CUDA_ROW_VALUES = 8 };

/* The width of the widest row, of values of this size, that the kernels of norms and embeddings take: of rows that are
   whole vectors, as rows of h values are or are not. */
static inline int64_t snug_cuda_row_most(int64_t h, int64_t size) {
    return SNUG_CUDA_ROW_THREADS *
           (h % (16 / size) == 0 ? 16 / size * SNUG_CUDA_ROW_VECTORS(size) : (int64_t)SNUG_CUDA_ROW_VALUES);
}

/* struct snug_backend's supports. */
snug_status snug_cuda_check_sizes(const struct snug_program *program, const struct snug_op *op);

#endif
