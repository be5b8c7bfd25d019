/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/sizes/ranks.h"

#define MOST ((int64_t)32 << 20)

/* The least: bytes of each other rank; where chunks are squared, one in both halves. */
enum { BUCKETS = 8, LEAST = 4096, CHUNKS = 2 * SNUG_NORM_CHUNK * 4, ALIGNMENT = 256 };

int64_t snug_cuda_received_bytes(const struct snug_program *program) {
    int64_t bytes = 0, each = LEAST;
    if (program->ranks < 2) return 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind != SNUG_OP_SUM_RANKS) continue;
        const struct snug_tensor *g = &program->tensors[op->sum_ranks.g];
        bytes += g->rows * g->cols * (int64_t)sizeof(float);
        if (op->sum_ranks.chunks) each = CHUNKS;
    }
    if (!bytes) return 0;
    const int64_t least = (program->ranks - 1) * each;
    bytes = bytes / BUCKETS < MOST ? bytes / BUCKETS : MOST;
    return ((bytes > least ? bytes : least) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}
