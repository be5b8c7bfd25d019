/* SPDX-License-Identifier: Apache-2.0 */
/* Biases in 16 bits (biases.c), and their gradients, which other operations compute in passing (bias_gradient.c). */
#ifndef SNUG_BACKEND_CUDA_BIAS_H
#define SNUG_BACKEND_CUDA_BIAS_H

#include "backend/backend.h"

/* from: offset in the arena; to: offset in the batch's biases. */
struct snug_cuda_bias {
    int64_t from, to, count;
};

/* Writes at most `most` of the biases that matmuls need in 16 bits to list; returns their number. */
int32_t snug_cuda_list_biases(const struct snug_program *program, struct snug_cuda_bias *list, int32_t most);
/* An upper bound of their number, and of their bytes. */
int32_t snug_cuda_count_biases(const struct snug_program *program, int64_t *bytes);
/* Converts all of them. */
snug_status snug_cuda_convert_biases(const struct snug_run *run);
/* The converted copy of a bias; NULL if it is not in the list. */
const void *snug_cuda_bias(const struct snug_run *run, int32_t bias);

/* The LINEAR_DW whose db op computes in passing; NULL: none. */
const struct snug_op *snug_cuda_bias_gradient_of(const struct snug_program *program, const struct snug_op *op);
/* Whether the db of LINEAR_DW op was computed by an earlier operation of its phase. */
bool snug_cuda_bias_gradient_is_done(const struct snug_run *run, const struct snug_op *op);
/* The db that op computes in passing, and whether to overwrite it; NULL: none. */
float *snug_cuda_bias_gradient_output(const struct snug_run *run, const struct snug_op *op, bool *overwrite);

#endif
