/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch of the fused kernels: sizes that plans ask for, and the layouts that kernels carve from run->workspace. */
#ifndef SNUG_BACKEND_CPU_WORKSPACE_H
#define SNUG_BACKEND_CPU_WORKSPACE_H

#include "backend/backend.h"

/* Bytes of scratch of op, 0 if it needs none or is no fused kernel. The same for every instruction set. */
int64_t snug_cpu_workspace(const struct snug_program *program, const struct snug_op *op, int threads);

/* Rows of scratch hold a multiple of this many floats: two of the widest vectors. */
#define SNUG_CPU_PAD 32
/* Sums over rows are taken in this many blocks of rows, then over the blocks in order: the same for any thread count.
 */
#define SNUG_CPU_BLOCKS 64
/* Rows of queries that attention works on at a time, and the multiple that its tiles need. */
#define SNUG_CPU_QUERIES 32

static inline int64_t snug_cpu_padded(int64_t n) { return (n + SNUG_CPU_PAD - 1) / SNUG_CPU_PAD * SNUG_CPU_PAD; }

/* Floats from one key's column block to the next: an odd number of cache lines, so that columns do not share a set. */
static inline int64_t snug_cpu_key_stride(int64_t keys) { return snug_cpu_padded(keys) + 16; }

/* Floats of one thread's scratch. */
int64_t snug_cpu_attention_floats(int64_t longest, int64_t d);
int64_t snug_cpu_attention_backward_floats(int64_t longest, int64_t d);

#endif
