/* SPDX-License-Identifier: Apache-2.0 */
/* What is put before the texts of a column. */
#ifndef SNUG_DATA_COLUMN_PROMPTS_H
#define SNUG_DATA_COLUMN_PROMPTS_H

#include "data/columns.h"

/* Whether options->prompts names text columns alone, if all of its names must be some: else SNUG_E_INPUT. */
snug_status snug_column_prompts_check(snug_context *ctx, const struct snug_dataset_options *options,
                                      const struct snug_columns *columns, const char *const *names);
/* The prompt of text number i; NULL: none. names: of all columns. */
const char *snug_column_prompt(const struct snug_dataset_options *options, const struct snug_columns *columns,
                               const char *const *names, size_t i);

#endif
