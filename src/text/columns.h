/* SPDX-License-Identifier: Apache-2.0 */
/* Which columns of a file hold the texts and the label. */
#ifndef SNUG_TEXT_COLUMNS_H
#define SNUG_TEXT_COLUMNS_H

#include "text/dataset.h"

struct snug_columns {
    size_t text[2], texts; /* columns of the first text and, where texts is 2, of the second */
    size_t label;
    bool has_label;
};

/* As run_glue.py (classification) and run_mlm.py (masked LM) find them, or as options name them. */
snug_status snug_columns_find(snug_context *ctx, const struct snug_dataset_options *options, const char *const *names,
                              size_t count, struct snug_columns *out);

#endif
