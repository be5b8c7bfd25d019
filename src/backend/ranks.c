/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SUM_RANKS of backends in host memory. A gradient is summed piece by piece, so that the scratch stays small. A rank
 * owns a shard of each piece: it gets that shard of all ranks, adds in the order of the ranks, and sends the sum to
 * all. Those are the bytes of a reduce-scatter and an all-gather, with an order of the additions that does not depend
 * on the library or the network.
 */
#include "backend/host.h"

enum {
    PIECE = 1 << 20, /* elements: 4 MiB, long enough for the full bandwidth of memory and networks */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* A rank's elements of a piece, the last ranks' fewer or none. */
static int64_t shard_of(int64_t piece, int ranks) { return (piece + ranks - 1) / ranks; }

int64_t snug_host_sum_ranks_workspace(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *g = &program->tensors[op->sum_ranks.g];
    return shard_of(smaller(g->rows * g->cols, PIECE), program->ranks) * program->ranks * (int64_t)sizeof(float);
}

/* to = ((shard 0 + shard 1) + …) */
static void add_shards(const struct snug_run *run, float *to, const float *shards, int64_t shard) {
#pragma omp parallel for num_threads(run->threads) schedule(static) if (shard > 1 << 14)
    for (int64_t i = 0; i < shard; i++) {
        float sum = shards[i];
        for (int r = 1; r < run->contributors; r++) sum += shards[r * shard + i];
        to[i] = sum;
    }
}

snug_status snug_host_sum_ranks(struct snug_run *run, const struct snug_op *op) {
    const struct snug_collectives *c = run->collectives;
    const struct snug_matrix g = snug_matrix_of(run, op->sum_ranks.g);
    const int64_t count = g.rows * g.cols, size = sizeof(float);
    float *values = (float *)g.data, *received = run->workspace;
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t piece = smaller(PIECE, count - at), part = shard_of(piece, c->size);
        const int64_t own = snug_collective_part(piece, part, c->rank);
        RETURN_IF_ERROR(c->exchange(run->ctx, values + at, received, piece * size, part * size));
        if (own) add_shards(run, values + at + c->rank * part, received, own);
        RETURN_IF_ERROR(c->all_gather(run->ctx, values + at, piece * size, part * size));
    }
    return SNUG_OK;
}
