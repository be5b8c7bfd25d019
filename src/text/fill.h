/* SPDX-License-Identifier: Apache-2.0 */
/* Filling one batch: a pure function of (data set, options, epoch, batch number), whichever thread does it. */
#ifndef SNUG_TEXT_FILL_H
#define SNUG_TEXT_FILL_H

#include "text/sampler.h"

/* What one thread needs to fill batches. */
struct snug_filler {
    const struct snug_dataset *dataset;
    const struct snug_loader_options *options;
    struct snug_loader_limits limits; /* what a batch's arrays hold */
    struct snug_order order;
    struct snug_row_buffer buffer;
    int32_t *scratch; /* [limits.tokens], owned by the caller */
    int64_t batches;  /* of an epoch */
};
/* Freed by the caller, also after a failure. */
snug_status snug_filler_init(snug_context *ctx, const struct snug_dataset *dataset,
                             const struct snug_loader_options *options, const struct snug_loader_limits *limits,
                             int32_t *scratch, struct snug_filler *out);
void snug_filler_free(struct snug_filler *filler);

/* Fills batch number of an epoch. items_in_step is right in a step's first batch only: the others share it. */
snug_status snug_filler_fill(snug_context *ctx, struct snug_filler *filler, int64_t epoch, int64_t number,
                             struct snug_batch *batch);

#endif
