/* SPDX-License-Identifier: Apache-2.0 */
/* The order of an epoch: the row at each position; of packs, whose lengths are alike, the pack. */
#ifndef SNUG_DATA_SAMPLER_H
#define SNUG_DATA_SAMPLER_H

#include "data/lengths.h"
#include "data/loader_options.h"
#include "data/permutation.h"

/* How the rows of a step are dealt to its micro-batches, if it has several: so that all have the same work, as far as
   the lengths allow, because ranks that have one each wait for the slowest. The longest row first, each goes to the
   micro-batch that has the least work so far and room for a row. Within a micro-batch rows keep their order. A function
   of the lengths: it does not depend on the number of ranks. */
struct snug_deal {
    int64_t batch, rows;         /* rows of a micro-batch; of a step, or 0: steps have one micro-batch */
    int64_t epoch, first, count; /* of the dealt step; count 0: none */
    int64_t *members;            /* [rows] the step's rows */
    int32_t *lengths;            /* [rows] */
    int32_t *sorted, *scratch;   /* [rows] */
    int32_t *batches;            /* [rows] by place in the step: the number of its micro-batch */
    int32_t *places;             /* [rows] by dealt place: the place in the step */
    struct snug_deal_batch {
        uint64_t work;
        int32_t number, left; /* left: rows for which there is room */
    } * heap;                 /* [micro-batches] */
};

/* One thread's view of the order. Grouping by length needs the window that contains a position; the last window is
   cached, and so is the last step that was dealt. */
struct snug_order {
    const struct snug_dataset *dataset;
    enum snug_sampling sampling;
    struct snug_distinct *distinct; /* the order is this one's; or NULL */
    uint64_t seed;
    int64_t rows;
    int bits;                                   /* of the permutation's network */
    const uint32_t *words;                      /* of the epoch that is scanned; NULL: lengths are read when needed */
    int64_t window, cached_epoch, cached_first; /* rows per window; number of the cached window */
    int32_t *sorted, *scratch, *keys;           /* [window] */
    int64_t *members;                           /* [window] rows in the order of the permutation */
    int64_t used, step;                         /* rows of an epoch, without those that are dropped; of a step */
    struct snug_deal deal;
    struct snug_lengths lengths; /* of them */
};
/* Freed by the caller, also after a failure. */
snug_status snug_order_init(snug_context *ctx, const struct snug_dataset *dataset,
                            const struct snug_loader_options *options, struct snug_order *out);
void snug_order_free(struct snug_order *order);
/* The row at position `place` of the epoch's micro-batches. *sample: its place in the step before rows are dealt, which
   does not depend on the number of micro-batches. */
snug_status snug_order_row(snug_context *ctx, struct snug_order *order, int64_t epoch, int64_t place, int64_t *row,
                           int64_t *sample);

/* Rows that grouping by length sorts at a time. */
int64_t snug_order_window(int64_t rows, const struct snug_loader_options *options);
/* The rows at place … place + count - 1, before windows are sorted: faster than one by one. */
void snug_order_unsorted(const struct snug_order *order, int64_t epoch, int64_t place, int64_t count, int64_t *rows);
/* The lengths of a window's rows, made what they are when it is sorted. */
void snug_order_sort_lengths(struct snug_order *order, int32_t *lengths, int64_t count);
/* Deals the lengths of a step's rows to its micro-batches. */
void snug_order_deal_lengths(struct snug_order *order, int32_t *lengths, int64_t count);

#endif
