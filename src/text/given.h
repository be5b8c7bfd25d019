/* SPDX-License-Identifier: Apache-2.0 */
/* A data set whose rows are texts in memory, replaced by others again and again: for a loaded model. */
#ifndef SNUG_TEXT_GIVEN_H
#define SNUG_TEXT_GIVEN_H

#include "text/dataset.h"

/* Of options it uses task and max_length. It has no rows yet, and no labels. */
snug_status snug_dataset_open_given(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                    const struct snug_dataset_options *options, struct snug_dataset **out);
/* Replaces its rows by count texts, number 0 of which is number first in messages. pairs: the second texts, or NULL.
   SNUG_E_USAGE: a text is missing, is not UTF-8, or pairs are not for this task. */
snug_status snug_dataset_give(snug_context *ctx, struct snug_dataset *dataset, const char *const *texts,
                              const char *const *pairs, int64_t count, int64_t first);

#endif
