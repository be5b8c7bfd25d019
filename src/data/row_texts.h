/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a row whose texts are sequences of their own, as snug_dataset_row.labels holds them: the number of
   texts, the number of tokens of each, and the bits of the row's score as fp32 if it has one. */
#ifndef SNUG_DATA_ROW_TEXTS_H
#define SNUG_DATA_ROW_TEXTS_H

#include "data/dataset_row.h"

struct snug_row_texts {
    int64_t count;
    const uint32_t *tokens; /* [count] */
    bool scored;
    float score; /* 0 if there is none */
};

static inline size_t snug_row_texts_numbers(size_t texts, bool scored) { return 1 + texts + scored; }

/* Whether numbers are those of a row of so many tokens. */
bool snug_row_texts_of(const uint32_t *numbers, int64_t count, int64_t tokens, struct snug_row_texts *out);

#endif
