/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Micro-batches by tokens: each row of a data set is in one pack of at most --per_device_train_tokens tokens, and a
 * micro-batch is a pack. Packs are the same in every epoch, so that all epochs have as many steps; their order is not.
 *
 * The rows are put in a random order, which is the same in every epoch, and packed one window of it after the other:
 * the longest row of a window first, each into the first pack that has room for it. With sequential sampling a row goes
 * into the pack of the row before it as long as that has room. A window is packed again when one of its packs is read,
 * so memory does not grow with the rows.
 */
#ifndef SNUG_DATA_PACKS_H
#define SNUG_DATA_PACKS_H

#include "data/sampler.h"

struct snug_packs {
    const struct snug_dataset *dataset;
    int64_t tokens; /* at most, in a pack */
    struct snug_order order;
    uint32_t *words;         /* the order's table */
    int64_t window, windows; /* rows of a window; number of windows */
    int64_t *first;          /* [windows + 1] number of each window's first pack; the last is the number of packs */
    int64_t most_rows, most_tokens, longest;
    struct snug_sizes sizes; /* of all packs */
};

/* Packs all rows once. A row of more than `tokens` tokens is SNUG_E_USAGE, naming the length. Closed after a failure,
   too. */
snug_status snug_packs_open(snug_context *ctx, const struct snug_dataset *dataset, int64_t tokens,
                            enum snug_sampling sampling, uint64_t seed, struct snug_packs *out);
void snug_packs_close(struct snug_packs *packs);
static inline int64_t snug_packs_count(const struct snug_packs *packs) { return packs->first[packs->windows]; }

/* A thread's view of the packs; the last window is cached. */
struct snug_packer {
    const struct snug_packs *packs;
    struct snug_lengths lengths;
    int64_t cached, count;   /* number of the cached window, -1: none; its packs */
    int64_t *members, *rows; /* [window] in the order of the rows; in that of the packs */
    int32_t *tokens, *sorted, *scratch, *pack_of;
    int32_t *starts; /* [window + 1] of each pack in rows */
    int32_t *room;   /* [2 * leaves] a tree of the largest room of any pack */
    int64_t leaves;
};
/* Freed by the caller, also after a failure. */
snug_status snug_packer_init(snug_context *ctx, const struct snug_packs *packs, struct snug_packer *out);
void snug_packer_free(struct snug_packer *packer);
/* The rows of a pack, valid until the next call. */
snug_status snug_packer_rows(snug_context *ctx, struct snug_packer *packer, int64_t pack, const int64_t **rows,
                             int64_t *count);

#endif
