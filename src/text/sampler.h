/* SPDX-License-Identifier: Apache-2.0 */
/* The order of an epoch: the row at each position. */
#ifndef SNUG_TEXT_SAMPLER_H
#define SNUG_TEXT_SAMPLER_H

#include "text/lengths.h"
#include "text/loader.h"

/* One thread's view of the order. Grouping by length needs the window that contains a position; the last window is
   cached. */
struct snug_order {
    const struct snug_dataset *dataset;
    enum snug_sampling sampling;
    uint64_t seed;
    int64_t rows;
    int bits;                                   /* of the permutation's network */
    const uint32_t *words;                      /* of the epoch that is scanned; NULL: lengths are read when needed */
    int64_t window, cached_epoch, cached_first; /* rows per window; number of the cached window */
    int32_t *sorted, *scratch, *keys;           /* [window] */
    int64_t *members;                           /* [window] rows in the order of the permutation */
    struct snug_lengths lengths;                /* of them */
};
/* Freed by the caller, also after a failure. */
snug_status snug_order_init(snug_context *ctx, const struct snug_dataset *dataset,
                            const struct snug_loader_options *options, struct snug_order *out);
void snug_order_free(struct snug_order *order);
snug_status snug_order_row(snug_context *ctx, struct snug_order *order, int64_t epoch, int64_t place, int64_t *row);

/* Rows that grouping by length sorts at a time. */
int64_t snug_order_window(int64_t rows, const struct snug_loader_options *options);
/* The rows at place … place + count - 1, before windows are sorted: faster than one by one. */
void snug_order_unsorted(const struct snug_order *order, int64_t epoch, int64_t place, int64_t count, int64_t *rows);
/* The lengths of a window's rows, made what they are when it is sorted. */
void snug_order_sort_lengths(struct snug_order *order, int32_t *lengths, int64_t count);

/* For scans of a whole epoch: tabulates all random words of its permutation, about 7 sqrt(rows), so that a position
   takes look-ups instead of Philox. The order is the same. */
int64_t snug_permutation_words(int64_t rows);
void snug_permutation_tabulate(uint64_t seed, int64_t epoch, int64_t rows, uint32_t *words);

#endif
