/* SPDX-License-Identifier: Apache-2.0 */
/* How a file writes the labels of its rows, and how many classes they may name. */
#ifndef SNUG_DATA_LABEL_FORM_H
#define SNUG_DATA_LABEL_FORM_H

/* Maximum number of classes of a model that snug can read back. */
enum { SNUG_CLASSES_MOST = 1 << 20 };

/* The form of a file's raw labels. */
enum snug_label_form {
    SNUG_LABELS_NONE,
    SNUG_LABELS_INTEGER,     /* every row one whole number */
    SNUG_LABELS_REAL,        /* every row one number, at least one not whole */
    SNUG_LABELS_STRING,      /* every row one string */
    SNUG_LABELS_LIST,        /* JSON lists, or strings of which at least one holds '|' */
    SNUG_LABELS_NONFINITE,   /* every row one number, or the word nan or inf: not a valid column of numbers */
    SNUG_LABELS_TAGS,        /* rows are words, each with a string */
    SNUG_LABELS_TAG_NUMBERS, /* rows are words, each with an integer from 0: the number of a class */
    SNUG_LABELS_MIXED,       /* every row one number or one word */
    SNUG_LABELS_MULTI_HOT,   /* every row a list of as many zeros and ones as there are classes */
    SNUG_LABELS_COLUMNS,     /* a column of zeros and ones for each class, which has the column's name */
    SNUG_LABELS_MASK,        /* no labels: which tokens have a loss (data/loss_mask.h) */
    SNUG_LABELS_TEXTS,       /* the texts of a row, and its score (data/row_texts.h) */
    SNUG_LABELS_ANSWERS,     /* no labels: the answers of a question (data/answers.h) */
    SNUG_LABELS_GROUP,       /* the members of a group, and their targets (data/groups.h) */
};
enum { SNUG_LABEL_FORM_COUNT = SNUG_LABELS_GROUP + 1 };

#endif
