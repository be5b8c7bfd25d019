/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations over several ranks of backends in host memory. A gradient is summed piece by piece, so that the
 * scratch stays small. A rank owns a shard of the gradient, or of each piece: it gets that shard of all ranks, adds in
 * the order of the ranks, and sends the sum to all, or keeps it. Those are the bytes of a reduce-scatter and an
 * all-gather, with an order of the additions that does not depend on the library or the network.
 */
#include <string.h>

#include "backend/host.h"
#include "core/min_max.h"

enum {
    PIECE = 1 << 20, /* elements: 4 MiB, long enough for the full bandwidth of memory and networks */
};

/* A rank's elements of a piece, the last ranks' fewer or none. */
static int64_t shard_of(int64_t piece, int ranks) { return (piece + ranks - 1) / ranks; }

int64_t snug_host_ranks_workspace(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *g = &program->tensors[op->sum_ranks.g];
    return shard_of(snug_min(g->rows * g->cols, PIECE), program->ranks) * program->ranks * (int64_t)sizeof(float);
}

/* to = ((shard 0 + shard 1) + …), or += the shards one by one */
static void add_shards(const struct snug_run *run, bool accumulate, float *to, const float *shards, int64_t shard) {
#pragma omp parallel for num_threads(run->threads) schedule(static) if (shard > 1 << 14)
    for (int64_t i = 0; i < shard; i++) {
        float sum = accumulate ? to[i] + shards[i] : shards[i];
        for (int r = 1; r < run->contributors; r++) sum += shards[r * shard + i];
        to[i] = sum;
    }
}

/* Every rank gets the sums of all elements, in sums. */
static snug_status sum_for_all(struct snug_run *run, const float *values, float *sums, int64_t count, bool accumulate) {
    const struct snug_collectives *c = run->collectives;
    const int64_t size = sizeof(float);
    float *received = run->workspace;
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t piece = snug_min(PIECE, count - at), part = shard_of(piece, c->size);
        const struct snug_shards parts = snug_equal_parts(piece * size, part * size, c->size);
        const int64_t own = snug_shard_size(&parts, c->rank) / size;
        RETURN_IF_ERROR(c->exchange(run->ctx, values + at, received, &parts, 0, part * size));
        if (own) add_shards(run, accumulate, sums + at + c->rank * part, received, own);
        RETURN_IF_ERROR(c->all_gather(run->ctx, sums + at, &parts));
    }
    return SNUG_OK;
}

/* Each rank gets the sums of its shard. */
static snug_status sum_for_owners(struct snug_run *run, const struct snug_op *op, float *values, bool accumulate) {
    const struct snug_collectives *c = run->collectives;
    const struct snug_shards *shards = &op->sum_ranks.shards;
    const int64_t size = sizeof(float), part = shard_of(snug_min(shards->elements, PIECE), c->size);
    const int64_t begin = snug_shard_begin(shards, c->rank), largest = snug_shard_largest(shards);
    const struct snug_shards parts = snug_shards_in_bytes(shards, size);
    float *received = run->workspace, *to = op->sum_ranks.sum ? snug_run_data(run, op->sum_ranks.sum) : values + begin;
    for (int64_t first = 0; first < largest; first += part) {
        const int64_t own = snug_collective_part(&parts, c->rank, first * size, part * size) / size;
        RETURN_IF_ERROR(c->exchange(run->ctx, values, received, &parts, first * size, part * size));
        if (own) add_shards(run, accumulate, to + first, received, own);
    }
    return SNUG_OK;
}

snug_status snug_host_sum_ranks(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix g = snug_matrix_of(run, op->sum_ranks.g);
    float *values = (float *)g.data, *sums = op->sum_ranks.sum ? snug_run_data(run, op->sum_ranks.sum) : values;
    const bool accumulate = op->sum_ranks.sum && run->micro_batch > 0;
    if (op->sum_ranks.chunks)
        return snug_fail(run->ctx, SNUG_E_INTERNAL, "this backend squares gradients after their sums");
    if (op->sum_ranks.shards.chunk) return sum_for_owners(run, op, values, accumulate);
    return sum_for_all(run, values, sums, g.rows * g.cols, accumulate);
}

/* Copies this rank's shard to its place in x, rounded to nearest even if x has a smaller type. */
static void fill_own(const struct snug_run *run, const struct snug_op *op, void *to, int64_t bytes) {
    const enum snug_dtype dtype = snug_run_dtype(run, op->gather_ranks.x);
    const float *from = snug_run_data(run, op->gather_ranks.shard);
    uint16_t *rounded = to;
    if (snug_run_dtype(run, op->gather_ranks.shard) == dtype) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    const int64_t count = bytes / (int64_t)sizeof *rounded;
#pragma omp parallel for num_threads(run->threads) schedule(static) if (count > 1 << 14)
    for (int64_t i = 0; i < count; i++) rounded[i] = snug_f32_to_bf16(from[i]);
}

snug_status snug_host_gather_ranks(struct snug_run *run, const struct snug_op *op) {
    const struct snug_collectives *c = run->collectives;
    const struct snug_shards *shards = &op->gather_ranks.shards;
    const int64_t size = snug_dtype_size(snug_run_dtype(run, op->gather_ranks.x));
    const struct snug_shards parts = snug_shards_in_bytes(shards, size);
    char *x = snug_run_data(run, op->gather_ranks.x);
    const int64_t own = snug_shard_size(&parts, c->rank);
    if (op->gather_ranks.shard && own) fill_own(run, op, x + snug_shard_begin(&parts, c->rank), own);
    return c->all_gather(run->ctx, x, &parts);
}

snug_status snug_host_sum_chunks(struct snug_run *run, const struct snug_op *op) {
    const struct snug_shards *shards = &op->sum_chunks.shards;
    const double *parts = snug_run_data(run, op->sum_chunks.parts);
    double *sums = snug_run_data(run, op->sum_chunks.sums), sum = 0;
    const int64_t columns = snug_run_cols(run, op->sum_chunks.parts);
    for (int rank = 0; rank < shards->ranks; rank++) {
        const int64_t chunks = (snug_shard_size(shards, rank) + SNUG_NORM_CHUNK - 1) / SNUG_NORM_CHUNK;
        for (int64_t i = 0; i < chunks; i++) sum += parts[rank * columns + op->sum_chunks.first + i];
    }
    sums[op->sum_chunks.slot] = sum;
    return SNUG_OK;
}
