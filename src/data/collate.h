/* SPDX-License-Identifier: Apache-2.0 */
/* Collates one batch: a pure function of (data set, options, epoch, batch number), in whichever thread. */
#ifndef SNUG_DATA_COLLATE_H
#define SNUG_DATA_COLLATE_H

#include "data/masking.h"
#include "data/packs.h"
#include "data/sampler.h"

/* The state of a thread that collates batches. */
struct snug_collator {
    const struct snug_dataset *dataset;
    const struct snug_loader_options *options;
    struct snug_loader_limits limits; /* capacity of a batch's arrays */
    struct snug_order order;
    struct snug_packer packer; /* of micro-batches by tokens */
    struct snug_row_buffer buffer;
    struct snug_masking masking; /* of masked LM */
    int32_t *scratch;            /* [limits.tokens], owned by the caller */
    int64_t batches;             /* of an epoch */
};
/* Freed by the caller, also after a failure. */
snug_status snug_collator_init(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, const struct snug_loader_limits *limits,
                               int32_t *scratch, struct snug_collator *out);
void snug_collator_free(struct snug_collator *collator);

/* Collates batch `number` of an epoch. items_in_step is set in a rank's first batch of a step only. */
snug_status snug_collator_collate(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t number,
                                  struct snug_batch *batch);

#endif
