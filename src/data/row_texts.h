/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a row whose texts are sequences of their own, as snug_dataset_row.labels holds them: the number of
   texts, the number of tokens of each, and the bits of the row's score as fp32 if it has one. */
#ifndef SNUG_DATA_ROW_TEXTS_H
#define SNUG_DATA_ROW_TEXTS_H

#include <math.h>
#include <string.h>

#include "data/dataset_row.h"

struct snug_row_texts {
    int64_t count;
    const uint32_t *tokens; /* [count] */
    bool scored;
    float score; /* 0 if there is none */
};

static inline size_t snug_row_texts_numbers(size_t texts, bool scored) { return 1 + texts + scored; }

/* Whether numbers are those of a row of so many tokens. */
static inline bool snug_row_texts_of(const uint32_t *numbers, int64_t count, int64_t tokens,
                                     struct snug_row_texts *out) {
    if (count < 2 || numbers[0] < 1 || count < 1 + (int64_t)numbers[0]) return false;
    *out = (struct snug_row_texts){.count = numbers[0], .tokens = numbers + 1, .scored = count > 1 + numbers[0]};
    int64_t sum = 0;
    for (int64_t i = 0; i < out->count; i++) sum += numbers[1 + i];
    if (out->scored) memcpy(&out->score, &numbers[1 + out->count], sizeof out->score);
    return sum == tokens && count == (int64_t)snug_row_texts_numbers(numbers[0], out->scored) && isfinite(out->score);
}

#endif
