/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels that mean that a row has none: -1, as in run_classification.py, "-", as in data of sentence pairs, what
 * --missing_label_values names, and the words that programs write for a missing value.
 */
#ifndef SNUG_DATA_MISSING_LABELS_H
#define SNUG_DATA_MISSING_LABELS_H

#include "data/dataset.h"

/* Marks the labels that the data set's option names (--missing_label_values), and no others. */
void snug_missing_labels_mark_given(struct snug_dataset *dataset);
/* Among classes to train on, where no option says anything: marks -1 if the other classes are 0, 1, 2 or more, or
   words, and "-" unless there is "+". If fewer than two classes would remain, or -1 may be a value, as that of bad
   among bad, neutral and good, they are classes, with a warning. A word for a missing value is SNUG_E_INPUT. Where a
   program has named the classes (snug_rows_classes()), marks what is no class. */
snug_status snug_missing_labels_mark(snug_context *ctx, struct snug_dataset *dataset);
/* Whether a label of which a model has no class means that a row has none: -1 and "-", where no option says anything.
 */
bool snug_missing_label_is_mark(const struct snug_dataset *dataset, size_t number);
/* Whether a text is what programs write for a missing value. */
bool snug_is_missing_word(const char *text);
/* The form of the labels that are not marked. */
void snug_missing_labels_find_form(struct snug_dataset *dataset);

#endif
