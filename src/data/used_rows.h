/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows of a data file are used: those that have a label, of which a split evaluates on some. */
#ifndef SNUG_DATA_USED_ROWS_H
#define SNUG_DATA_USED_ROWS_H

#include "data/classes.h"

/* Rows that have no label, or one that means that they have none, are not used from here on (data/missing_labels.h);
   the labels are bound. If there are any, their number and labels are logged. None is left: SNUG_E_INPUT. */
snug_status snug_dataset_leave_out(snug_context *ctx, struct snug_dataset *dataset);

/* Divides the rows of a file that is open twice: eval uses so many of them, train the others. Without labels (NULL)
   those are the first rows. Else they are drawn by seed; where each row has one label, each class has the same share in
   both parts, as far as whole rows allow, and a class of several rows is in both if there is room. train's labels are
   bound. */
snug_status snug_dataset_split(snug_context *ctx, struct snug_dataset *train, struct snug_dataset *eval,
                               const struct snug_labels *labels, int64_t rows, uint64_t seed);
/* Uses the rows of these places in the file, ascending, and no others. */
snug_status snug_dataset_use_rows(snug_context *ctx, struct snug_dataset *dataset, const int64_t *rows, int64_t count);
/* Uses only the first rows of those that are used. */
void snug_dataset_use_first(struct snug_dataset *dataset, int64_t rows);

#endif
