/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lengths of many rows at arbitrary positions of a data set, read from its cache: none stay in memory, so a data
 * set of any size takes the same memory.
 */
#ifndef SNUG_DATA_LENGTHS_H
#define SNUG_DATA_LENGTHS_H

#include "data/dataset.h"

/* The state of one thread: 4 bytes for each row of a request, and at most 96 KiB. */
struct snug_lengths {
    const struct snug_dataset *dataset;
    int64_t capacity;
    int32_t *order;   /* [capacity] the requested rows, sorted by their blocks */
    uint32_t *starts; /* the beginning of each block's rows in order */
    void *block;
    int bits;                   /* of a row's number within a block */
    struct snug_lengths *after; /* of the data set whose rows follow; NULL: none */
};
/* For at most capacity rows at a time. Freed by the caller, also after a failure. */
snug_status snug_lengths_init(snug_context *ctx, const struct snug_dataset *dataset, int64_t capacity,
                              struct snug_lengths *out);
void snug_lengths_free(struct snug_lengths *lengths);
/* Tokens of rows[0 … count-1]. */
snug_status snug_lengths_read(snug_context *ctx, struct snug_lengths *lengths, const int64_t *rows, int64_t count,
                              int32_t *out);

#endif
