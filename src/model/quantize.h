/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are stored as 4-bit codes (core/quantized.h): which ones, their codes, and their values. */
#ifndef SNUG_MODEL_QUANTIZE_H
#define SNUG_MODEL_QUANTIZE_H

#include "model/config.h"
#include "model/draw.h"

/* Marks the weights that config's quantization is for: those of all linears, as in transformers, but the task head's,
   those that are embedding tables too, and those that its skip list names. trains: a run that trains, in which each of
   them must be frozen: SNUG_E_USAGE otherwise. Call it after freezing and before snug_stages(). */
snug_status snug_program_quantize(struct snug_program *program, const struct snug_config *config, bool trains);

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
