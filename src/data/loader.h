/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler and the loader. The order of an epoch is a permutation computed from (seed, epoch) in O(1) memory (a
 * Feistel network over the row numbers, with cycle walking), so that resuming needs no replay. Grouping by length sorts
 * windows of that order, longest first, as transformers' LengthGroupedSampler does: 50 steps of rows each, or a quarter
 * of the data. The rows of a step with several micro-batches are dealt to them by length, so that ranks have the same
 * work (struct snug_deal). Loader threads collate batches ahead of time, in order; the batches do not depend on the
 * number of threads. Sequential sampling, which evaluation uses, has the same masks in every epoch.
 */
#ifndef SNUG_DATA_LOADER_H
#define SNUG_DATA_LOADER_H

#include "data/dataset.h"
#include "data/loader_options.h"

struct snug_loader;

/* Whether options are valid for the data set. */
snug_status snug_loader_check(snug_context *ctx, const struct snug_dataset *dataset,
                              const struct snug_loader_options *options);
/* Scans the order of epochs 0 … epochs - 1 (stopping after max_steps optimizer steps if that is > 0). More than 3
   epochs with over 2^24 rows in all are not scanned: the limits are then those of any order, so that the time does not
   grow with the steps. */
snug_status snug_loader_limits(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, int64_t epochs, int64_t max_steps,
                               struct snug_loader_limits *out);
/* Bytes of the batch arrays for prefetch + current: what the arena's class "batch" must hold. */
int64_t snug_loader_bytes(const struct snug_loader_limits *limits, const struct snug_loader_options *options);

/* memory: snug_loader_bytes() bytes, 64-byte aligned, owned by the caller for the loader's life. */
snug_status snug_loader_create(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, const struct snug_loader_limits *limits,
                               void *memory, struct snug_loader **out);
void snug_loader_destroy(struct snug_loader *loader);
/* Starts epoch at optimizer step first_step of it (0, or the step at which a resumed run continues); drops prefetched
   batches. */
snug_status snug_loader_begin_epoch(struct snug_loader *loader, int64_t epoch, int64_t first_step);
/* This rank's next batch, valid until the next call; SNUG_END after the epoch's last. */
snug_status snug_loader_next(struct snug_loader *loader, const struct snug_batch **out);
/* Tokens of all batches so far, and tokens if each batch were padded to its longest sequence. */
void snug_loader_padding(const struct snug_loader *loader, int64_t *tokens, int64_t *padded);

#endif
