/* SPDX-License-Identifier: Apache-2.0 */
/* What may be wrong with the labels of a data file, although they can be used: warnings. */
#ifndef SNUG_DATA_LABEL_CHECKS_H
#define SNUG_DATA_LABEL_CHECKS_H

#include "data/classes.h"

/* Warns about data to train on, whose labels are bound: classes that a person hardly tells apart, as many classes as
   rows, numbers with a point that are classes, tags that programs write for a missing value. */
snug_status snug_labels_check(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *labels);

/* Warns about the rows that are used: classes without a row to train on; or, if they are evaluated on, that all have
   one class. whole: the rows are all of the file's. options: as for snug_classes_count(). */
snug_status snug_classes_check(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                               const struct snug_loader_options *options, bool whole, bool trains);

#endif
