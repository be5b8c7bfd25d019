/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --batch_sampler no_duplicates: an order of the rows in which no text is twice in an optimizer step, whatever its
 * column, because a loss takes the other rows' texts as negatives. Texts are the same if their tokens are.
 *
 * Rows come in the random order of their epoch. A row with a text that the step has already waits, and is offered to
 * the steps after it. All epochs have the rows of the first one's full steps and of the step after them, as many as it
 * has without a text twice; those that still wait then are left out of the epoch. An epoch whose waiting rows do not
 * fill a step takes some that it had already.
 */
#ifndef SNUG_DATA_DISTINCT_H
#define SNUG_DATA_DISTINCT_H

#include "data/dataset.h"
#include "data/loader_options.h"

struct snug_distinct;

/* Reads all texts. step: rows of an optimizer step; SNUG_E_INPUT if no step of so many rows is possible. Memory: 8
   bytes a text, 8 a row. Closed by the caller; NULL may be closed. */
snug_status snug_distinct_open(snug_context *ctx, const struct snug_dataset *dataset, int64_t step,
                               enum snug_sampling sampling, uint64_t seed, struct snug_distinct **out);
void snug_distinct_close(struct snug_distinct *distinct);
/* Rows of the data set; those of an epoch; those that the first epoch had to put off. */
int64_t snug_distinct_all(const struct snug_distinct *distinct);
int64_t snug_distinct_used(const struct snug_distinct *distinct);
int64_t snug_distinct_put_off(const struct snug_distinct *distinct);
/* The rows at place … place + count - 1 of an epoch. From any thread, as long as all ask for the same epoch; the first
   one computes it. */
void snug_distinct_rows(struct snug_distinct *distinct, int64_t epoch, int64_t place, int64_t count, int64_t *rows);

#endif
