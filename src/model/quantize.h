/* SPDX-License-Identifier: Apache-2.0 */
/* The codes and the values of weights that are stored in 4 bits (core/quantized.h). */
#ifndef SNUG_MODEL_QUANTIZE_H
#define SNUG_MODEL_QUANTIZE_H

#include "model/config.h"
#include "model/draw.h"

/* Makes all values of a quantized parameter, a piece at a time, and stores their codes and scales: the bits of
   bitsandbytes' PyTorch implementation. Its CUDA kernels differ in values that are exactly between two codes, and in
   which of FP4's two zeros a value has. */
snug_status snug_quantized_fill(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, snug_make_fn *make, const void *user);
/* Stores the bytes of a part of a quantized parameter, which begins at byte `at`. */
snug_status snug_quantized_store(const struct snug_program *program, const struct snug_memory *memory,
                                 const struct snug_parameter *parameter, int64_t at, int64_t count, const void *bytes);
/* Values first … first + count - 1 of a quantized parameter of which this rank stores all bytes. */
snug_status snug_quantized_read(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, int64_t first, int64_t count, float *values);

#endif
