/* SPDX-License-Identifier: Apache-2.0 */
/* The operations over ranks with simulated ranks: each runs in turn, and the exchange reads the others' gradients from
 * memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host.h"
#include "core/philox.h"
#include "sanitized.h"
#include "test.h"

enum { RANKS = 5 };

/* The gradients of all ranks before the operation, and the sums that the owners of the shards have gathered. */
static struct {
    float *gradients[RANKS], *sums, *arena; /* arena: of the running rank */
    int64_t count;
    struct snug_collectives collectives;
} simulated;

static snug_status exchange(snug_context *ctx, const void *from, void *to, const struct snug_shards *parts,
                            int64_t first, int64_t most) {
    const int64_t at = (const char *)from - (const char *)simulated.arena;
    const int rank = simulated.collectives.rank;
    const int64_t own = snug_collective_part(parts, rank, first, most), begin = snug_shard_begin(parts, rank) + first;
    (void)ctx;
    assert_true(at >= 0 && at + parts->elements <= simulated.count * 4);
    for (int r = 0; r < simulated.collectives.size; r++)
        memcpy((char *)to + r * own, (const char *)simulated.gradients[r] + at + begin, (size_t)own);
    return SNUG_OK;
}

static snug_status all_gather(snug_context *ctx, void *values, const struct snug_shards *parts) {
    const int64_t at = (const char *)values - (const char *)simulated.arena;
    const int64_t begin = snug_shard_begin(parts, simulated.collectives.rank);
    (void)ctx;
    memcpy((char *)simulated.sums + at + begin, (const char *)values + begin,
           (size_t)snug_shard_size(parts, simulated.collectives.rank));
    return SNUG_OK;
}

static snug_status refuse(snug_context *ctx, void *values, const struct snug_shards *parts) {
    (void)values, (void)parts;
    return snug_fail(ctx, SNUG_E_IO, "the network is gone");
}

static float *alloc_floats(int64_t count) {
    float *floats = malloc((size_t)count * sizeof *floats);
    assert_non_null(floats);
    return floats;
}

static snug_status run_rank(snug_context *ctx, int rank, int contributors) {
    struct snug_tensor tensors[2] = {{.dtype = SNUG_F32}, {.dtype = SNUG_F32, .rows = simulated.count, .cols = 1}};
    struct snug_program program = {
        .ctx = ctx, .tensors = tensors, .tensor_count = 2, .ranks = simulated.collectives.size};
    const struct snug_op op = {.kind = SNUG_OP_SUM_RANKS, .sum_ranks = {.g = 1}};
    struct snug_run run = {.ctx = ctx,
                           .program = &program,
                           .arena = (uint8_t *)simulated.arena,
                           .threads = 1 + rank % 2,
                           .collectives = &simulated.collectives,
                           .contributors = contributors};
    const int64_t bytes = snug_host_ranks_workspace(&program, &op);
    assert_true(bytes <= (4 << 20) + 4 * RANKS);
    run.workspace = malloc((size_t)bytes); /* exactly what was asked for */
    assert_non_null(run.workspace);
    simulated.collectives.rank = rank;
    memcpy(simulated.arena, simulated.gradients[rank], (size_t)simulated.count * 4);
    const snug_status status = snug_host_sum_ranks(&run, &op);
    free(run.workspace);
    return status;
}

/* Values whose sum depends on the order of the additions. */
static void fill(int64_t count) {
    simulated.count = count;
    simulated.arena = alloc_floats(count);
    simulated.sums = alloc_floats(count);
    for (int r = 0; r < RANKS; r++) {
        simulated.gradients[r] = alloc_floats(count);
        for (int64_t i = 0; i < count; i += 4) {
            const struct snug_philox_block block = snug_philox((uint32_t)i, (uint32_t)r, 0, 0, 1, 2);
            for (int64_t j = 0; j < 4 && i + j < count; j++)
                simulated.gradients[r][i + j] = (float)(int32_t)block.word[j] * (block.word[j] & 1 ? 1e-3f : 1e-9f);
        }
    }
}

static void empty(void) {
    free(simulated.arena);
    free(simulated.sums);
    for (int r = 0; r < RANKS; r++) free(simulated.gradients[r]);
}

TEST(test_sums_in_the_order_of_the_ranks) {
    /* fewer elements than ranks, whole and partial shards, several pieces */
    static const int64_t counts[] = {1, 3, 64, 1000, (1 << 20) + 7, (2 << 20) + 1};
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    simulated.collectives = (struct snug_collectives){.exchange = exchange, .all_gather = all_gather};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int ranks = 2; ranks <= RANKS; ranks++) {
            const int contributors = ranks - (ranks > 2);
            if (counts[c] > 1 << 20 && ranks != (c % 2 ? 3 : RANKS) && !is_long()) continue;
            fill(counts[c]);
            simulated.collectives.size = ranks;
            for (int r = 0; r < ranks; r++) assert_int_equal(run_rank(ctx, r, contributors), SNUG_OK);
            for (int64_t i = 0; i < counts[c]; i++) {
                float sum = simulated.gradients[0][i];
                for (int r = 1; r < contributors; r++) sum += simulated.gradients[r][i];
                if (sum != simulated.sums[i])
                    fail_msg("element %ld of %ld, %d ranks: %.9g, expected %.9g", (long)i, (long)counts[c], ranks,
                             (double)simulated.sums[i], (double)sum);
            }
            empty();
        }
    snug_context_destroy(ctx);
}

/* A rank's program with a divided gradient: its arena has g, then what `op` writes for the rank. */
static void run_divided(snug_context *ctx, int rank, int contributors, int64_t micro_batch, const struct snug_op *op) {
    const int64_t own = snug_shard_size(&op->sum_ranks.shards, rank);
    struct snug_tensor tensors[3] = {{.dtype = SNUG_F32},
                                     {.dtype = SNUG_F32, .rows = simulated.count, .cols = 1},
                                     {.dtype = SNUG_F32, .rows = 1, .cols = own, .offset = simulated.count * 4}};
    struct snug_program program = {
        .ctx = ctx, .tensors = tensors, .tensor_count = 3, .ranks = simulated.collectives.size, .rank = rank};
    struct snug_run run = {.ctx = ctx,
                           .program = &program,
                           .arena = (uint8_t *)simulated.arena,
                           .threads = 2,
                           .micro_batch = micro_batch,
                           .collectives = &simulated.collectives,
                           .contributors = contributors};
    run.workspace = malloc((size_t)snug_host_ranks_workspace(&program, op));
    assert_non_null(run.workspace);
    simulated.collectives.rank = rank;
    memcpy(simulated.arena, simulated.gradients[rank], (size_t)simulated.count * 4);
    assert_int_equal(snug_host_sum_ranks(&run, op), SNUG_OK);
    free(run.workspace);
}

/* Each rank has the sums of its shard, in its place or elsewhere, where a second micro-batch is added. */
TEST(test_sums_of_shards) {
    static const struct {
        int64_t count, chunk;
    } cases[] = {{1, 4}, {40, 4}, {100, 100}, {100001, 1 << 14}, {(3 << 20) + 5, 1 << 14}};
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    simulated.collectives = (struct snug_collectives){.exchange = exchange};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int ranks = 2; ranks <= RANKS; ranks++)
            for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
                const struct snug_op op = {.kind = SNUG_OP_SUM_RANKS,
                                           .sum_ranks = {.g = 1,
                                                         .sum = elsewhere ? 2 : 0,
                                                         .shards = {cases[c].count, cases[c].chunk, ranks, ranks - 1}}};
                if (cases[c].count > 1 << 20 && ranks != 3 && !is_long()) continue;
                fill(cases[c].count);
                free(simulated.arena);
                simulated.arena = alloc_floats(2 * simulated.count);
                simulated.collectives.size = ranks;
                for (int rank = 0; rank < ranks; rank++) {
                    const int64_t begin = snug_shard_begin(&op.sum_ranks.shards, rank);
                    const int64_t own = snug_shard_size(&op.sum_ranks.shards, rank);
                    const float *sums = simulated.arena + (elsewhere ? simulated.count : begin);
                    for (int micro = 0; micro <= elsewhere; micro++) run_divided(ctx, rank, ranks - micro, micro, &op);
                    for (int64_t i = 0; i < own; i++) {
                        float sum = simulated.gradients[0][begin + i];
                        for (int r = 1; r < ranks; r++) sum += simulated.gradients[r][begin + i];
                        for (int r = 0; r < ranks - 1 && elsewhere; r++) sum += simulated.gradients[r][begin + i];
                        if (sum != sums[i])
                            fail_msg("case %zu, %d ranks, rank %d: element %ld", c, ranks, rank, (long)i);
                    }
                }
                empty();
            }
    snug_context_destroy(ctx);
}

/* The sums of the chunks of all shards give the bits of the whole gradient's norm, in every backend. */
TEST(test_norm_of_shards) {
    enum { COUNT = 5 * SNUG_NORM_CHUNK + 77, SHARDS = 3, COLUMNS = 3, FIRST = 1 };
    const struct snug_backend *const backends[] = {snug_backend_reference(), snug_backend_cpu()};
    const struct snug_shards shards = {COUNT, SNUG_NORM_CHUNK, SHARDS, 2};
    struct memory {
        float g[COUNT];
        double sums[2], parts[SHARDS * COLUMNS], workspace[COUNT / SNUG_NORM_CHUNK + 1];
    } *memory = calloc(1, sizeof *memory);
    struct snug_tensor tensors[5] = {
        [1] = {.dtype = SNUG_F32, .rows = 1, .cols = COUNT},
        [2] = {.dtype = SNUG_F64, .rows = 1, .cols = 2, .offset = offsetof(struct memory, sums)},
        [3] = {.dtype = SNUG_F64, .rows = SHARDS, .cols = COLUMNS, .offset = offsetof(struct memory, parts)},
        [4] = {.dtype = SNUG_F32, .rows = 1}};
    struct snug_program program = {.tensors = tensors, .tensor_count = 5};
    assert_non_null(memory);
    struct snug_run run = {
        .program = &program, .arena = (uint8_t *)memory, .workspace = memory->workspace, .threads = 2};
    for (int i = 0; i < COUNT; i++)
        memory->g[i] = (float)(int32_t)snug_philox((uint32_t)i, 0, 0, 0, 1, 2).word[0] * 1e-9f;
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
        struct snug_op op = {.kind = SNUG_OP_SQUARED_NORM, .squared_norm = {.g = 1, .sums = 2}};
        assert_int_equal(backends[b]->ops[op.kind](&run, &op), SNUG_OK);
        for (int rank = 0; rank < SHARDS; rank++) {
            tensors[4].cols = snug_shard_size(&shards, rank);
            tensors[4].offset = snug_shard_begin(&shards, rank) * (int64_t)sizeof(float);
            op.squared_norm =
                (struct snug_squared_norm){.g = 4, .sums = 3, .slot = rank * COLUMNS + FIRST, .chunks = true};
            assert_int_equal(backends[b]->ops[op.kind](&run, &op), SNUG_OK);
        }
        op = (struct snug_op){.kind = SNUG_OP_SUM_CHUNKS,
                              .sum_chunks = {.parts = 3, .sums = 2, .slot = 1, .first = FIRST, .shards = shards}};
        assert_int_equal(backends[b]->ops[op.kind](&run, &op), SNUG_OK);
        assert_true(memory->sums[0] > 0);
        assert_memory_equal(&memory->sums[0], &memory->sums[1], sizeof(double));
    }
    free(memory);
}

TEST(test_failures_are_returned) {
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    simulated.collectives = (struct snug_collectives){.size = 2, .exchange = exchange, .all_gather = refuse};
    fill(100);
    assert_int_equal(run_rank(ctx, 1, 2), SNUG_E_IO);
    assert_string_equal(snug_error_message(ctx), "the network is gone");
    empty();
    snug_context_destroy(ctx);
}

TEST_MAIN(NULL, NULL)
