/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shards: how the elements of a tensor are divided over the ranks of a run. A shard is a range of elements, and the
 * shards of a tensor follow each other in the order of the ranks. A tensor is divided in chunks: each rank has the same
 * number of them, and those that are left over go to the ranks from `start` on, one each, cyclically.
 */
#ifndef SNUG_PROGRAM_SHARDS_H
#define SNUG_PROGRAM_SHARDS_H

#include <stdint.h>

struct snug_shards {
    int64_t elements; /* of the whole tensor */
    int64_t chunk;    /* elements of a chunk; the last one may have fewer; 0: the tensor is not divided */
    int32_t ranks, start;
};

/* Number of the first element of a rank's shard; of rank `ranks`: the number of elements. */
static inline int64_t snug_shard_begin(const struct snug_shards *s, int rank) {
    const int64_t chunks = (s->elements + s->chunk - 1) / s->chunk, left = chunks % s->ranks;
    const int64_t over = s->start + left - s->ranks; /* chunks left over that ranks from 0 on have */
    int64_t before = rank < s->start ? 0 : rank - s->start;
    if (before > left) before = left;
    if (over > 0) before = (rank < over ? rank : over) + (rank < s->start ? 0 : rank - s->start);
    const int64_t begin = (chunks / s->ranks * rank + before) * s->chunk;
    return begin < s->elements ? begin : s->elements;
}

static inline int64_t snug_shard_size(const struct snug_shards *s, int rank) {
    return snug_shard_begin(s, rank + 1) - snug_shard_begin(s, rank);
}

/* Elements of the largest shard. */
static inline int64_t snug_shard_largest(const struct snug_shards *s) {
    int64_t largest = 0;
    for (int rank = 0; rank < s->ranks; rank++)
        if (snug_shard_size(s, rank) > largest) largest = snug_shard_size(s, rank);
    return largest;
}

/* The shards in bytes instead of elements of `size` bytes. */
static inline struct snug_shards snug_shards_in_bytes(const struct snug_shards *s, int64_t size) {
    return (struct snug_shards){s->elements * size, s->chunk * size, s->ranks, s->start};
}

#endif
