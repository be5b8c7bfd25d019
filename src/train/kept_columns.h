/* SPDX-License-Identifier: Apache-2.0 */
/* --keep_columns: columns of the data file beside its predictions. The file is read a second time, row by row. */
#ifndef SNUG_TRAIN_KEPT_COLUMNS_H
#define SNUG_TRAIN_KEPT_COLUMNS_H

#include "args/args.h"
#include "data/dataset_options.h"
#include "data/reader.h"

struct snug_kept_columns {
    snug_context *ctx;
    struct snug_reader *reader; /* NULL: none are kept */
    size_t count;
    char **names;
    size_t *columns;
    const char **texts; /* of the current row; NULL: it has no value */
    char **made;        /* texts of lists */
    int64_t line;       /* of the current row */
};

/* Before any work: SNUG_E_USAGE if the file cannot be read twice. */
snug_status snug_kept_columns_check(const struct snug_args *args);
/* Opens the file, of which used are the columns that are predicted from. words: its rows are words. Closed in any case.
 */
snug_status snug_kept_columns_open(const struct snug_args *args, bool words, const struct snug_used_columns *used,
                                   struct snug_kept_columns *out);
/* Reads on to the row that begins in that line; rows come in the file's order. */
snug_status snug_kept_columns_seek(struct snug_kept_columns *kept, int64_t line);
void snug_kept_columns_close(struct snug_kept_columns *kept);

#endif
