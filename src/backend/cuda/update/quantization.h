/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quantization maps and lookup tables of optim/quantization_table.h, as ADAM_8BIT's kernel stores them in shared
 * memory: only the entries for values within the maps' range, and for positive values of the signed map, which is
 * symmetric except for 1.
 */
#ifndef SNUG_BACKEND_CUDA_UPDATE_QUANTIZATION_H
#define SNUG_BACKEND_CUDA_UPDATE_QUANTIZATION_H

#include "optim/quantization_table.h"

/* 2^-22 and 2^-23 are below the midpoints between 0 and the next code: 2.75e-7 (signed) and 1.6e-7 (unsigned). */
enum {
    SNUG_CUDA_SIGNED_LEAST = (127 - 22) << 23,
    SNUG_CUDA_UNSIGNED_LEAST = (127 - 23) << 23,
    SNUG_CUDA_SIGNED_TABLE = (((127 << 23) - SNUG_CUDA_SIGNED_LEAST) >> SNUG_SIGNED_SHIFT) + 1,
    SNUG_CUDA_UNSIGNED_TABLE = (((127 << 23) - SNUG_CUDA_UNSIGNED_LEAST) >> SNUG_UNSIGNED_SHIFT) + 1,
};

struct snug_cuda_quantization {
    float signed_map[SNUG_CODES], unsigned_map[SNUG_CODES];
    uint32_t signed_table[SNUG_CUDA_SIGNED_TABLE], unsigned_table[SNUG_CUDA_UNSIGNED_TABLE];
};

#endif
