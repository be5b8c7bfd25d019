/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a data set, as it is read. */
#ifndef SNUG_DATA_DATASET_ROW_H
#define SNUG_DATA_DATASET_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snug_dataset_row {
    const int32_t *ids;
    int64_t count, first_count; /* tokens; tokens of type 0 */
    const uint32_t *labels;     /* numbers of raw labels, see snug_dataset_raw_label; or a value, see data/labels.h; or
                                   words with tags, see data/words.h */
    int64_t label_count;        /* 0 where the row has none */
    int64_t line;               /* in the file, from 1 */
    bool truncated;             /* the text was truncated to max_length */
    const int32_t *prompts;     /* [texts] tokens of the prompt of each, which pooling leaves out; NULL: none */
};

/* The buffer of a row: zero-initialise, one per thread, free(data). */
struct snug_row_buffer {
    void *data;
    size_t capacity;
};

#endif
