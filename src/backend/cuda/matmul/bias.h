/* SPDX-License-Identifier: Apache-2.0 */
/* A run's biases in 16 bits, and the gradients of biases that other operations compute as a by-product. */
#ifndef SNUG_BACKEND_CUDA_MATMUL_BIAS_H
#define SNUG_BACKEND_CUDA_MATMUL_BIAS_H

#include "backend/backend.h"
#include "backend/cuda/sizes/bias.h"

/* Converts all biases of the program's list. */
snug_status snug_cuda_convert_biases(const struct snug_run *run);
/* The converted copy of a bias; NULL if it is not in the list. */
const void *snug_cuda_bias(const struct snug_run *run, int32_t bias);

/* Whether the db of LINEAR_DW op was computed by an earlier operation of its phase. */
bool snug_cuda_bias_gradient_is_done(const struct snug_run *run, const struct snug_op *op);
/* The db that op computes as a by-product, and whether to overwrite it; NULL: none. */
float *snug_cuda_bias_gradient_output(const struct snug_run *run, const struct snug_op *op, bool *overwrite);

#endif
