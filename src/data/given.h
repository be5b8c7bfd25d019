/* SPDX-License-Identifier: Apache-2.0 */
/* A data set whose rows are texts in memory, replaced by others again and again: for a loaded model. */
#ifndef SNUG_DATA_GIVEN_H
#define SNUG_DATA_GIVEN_H

#include "data/dataset.h"
#include "data/texts.h"

/* A text, or words, each with a NUL after it. */
struct snug_given_text {
    const char *text;
    size_t length;
    bool words;
};

/* It uses the options task and max_length. It has no rows yet, and no labels. */
snug_status snug_dataset_open_given(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                    const struct snug_dataset_options *options, struct snug_dataset **out);
/* Replaces its rows by count texts, number 0 of which is number first in messages. pairs: the second texts, or NULL.
   SNUG_E_USAGE: a text is missing, is not UTF-8, or pairs are not for this task. */
snug_status snug_dataset_give(snug_context *ctx, struct snug_dataset *dataset, const struct snug_given_text *texts,
                              const struct snug_given_text *pairs, int64_t count, int64_t first);

/* The texts of rows in memory, some at a time. */
struct snug_given_rows {
    struct snug_texts texts;
    struct snug_row_buffer joined;
    char *text; /* of the rows that are held */
    size_t size, capacity;
    struct snug_given_text *items; /* [2][most] their texts, and the second ones of pairs */
    int64_t most;
};
/* options: those of the data set, with the rows. Freed in any case with snug_given_rows_close(). */
snug_status snug_given_rows_open(snug_context *ctx, const struct snug_dataset_options *options, int64_t most,
                                 struct snug_given_rows *out);
/* The next rows, at most `most`: *count is 0 after the last. pairs is NULL if there are none. Valid until the next
   call. */
snug_status snug_given_rows_next(snug_context *ctx, struct snug_given_rows *rows, const struct snug_given_text **texts,
                                 const struct snug_given_text **pairs, int64_t *count);
void snug_given_rows_close(struct snug_given_rows *rows);

#endif
