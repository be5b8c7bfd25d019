/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch of the fused kernels: its sizes, which plans include, and the layouts of run->workspace. */
#ifndef SNUG_BACKEND_CPU_WORKSPACE_H
#define SNUG_BACKEND_CPU_WORKSPACE_H

#include "backend/backend.h"

/* Bytes of scratch of op; 0 if it needs none or is not a fused kernel. The same for every instruction set. */
int64_t snug_cpu_workspace(const struct snug_program *program, const struct snug_op *op, int threads);

/* Rows of scratch hold a multiple of this many floats: two of the widest vectors. */
#define SNUG_CPU_PAD 32
/* Sums over rows are computed in this many blocks of rows, then over the blocks in order: the same for any number of
 * threads.
 */
#define SNUG_CPU_BLOCKS 64
/* Queries that attention processes at a time, and the multiple that its tiles require. */
#define SNUG_CPU_QUERIES 32

static inline int64_t snug_cpu_padded(int64_t n) { return (n + SNUG_CPU_PAD - 1) / SNUG_CPU_PAD * SNUG_CPU_PAD; }

/* Floats from one key's column block to the next: an odd number of cache lines, so that columns do not map to the same
   cache set. */
static inline int64_t snug_cpu_key_stride(int64_t keys) { return snug_cpu_padded(keys) + 16; }

/* Scratch of attention, forward or backward, in floats. Threads share:
   the bucket of each distance, SNUG_CPU_DISTANCES numbers; each sequence's part of the biases' gradient,
   [sequences,heads,buckets]; the row of position keys and queries of each distance within the longest sequence; each
   part of the batch's sums for their gradients, `part` floats for each of SNUG_CPU_POSITION_PARTS parts and each head.
   After these, from `threads` on, each thread has `thread` of its own, of which the last `positions` are for those
   tables; rows over the keys that a block of queries attends to are snug_cpu_score_stride() apart. */
enum { SNUG_CPU_FARTHEST = 128, SNUG_CPU_DISTANCES = 2 * SNUG_CPU_FARTHEST + 1, SNUG_CPU_POSITION_PARTS = 8 };
struct snug_cpu_attention_scratch {
    int64_t buckets, sums, rows, parts, part, threads, thread, positions;
};
struct snug_cpu_attention_scratch snug_cpu_attention_scratch(const struct snug_program *program,
                                                             const struct snug_op *op);
/* Whether queries attend to a part of the keys. */
static inline bool snug_cpu_is_windowed(const struct snug_attention_form *form) {
    return form->before >= 0 || form->after >= 0;
}
/* The stride of rows of scores, for a sequence of length keys. */
static inline int64_t snug_cpu_score_stride(int64_t length, const struct snug_attention_form *form) {
    const int64_t seen = SNUG_CPU_QUERIES + (int64_t)form->before + form->after + SNUG_CPU_PAD;
    return snug_cpu_key_stride(form->before >= 0 && form->after >= 0 && seen < length ? seen : length);
}

/* CACHED_ATTENTION: rows of a block, which are queries times the query heads that read one key/value head: a whole
   number of either; and the floats of scratch of a thread. */
static inline int64_t snug_cpu_block_rows(const struct snug_attention_form *form) {
    const int64_t group = form->heads / form->kv_heads, most = 16;
    return group < most ? most / group * group : group;
}
static inline int64_t snug_cpu_block_room(const struct snug_attention_form *form) { /* in whole tiles */
    return (snug_cpu_block_rows(form) + 7) / 8 * 8;
}
/* VECTOR_LOSS, of so many rows of data: vectors of a block, and the floats of their similarities with all others. */
enum { SNUG_CPU_LOSS_ROWS = 64 };
static inline int64_t snug_cpu_vector_loss_block(int64_t texts, int64_t rows) {
    return SNUG_CPU_LOSS_ROWS * (texts - 1) * snug_cpu_padded(rows);
}

int64_t snug_cpu_cached_attention_floats(const struct snug_program *program, const struct snug_attention_form *form);

#endif
