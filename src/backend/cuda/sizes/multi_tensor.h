/* SPDX-License-Identifier: Apache-2.0 */
/* One launch over many tensors: see multi_tensor.c. */
#ifndef SNUG_BACKEND_CUDA_SIZES_MULTI_TENSOR_H
#define SNUG_BACKEND_CUDA_SIZES_MULTI_TENSOR_H

#include "backend/backend.h"

#define SNUG_CUDA_BLOCK 16384 /* elements */

/* A tensor of a multi-tensor launch. Offsets are in the arena; -1: none. */
struct snug_cuda_entry {
    int64_t block, count; /* its first block; its elements */
    int64_t g, p, copy, state[SNUG_STATES_MAX];
    int64_t element;       /* of the parameter, at which p begins */
    int64_t cols, scratch; /* Adafactor: of the tensor; offset in the workspace */
    int32_t parts;         /* Adafactor: parts of its rows */
    int32_t parameter, slot, segments;
    bool decay, low, half, vector; /* weight decay applies; p is BF16; copy is F16; a stack of vectors */
};

/* The operations that share a launch. */
struct snug_cuda_multi_tensor {
    int64_t first, last; /* operations; first is -1 if there is no such launch */
    int64_t blocks;
    int32_t count;
};

/* The multi-tensor launch of operations of kind; of the program's updates without 8-bit states. */
struct snug_cuda_multi_tensor snug_cuda_find_multi_tensor(const struct snug_program *program, enum snug_op_kind kind);
struct snug_cuda_multi_tensor snug_cuda_find_updates(const struct snug_program *program);
/* Writes its table of multi->count tensors. */
void snug_cuda_list_entries(const struct snug_program *program, const struct snug_cuda_multi_tensor *multi,
                            struct snug_cuda_entry *entries);

/* Parts into which Adafactor divides a matrix of `rows` rows: those of the formula (optim/formulas/adafactor.h) in a
   program that updates all weights in one launch, which has a block for each part of each segment. A launch over one
   weight needs more of them. */
int32_t snug_cuda_adafactor_parts(int64_t rows, bool all);
/* Bytes of Adafactor's scratch for the weight of op. */
int64_t snug_cuda_adafactor_scratch(const struct snug_program *program, const struct snug_op *op, bool all);

#endif
