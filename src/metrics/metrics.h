/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of an evaluation, streamed in constant memory (Spearman keeps 8 bytes per row, which the plan counts). */
#ifndef SNUG_METRICS_METRICS_H
#define SNUG_METRICS_METRICS_H

#include <math.h>

#include "data/batch.h"
#include "data/classes.h"
#include "dist/process_group.h"
#include "metrics/answers.h"
#include "metrics/similarity.h"

struct snug_dataset;
struct snug_judgements;

/* What decides which metrics an evaluation has. */
struct snug_metric_form {
    enum snug_task task;
    enum snug_problem problem;
    bool retrieves; /* sentence embeddings: documents are ranked for queries, by similarity */
    enum snug_similarity similarity;
};
/* Names of a result's metrics, in their order, up to NULL; others may follow them. */
const char *const *snug_metric_names(const struct snug_metric_form *form);
/* The index of the metric `name`, with or without "eval_"; -1 if there is none. */
int64_t snug_metric_find(const struct snug_metric_form *form, const char *name);
/* Whether smaller values of the metric are better: Trainer's losses, and snug's perplexity and mse. */
bool snug_metric_is_smaller_better(const char *name);

/* The metric that says most about the task. */
int64_t snug_metric_main(const struct snug_metric_form *form);

struct snug_metric_accumulator;

/* Metrics of an evaluation, as they are collected. */
enum { SNUG_METRICS_MOST = 256 };
struct snug_metric_list {
    size_t count;
    snug_metric items[SNUG_METRICS_MOST];
};
/* The list as callers see it: valid as long as the list, and until it changes. */
static inline snug_metrics snug_metrics_shown(const struct snug_metric_list *list) {
    return (snug_metrics){.count = list->count, .items = list->items};
}
/* A caller's own copy. confusion: [labels->count][labels->count], or NULL. */
snug_status snug_metrics_create(snug_context *ctx, const struct snug_metric_list *list,
                                const struct snug_labels *labels, const int64_t *confusion, snug_metrics **out);

struct snug_metric_accumulator_options {
    enum snug_task task;
    const struct snug_labels *labels; /* outlives the metrics */
    int64_t classes;                  /* width of the logits: the number of labels, for masked LM the vocabulary */
    int64_t rows;                     /* maximum number of loss positions that will be added, for Spearman */
    bool entities;                    /* token classification: also of each type of entity */
    bool each_class;                  /* classification: also of each class, and what depends on all scores */
    double threshold; /* multi-label: probability from which on a class is predicted; 0: above one half */
    /* Question answering: */
    const struct snug_dataset *dataset; /* whose rows are added; outlives the metrics */
    struct snug_answer_rules answers;
    enum snug_ranking_loss ranking_loss; /* reranking */
    /* A retrieval: rows are the queries, then the documents, of vectors of `classes` values. */
    const struct snug_judgements *judgements; /* outlive the metrics; NULL: it is none */
    enum snug_similarity similarity;
    int threads;
    int ranks, rank;    /* several ranks share the batches; memory depends on them for a retrieval alone */
    int64_t batch_size; /* rows of a batch */
};

/* memory: snug_metric_accumulator_bytes() bytes, 8-byte aligned, from the arena. */
int64_t snug_metric_accumulator_bytes(const struct snug_metric_accumulator_options *options);
snug_status snug_metric_accumulator_create(snug_context *ctx, const struct snug_metric_accumulator_options *options,
                                           void *memory, struct snug_metric_accumulator **out);
void snug_metric_accumulator_reset(struct snug_metric_accumulator *accumulator);
void snug_metric_accumulator_free(struct snug_metric_accumulator *accumulator);
/* What a model computes for loss positions first … first + rows - 1 of a batch. */
struct snug_chunk {
    int64_t first, rows;
    const int32_t *best; /* [rows]: see BEST (program/op.h); all values are finite */
    const float *logits; /* [rows, classes]; NULL where they are not needed */
};
/* Whether the metrics need logits, not only the best class. */
bool snug_metrics_need_logits(const struct snug_metric_accumulator_options *options);
/* Positions with SNUG_IGNORE_LABEL are ignored. Batches come in the order of their rows. */
void snug_metric_accumulator_add(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                                 const struct snug_batch *batch);
/* Adds the sum of the losses of items of this total weight, 1 each unless classes have weights; the logits are added
   separately. */
void snug_metric_accumulator_add_loss(struct snug_metric_accumulator *accumulator, double loss_sum, double weight);
/* Of preferences, with each batch's loss: the sums over its pairs, [SNUG_PREFERENCE_RESULTS]. */
void snug_metric_accumulator_add_results(struct snug_metric_accumulator *accumulator, const double *results);
/* After each round of batches, on all ranks; also on those that had none in the last round. */
snug_status snug_metric_accumulator_share(struct snug_metric_accumulator *accumulator,
                                          const struct snug_process_group *group);
/* On several ranks, each of which added every ranks-th batch, beginning with the batch of its number: afterwards all
   have what one rank has that added all batches. The losses are not merged: each rank adds those of all batches. Once,
   before the result. */
snug_status snug_metric_accumulator_merge(struct snug_metric_accumulator *accumulator,
                                          const struct snug_process_group *group);
/* SNUG_E_INTERNAL if more rows were added than announced, a label was not a class, or rows came after a result without
   a reset. eval_loss always. Single label: eval_accuracy, eval_f1 (binary: of class 1; else macro),
   eval_matthews_correlation. Multi-label: eval_accuracy (rows with all labels right), eval_f1 (micro). Regression:
   eval_mse, eval_pearson, eval_spearmanr. With each_class also eval_auc (the area under the ROC curve: of class 1 if
   there are two, else the mean of each class against the rest, over multi-label's classes the same) and for each class
   X eval_X_precision, eval_X_recall, eval_X_f1, eval_X_number, eval_X_auc if it is not the binary one, and for
   multi-label eval_X_threshold, the lowest one with the best F1, and eval_X_best_f1. Masked LM: eval_accuracy,
   perplexity = exp(eval_loss). Token classification, as seqeval: eval_precision, eval_recall and eval_f1 of entities,
   eval_accuracy of positions; with entities, for each type X that occurs, eval_X_precision, eval_X_recall, eval_X_f1
   and eval_X_number. Question answering: eval_exact_match and eval_f1, as percentages of the questions. Multiple
   choice: eval_accuracy. Preference tuning, as DPOTrainer, means over the pairs: eval_rewards/chosen and others. A
   metric that is not defined (no rows; a correlation without variance) is NaN, as in scipy; F1 and Matthews without
   variance are 0, as in scikit-learn. Names live as long as the context. */
snug_status snug_metric_accumulator_result(struct snug_metric_accumulator *accumulator, struct snug_metric_list *out);
/* Single label with at most 50 classes, 1024 with each_class: [classes, classes] rows by their class and the
   predicted one; else NULL. */
const int64_t *snug_metric_accumulator_confusion(const struct snug_metric_accumulator *accumulator);

/* Whether multi-label predicts a class with this logit; threshold as in the options. */
static inline bool snug_is_predicted(float logit, double threshold) {
    return threshold > 0 ? 1 / (1 + exp(-(double)logit)) >= threshold : logit > 0;
}

#endif
