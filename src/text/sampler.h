/* SPDX-License-Identifier: Apache-2.0 */
/* The order of an epoch: which row stands at which place. */
#ifndef SNUG_TEXT_SAMPLER_H
#define SNUG_TEXT_SAMPLER_H

#include "text/loader.h"

/* One thread's view of the order. Grouping by length needs the window that a place lies in; the last one is kept. */
struct snug_order {
    const struct snug_dataset *dataset;
    enum snug_sampling sampling;
    uint64_t seed;
    int64_t rows;
    int64_t window, cached_epoch, cached_first; /* rows a window; which one is kept */
    int32_t *sorted, *scratch, *keys;           /* [window] */
    int64_t *members;                           /* [window] rows in the order of the permutation */
};
snug_status snug_order_init(snug_context *ctx, const struct snug_dataset *dataset,
                            const struct snug_loader_options *options, struct snug_order *out);
void snug_order_free(struct snug_order *order);
int64_t snug_order_row(struct snug_order *order, int64_t epoch, int64_t place);

#endif
