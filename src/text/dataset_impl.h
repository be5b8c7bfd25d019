/* SPDX-License-Identifier: Apache-2.0 */
/* What a data set is inside this room. */
#ifndef SNUG_TEXT_DATASET_IMPL_H
#define SNUG_TEXT_DATASET_IMPL_H

#include "text/cache.h"

struct snug_dataset {
    char *path;
    struct snug_cache cache;         /* dummy data: its sizes and labels only */
    int64_t dummy_least, dummy_most; /* tokens of a dummy row; 0 where a file is behind */
    int32_t dummy_first, dummy_ids;  /* lowest id and number of ids */
    uint64_t seed;
    bool bound;       /* snug_dataset_bind_labels() has been called and there are labels */
    int32_t *classes; /* [raw labels] */
    float *values;    /* [raw labels] regression */
};

/* Tokens of a dummy row. */
int32_t snug_dataset_dummy_length(const struct snug_dataset *dataset, int64_t row);
/* Whether row, of which that many labels are known, has something for the loss. */
bool snug_dataset_is_labelled(const struct snug_dataset *dataset, int64_t labels);
/* How many of its labels are known. */
snug_status snug_dataset_count_labels(snug_context *ctx, const struct snug_dataset *dataset, int64_t row, int64_t *out);

#endif
