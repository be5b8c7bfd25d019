/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes that the kernels support. */
#ifndef SNUG_BACKEND_CUDA_SIZES_LIMITS_H
#define SNUG_BACKEND_CUDA_SIZES_LIMITS_H

#include "program/program.h"

enum {
    SNUG_CUDA_HEAD_MOST = 256,       /* channels of an attention head */
    SNUG_CUDA_SEQUENCES_MOST = 65535 /* of a batch: a dimension of attention's grid */
};

/* struct snug_backend's supports. */
snug_status snug_cuda_supports(const struct snug_program *program, const struct snug_op *op);

#endif
