/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of an evaluation, streamed in constant memory (Spearman keeps 8 bytes a row, which the plan counts). */
#ifndef SNUG_TRAIN_METRICS_H
#define SNUG_TRAIN_METRICS_H

#include "text/dataset.h"

/* Names of a result's metrics, in their order, up to NULL. */
const char *const *snug_metric_names(enum snug_task task, enum snug_problem problem);
/* The place among them of the one that name means, with or without "eval_"; -1 if none. */
int64_t snug_metric_find(enum snug_task task, enum snug_problem problem, const char *name);

struct snug_meter;

/* classes: width of the logits: number of labels, for masked LM the vocabulary. rows: most rows that will be added (for
   Spearman). memory: snug_meter_bytes(…) bytes from the arena. */
int64_t snug_meter_bytes(enum snug_task task, enum snug_problem problem, int64_t classes, int64_t rows);
snug_status snug_meter_create(snug_context *ctx, enum snug_task task, enum snug_problem problem, int64_t classes,
                              int64_t rows, void *memory, struct snug_meter **out);
void snug_meter_reset(struct snug_meter *meter);
void snug_meter_free(struct snug_meter *meter);
/* logits [rows, classes]; labels [rows] for a single label (SNUG_IGNORE_LABEL counts nothing) and masked LM,
   targets for multi-label [rows, classes] and regression [rows]. */
void snug_meter_add(struct snug_meter *meter, const float *logits, const int32_t *labels, const float *targets,
                    int64_t rows);
/* Sum of losses over items true items, beside the logits. */
void snug_meter_add_loss(struct snug_meter *meter, double loss_sum, int64_t items);
/* SNUG_E_INTERNAL where more rows were added than announced, a label was not a class, or rows came after a result
   without a reset. eval_loss always. Single label: eval_accuracy, eval_f1 (binary: of class 1; else macro),
   eval_matthews_correlation. Multi-label: eval_accuracy (rows wholly right), eval_f1 (micro). Regression: eval_mse,
   eval_pearson, eval_spearmanr. Masked LM: eval_accuracy, perplexity = exp(eval_loss). A metric that is not defined (no
   rows; a correlation without variance) is NaN, as in scipy; F1 and Matthews without variance are 0, as in
   scikit-learn. */
snug_status snug_meter_result(struct snug_meter *meter, snug_metrics *out);

#endif
