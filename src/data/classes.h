/* SPDX-License-Identifier: Apache-2.0 */
/* The classes of a model: what the raw labels of a data set mean. */
#ifndef SNUG_DATA_CLASSES_H
#define SNUG_DATA_CLASSES_H

#include "data/dataset.h"
#include "data/loader_options.h"

/* The classes of a model: names by class number. For regression count is 1 and the name LABEL_0. */
struct snug_labels {
    enum snug_problem problem;
    int64_t count;
    char **names;
};
enum snug_regression { SNUG_REGRESSION_AUTO, SNUG_REGRESSION_YES, SNUG_REGRESSION_NO };
/* As run_glue.py and run_classification.py decide: a number that is not whole → regression; lists → multi-label; else
   single label with the classes sorted (whole numbers by value, strings by code point; columns of zeros and ones keep
   their order). Whole numbers are classes by their value: 1.0 is the class 1. Labels that mean that a row has none are
   not classes (data/missing_labels.h). Words, nan or inf among numbers, and numbers with a comma → SNUG_E_INPUT. With
   SNUG_REGRESSION_NO (--do_regression False) all of these are classes. Fewer than two classes are SNUG_E_INPUT. Tags
   are single labels; numbers of classes give LABEL_0 … up to the highest one. Classes that a program has named
   (snug_rows_classes()) are all there, in its order. */
snug_status snug_labels_of(snug_context *ctx, struct snug_dataset *train, enum snug_regression regression,
                           struct snug_labels *out);
/* Adds the classes that only eval has, the data of a training's evaluations, with a warning, as run_classification.py
   does. A label that a person hardly tells apart from a class is not added, and labels of another form are not. */
snug_status snug_labels_add(snug_context *ctx, struct snug_labels *labels, const struct snug_dataset *train,
                            struct snug_dataset *eval);
void snug_labels_free(struct snug_labels *labels);
/* Whether both name the same classes, in whatever order. */
snug_status snug_labels_match(snug_context *ctx, const struct snug_labels *a, const struct snug_labels *b, bool *out);
/* Whether the model's classes can be used for train, whose own are data: they are the same, or train's labels are class
   numbers and the model has all of them. */
snug_status snug_labels_serve(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *model,
                              const struct snug_labels *data, bool *out);
/* Class of every raw label of dataset, by its number; for regression nothing. A raw label that is not in labels is
   SNUG_E_INPUT naming file, line and label, unless it means that a row has none: then it is SNUG_IGNORE_LABEL, and
   snug_dataset_leave_out() (data/used_rows.h) is needed. Stored in the dataset for the loader. */
snug_status snug_dataset_bind_labels(snug_context *ctx, struct snug_dataset *dataset, const struct snug_labels *labels);
/* Whether the bound labels of all rows are classes: a label that means that a row has none is SNUG_E_INPUT, and the
   labels are no longer bound. */
snug_status snug_dataset_check_labels(snug_context *ctx, struct snug_dataset *dataset);

/* Counts the items of each class in all rows of a data set whose labels are bound: counts [options->labels], which the
   caller set to 0, and *items, those of any class. */
snug_status snug_classes_count(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, int64_t counts[], int64_t *items);

#endif
