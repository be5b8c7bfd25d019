/* SPDX-License-Identifier: Apache-2.0 */
/* What every table of collective operations must do, checked by three ranks that run this at the same time. */
#ifndef SNUG_TESTS_COLLECTIVES_H
#define SNUG_TESTS_COLLECTIVES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/collectives.h"

/* In a child, where cmocka's assertions would continue the parent's tests. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d: line %d: %s: %s\n", c->rank, __LINE__, #condition, snug_error_message(ctx));     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Parts of different sizes, of which one is empty, and larger than a socket's buffer. */
static inline void check_operations(snug_context *ctx, const struct snug_collectives *c) {
    enum { CHUNK = 1 << 20, BYTES = 4 * CHUNK + 77, SMALL = 5 };
    const struct snug_shards parts = {BYTES, CHUNK, c->size, 1}, few = {BYTES, BYTES, c->size, 0};
    uint8_t *mine = malloc(BYTES), *all = malloc((size_t)c->size * BYTES);
    CHECK(mine && all);
    for (int i = 0; i < BYTES; i++) mine[i] = (uint8_t)(i * 7 + c->rank * 31);
    const int64_t first = 3, most = CHUNK + 1, own = snug_collective_part(&parts, c->rank, first, most);
    CHECK(c->exchange(ctx, mine, all, &parts, first, most) == SNUG_OK);
    for (int r = 0; r < c->size; r++)
        for (int64_t i = 0; i < own; i++)
            CHECK(all[r * own + i] == (uint8_t)((snug_shard_begin(&parts, c->rank) + first + i) * 7 + r * 31));
    CHECK(c->exchange(ctx, mine, all, &few, 0, SMALL) == SNUG_OK);
    for (int r = 0; r < c->size && c->rank == 0; r++)
        for (int i = 0; i < SMALL; i++) CHECK(all[r * SMALL + i] == (uint8_t)(i * 7 + r * 31));
    CHECK(c->all_gather(ctx, mine, &parts) == SNUG_OK);
    for (int r = 0; r < c->size; r++)
        for (int64_t i = snug_shard_begin(&parts, r); i < snug_shard_begin(&parts, r + 1); i++)
            CHECK(mine[i] == (uint8_t)(i * 7 + r * 31));
    for (int from = 0; from < c->size; from++) {
        memset(mine, c->rank == from ? 40 + from : 0, BYTES);
        CHECK(c->broadcast(ctx, mine, BYTES, from) == SNUG_OK);
        for (int i = 0; i < BYTES; i++) CHECK(mine[i] == 40 + from);
    }
    for (int other = 1; other < c->size; other++)
        for (int back = 0; back < 2; back++) {
            if (c->rank != 0 && c->rank != other) continue;
            memset(mine, c->rank == (back ? other : 0) ? 90 + other : 0, BYTES);
            CHECK(c->transfer(ctx, mine, BYTES, back ? other : 0, back ? 0 : other) == SNUG_OK);
            for (int i = 0; i < BYTES; i++) CHECK(mine[i] == 90 + other);
        }
    CHECK(c->barrier(ctx) == SNUG_OK);
    free(mine);
    free(all);
}

#endif
