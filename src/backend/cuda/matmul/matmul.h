/* SPDX-License-Identifier: Apache-2.0 */
/* Matmuls by cuBLASLt, and their plans. */
#ifndef SNUG_BACKEND_CUDA_MATMUL_MATMUL_H
#define SNUG_BACKEND_CUDA_MATMUL_MATMUL_H

#include "backend/cuda/state.h"

/* c [m, n] (+)= a b, everything row-major; transpose_a: a is stored as [k, m], transpose_b: b as [n, k]. bias [n], or
   NULL, is of c's type. */
struct snug_cuda_matmul {
    void *c;
    const void *a, *b, *bias;
    bool transpose_a, transpose_b, add;
    int64_t m, n, k;
    int64_t a_stride, b_stride, c_stride; /* leading dimensions as stored; 0: rows are contiguous */
    enum snug_dtype type, b_type, c_type; /* of a, b, c */
};

/* Whether op is LINEAR, LINEAR_DX or LINEAR_DW, and has a matmul. */
static inline bool snug_cuda_has_matmul(const struct snug_op *op) {
    return op->kind == SNUG_OP_LINEAR || op->kind == SNUG_OP_LINEAR_DX ||
           (op->kind == SNUG_OP_LINEAR_DW && op->linear_dw.dw != 0);
}
/* That matmul, for the current batch. */
struct snug_cuda_matmul snug_cuda_matmul_of(const struct snug_run *run, const struct snug_op *op);
/* The algorithm of a shape is chosen when it is run first, and never changes. */
snug_status snug_cuda_run_matmul(struct snug_run *run, const struct snug_cuda_matmul *m, void *workspace);
/* Whether op, a LINEAR whose matmul is p, has so few rows that few_rows.cu takes it with its bias and addend; which it
   does. */
bool snug_cuda_takes_few_rows(const struct snug_run *run, const struct snug_op *op, const struct snug_cuda_matmul *p);
void snug_cuda_run_few_rows(const struct snug_run *run, const struct snug_op *op, const struct snug_cuda_matmul *p);
/* The same of streamed.cu. */
bool snug_cuda_takes_streamed(const struct snug_run *run, const struct snug_op *op, const struct snug_cuda_matmul *p);
void snug_cuda_run_streamed(const struct snug_run *run, const struct snug_op *op, const struct snug_cuda_matmul *p);
/* Computes p, of op, a LINEAR_DW or LINEAR_DX, if it has the form of an adapter's gradient, which takes_thin() tells.
   Where is_thin_pair(), it computes the LINEAR_DX after op, too, which has nothing to do then. False: p has another
   form. */
bool snug_cuda_run_thin(struct snug_run *run, const struct snug_op *op, const struct snug_cuda_matmul *p);
bool snug_cuda_takes_thin(const struct snug_run *run, const struct snug_op *op, const struct snug_cuda_matmul *p);
bool snug_cuda_is_thin_pair(const struct snug_run *run, const struct snug_op *op);
/* struct snug_backend's autotune. */
snug_status snug_cuda_autotune(struct snug_run *run, const struct snug_sizes *sizes, const char *folder);

void snug_cuda_free_matmul_plans(struct snug_cuda *cuda);
void snug_cuda_free_algorithms(struct snug_cuda *cuda);

/* Fills all tensors with random numbers that are valid as BF16 and as F32: matmuls of zeros would be faster. */
void snug_cuda_randomize(const struct snug_run *run);
/* Fills all tensors with zeros. */
snug_status snug_cuda_clear(const struct snug_run *run);
/* Converts count values from BF16 to type. */
void snug_cuda_convert(const struct snug_cuda *cuda, void *to, enum snug_dtype type, const void *from, int64_t count);

#endif
