/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which biases are converted to 16 bits, and which operations compute a bias's gradient as a by-product.
 *
 * Biases in the type of the outputs that they are added to, as the matmuls' epilogue requires: one launch converts all
 * of a program when FORWARD begins. They do not change until BACKWARD, which recomputes outputs with the same ones.
 *
 * A bias's gradient is the column sums of dy, for which LINEAR_DW would have to read dy once more. Where the operation
 * that writes dy has its columns in registers, it sums them as a by-product and writes db instead of LINEAR_DW, which
 * follows in the same phase. The gradient must be persistent: the memory of a transient gradient is allocated from
 * LINEAR_DW on only.
 */
#ifndef SNUG_BACKEND_CUDA_SIZES_BIAS_H
#define SNUG_BACKEND_CUDA_SIZES_BIAS_H

#include "program/program.h"

/* from: offset in the arena; to: offset in the batch's biases. */
struct snug_cuda_bias {
    int64_t from, to, count;
};

/* Writes at most `most` of the biases that matmuls need in 16 bits to list; returns their number. */
int32_t snug_cuda_list_biases(const struct snug_program *program, struct snug_cuda_bias *list, int32_t most);
/* An upper bound of their number, and of their bytes. */
int32_t snug_cuda_count_biases(const struct snug_program *program, int64_t *bytes);

/* The LINEAR_DW whose db op computes as a by-product; NULL: none. */
const struct snug_op *snug_cuda_bias_gradient_of(const struct snug_program *program, const struct snug_op *op);

#endif
