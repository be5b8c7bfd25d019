/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of optim/codes.h as ADAM_8BIT's kernel keeps them in shared memory: only the cells that values of the
 * books' range fall into, and of the signed book those of positive values, since it is symmetric but for 1.
 */
#ifndef SNUG_BACKEND_CUDA_CODES_H
#define SNUG_BACKEND_CUDA_CODES_H

#include "optim/codes.h"

/* Below all middles between 0 and the next code lie 2^-22 (signed: 2.75e-7) and 2^-23 (unsigned: 1.6e-7). */
enum {
    SNUG_CUDA_SIGNED_LEAST = (127 - 22) << 23,
    SNUG_CUDA_UNSIGNED_LEAST = (127 - 23) << 23,
    SNUG_CUDA_SIGNED_CELLS = (((127 << 23) - SNUG_CUDA_SIGNED_LEAST) >> SNUG_SIGNED_SHIFT) + 1,
    SNUG_CUDA_UNSIGNED_CELLS = (((127 << 23) - SNUG_CUDA_UNSIGNED_LEAST) >> SNUG_UNSIGNED_SHIFT) + 1,
};

struct snug_cuda_codes {
    float signed_book[SNUG_CODES], unsigned_book[SNUG_CODES];
    uint32_t signed_cells[SNUG_CUDA_SIGNED_CELLS], unsigned_cells[SNUG_CUDA_UNSIGNED_CELLS];
};

#endif
