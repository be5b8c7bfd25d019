/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks: what a row of data is, which of its tokens have a loss (the loss positions), the kind of head and the
 * loss, and the divisor of a step's mean. A task is data/task_NAME.c, train/task_NAME.c with its metrics and its
 * predictions (metrics/task_results.h), and one line of the list in data/tasks.h. Model families have a head of each
 * kind.
 */
#ifndef SNUG_DATA_TASK_H
#define SNUG_DATA_TASK_H

#include "core/context.h"
#include "data/dataset_row.h"
#include "data/loader_options.h"

struct snug_dataset;
struct snug_collator;
struct snug_object_rows;

struct snug_items {
    int64_t count;
    double weight; /* in the order of rows: a batch's sum has the same bits as batch->weight */
};

struct snug_task_info {
    const char *title;                      /* for reports */
    const char *short_title;                /* the same, in messages */
    bool labelled;                          /* rows have labels, from which the classes come */
    const struct snug_object_rows *objects; /* a row is an object of several columns; NULL: it is not */
    bool groups;                            /* which is a group of texts (data/groups.h) */
    int64_t max_length;                     /* default of --max_seq_length; 0: the argument's own */
    bool words;       /* a row is a list of words and a list of their tags, not texts and a label */
    bool preferences; /* a row is a prompt with a chosen and a rejected completion, two sequences */
    bool apart;       /* a row is one or several texts, each a sequence of its own, and may have a score */
    bool joins;       /* texts are joined and cut into blocks, unless options say line by line */
    bool skips_empty; /* line by line, a text without tokens is not a row */
    bool problems;    /* one label per row, several, or a value (enum snug_problem) */
    bool causal;      /* a token is predicted from those before it, which decoders do */
    bool scored;      /* each loss position has a target */
    bool other_class; /* model_class is the class of other models, too: it does not show the task */
    enum snug_head head;
    const char *model_class; /* transformers' class of a model with that head, after the family's name */
    enum snug_loss_kind loss[SNUG_PROBLEM_COUNT]; /* by the problem of the labels */
    const char *only[24];                         /* arguments that are for this task, and those that name them, only */

    bool pairs; /* a row may be a pair of texts */
    /* Usual names of the columns, the first one of a file; up to NULL. */
    const char *text_column[4], *label_column[8];

    /* Whether options are valid; NULL: nothing to check. */
    snug_status (*check)(snug_context *ctx, const struct snug_loader_options *options);
    /* The number of snug_batch.targets for this number of loss positions; NULL: none, or scored. */
    int64_t (*targets)(const struct snug_loader_options *options, int64_t positions);
    /* Loss positions of a mean batch with these numbers of sequences and tokens: data/positions.h. NULL: all
       tokens, or, if the head is of sequences, these. */
    double (*positions)(const struct snug_loader_options *options, const struct snug_dataset *dataset, double sequences,
                        double tokens);
    /* The items of a row, of weight 1 each. */
    int64_t (*items)(const struct snug_loader_options *options, const struct snug_dataset_row *text);
    /* Adds the items of a row that is not in a batch, and their weights; NULL: those of items(). */
    snug_status (*count)(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                         struct snug_items *items);
    /* Appends the loss positions of a row, whose tokens begin at first in the batch, with labels, targets, items and
       their weights; of a row of several texts those of one of them, of a group those of all. */
    void (*collate)(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch);
    /* Adds the row's items to counts[class], of several labels those that the row has, and returns the items of any
       class. NULL: the task has no classes. */
    int64_t (*classes)(const struct snug_dataset *dataset, const struct snug_loader_options *options,
                       const struct snug_dataset_row *text, int64_t counts[]);
};

#define SNUG_DECLARE_TASK(NAME, name, others) extern const struct snug_task_info snug_task_##name;
SNUG_TASKS(SNUG_DECLARE_TASK)
#undef SNUG_DECLARE_TASK

/* The weight of an item of this class. */
static inline double snug_item_weight(const struct snug_loader_options *options, int32_t class) {
    return options->class_weights ? (double)options->class_weights[class] : 1;
}

const struct snug_task_info *snug_task_info(enum snug_task task);
/* In arguments, plans and checkpoints. */
const char *snug_task_name(enum snug_task task);
/* config.problem_type. */
const char *snug_problem_name(enum snug_problem problem);
/* Whether any token can be a loss position; else each sequence has one. */
static inline bool snug_task_is_per_token(const struct snug_task_info *task) {
    return task->head != SNUG_HEAD_SEQUENCE && task->head != SNUG_HEAD_VECTOR && task->head != SNUG_HEAD_CHOICE;
}
/* The task of that name; -1 if there is none. */
int snug_task_find(const char *name);

#endif
