/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a communication library gives: collective operations over all ranks of a run. Every rank calls the same
 * functions in the same order with the same sizes; a function returns when the rank's own memory may be used again.
 * Only the thread that opened the table may call it. A failure is SNUG_E_IO; afterwards the ranks cannot continue.
 *
 * Values are divided over the ranks, in bytes: a rank's part is its shard.
 */
#ifndef SNUG_DIST_COLLECTIVES_H
#define SNUG_DIST_COLLECTIVES_H

#include <stdint.h>

#include "core/context.h"
#include "program/shards.h"

/* Callbacks by which a process group tracks its ranks' operations, in the caller's thread. */
struct snug_collective_watch {
    void *user;                                       /* NULL: nothing is called */
    void (*enter)(void *user, const char *operation); /* a string that is never freed */
    /* Again and again while an operation waits: a failure ends it, and the ranks cannot continue. */
    snug_status (*poll)(void *user, snug_context *ctx);
    void (*leave)(void *user);
};

struct snug_collectives {
    char name[128]; /* the library, with its version */
    int rank, size;
    int local_rank, local_size; /* among the ranks of this host */
    int64_t piece; /* bytes that a call of the library counts: values that have more are cut. Only tests change it */
    /* to: this rank's part of every rank's `from`, in the order of the ranks and without gaps. Of each part only the
     * bytes from `first` on, at most `most` of them. */
    snug_status (*exchange)(snug_context *ctx, const void *from, void *to, const struct snug_shards *parts,
                            int64_t first, int64_t most);
    /* values: each rank has its own part; afterwards all have all parts. */
    snug_status (*all_gather)(snug_context *ctx, void *values, const struct snug_shards *parts);
    /* values of rank `from`, to rank `to`; the other ranks do not call it. */
    snug_status (*transfer)(snug_context *ctx, void *values, int64_t bytes, int from, int to);
    /* values of rank `from`, to all. */
    snug_status (*broadcast)(snug_context *ctx, void *values, int64_t bytes, int from);
    snug_status (*barrier)(snug_context *ctx);
    /* From here on. NULL: nothing is called any more. */
    void (*set_watch)(const struct snug_collective_watch *watch);
    /* Ends all ranks, this one included, with an exit code; it does not return. */
    void (*abort)(int code);
    /* Waits until all ranks have called it. Nothing can be called afterwards, and the library cannot be opened again in
     * this process. */
    void (*close)(void);
};

/* `bytes` in equal parts of `part` bytes; the last ranks' may be shorter or empty. */
static inline struct snug_shards snug_equal_parts(int64_t bytes, int64_t part, int ranks) {
    return (struct snug_shards){.elements = bytes, .chunk = part, .ranks = ranks};
}

/* values: each rank has its own `each` bytes, in the order of the ranks; afterwards all have all. */
static inline snug_status snug_all_gather_equal(snug_context *ctx, const struct snug_collectives *c, void *values,
                                                int64_t each) {
    const struct snug_shards parts = snug_equal_parts(each * c->size, each, c->size);
    return c->all_gather(ctx, values, &parts);
}

/* The bytes of a rank's part that an exchange sends. */
static inline int64_t snug_collective_part(const struct snug_shards *parts, int rank, int64_t first, int64_t most) {
    const int64_t left = snug_shard_size(parts, rank) - first;
    return left < 0 ? 0 : left < most ? left : most;
}

#endif
