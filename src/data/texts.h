/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a data file or of rows in memory, row by row, without labels. */
#ifndef SNUG_DATA_TEXTS_H
#define SNUG_DATA_TEXTS_H

#include "data/columns.h"

struct snug_texts {
    struct snug_reader *reader;
    struct snug_peek peek; /* its rows */
    struct snug_text_source source;
};
/* Opens the data that options name, and finds its columns. Freed in any case with snug_texts_close(). */
snug_status snug_texts_open(snug_context *ctx, const struct snug_dataset_options *options, struct snug_texts *out);
void snug_texts_close(struct snug_texts *texts);

#endif
