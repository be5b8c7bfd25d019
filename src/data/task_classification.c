/* SPDX-License-Identifier: Apache-2.0 */
/* Sequence classification and regression, as run_glue.py and run_classification.py: each row has a label, several or a
 * value, and the loss is at its first token. */
#include <string.h>

#include "data/collate.h"
#include "data/dataset_impl.h"
#include "data/task.h"

static int64_t items_of_labels(const struct snug_loader_options *options, int64_t labelled) {
    return options->problem == SNUG_PROBLEM_MULTI_LABEL ? labelled * options->labels : labelled;
}

/* Only single labels are divided by their weights. */
static double weight_of(const struct snug_collator *collator, bool labelled, const uint32_t *labels) {
    const struct snug_loader_options *options = collator->options;
    if (!labelled || !options->class_weights || options->problem != SNUG_PROBLEM_SINGLE_LABEL)
        return (double)items_of_labels(options, labelled);
    return snug_item_weight(options, collator->dataset->classes[labels[0]]);
}

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    const struct snug_dataset *dataset = collator->dataset;
    int64_t classes = collator->options->labels, here = batch->rows++;
    bool labelled = snug_dataset_is_labelled(dataset, text->label_count);
    (void)epoch;
    (void)row;
    batch->loss_positions[here] = (int32_t)first;
    batch->labels[here] = labelled ? 0 : SNUG_IGNORE_LABEL;
    batch->items += items_of_labels(collator->options, labelled);
    batch->weight += weight_of(collator, labelled, text->labels);
    if (collator->options->problem == SNUG_PROBLEM_MULTI_LABEL) {
        float *targets = batch->targets + here * classes;
        memset(targets, 0, (size_t)classes * sizeof *targets);
        for (int64_t i = 0; labelled && i < text->label_count; i++) targets[dataset->classes[text->labels[i]]] = 1.0f;
    } else if (collator->options->problem == SNUG_PROBLEM_REGRESSION) {
        const bool value = labelled && snug_label_is_value(text->labels, text->label_count);
        batch->targets[here] = value ? snug_label_value(text->labels) : labelled ? dataset->values[text->labels[0]] : 0;
    } else if (labelled) {
        batch->labels[here] = dataset->classes[text->labels[0]];
    }
}

static snug_status count(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                         struct snug_items *items) {
    struct snug_dataset_row text = {0};
    (void)epoch;
    /* The class of a label is needed for its weight alone. */
    if (collator->options->class_weights)
        RETURN_IF_ERROR(snug_dataset_read(ctx, collator->dataset, row, &collator->buffer, &text));
    else
        RETURN_IF_ERROR(snug_dataset_count_labels(ctx, collator->dataset, row, &text.label_count));
    const bool labelled = snug_dataset_is_labelled(collator->dataset, text.label_count);
    items->count += items_of_labels(collator->options, labelled);
    items->weight += weight_of(collator, labelled, text.labels);
    return SNUG_OK;
}

static int64_t classes(const struct snug_dataset *dataset, const struct snug_loader_options *options,
                       const struct snug_dataset_row *text, int64_t counts[]) {
    (void)options;
    if (!snug_dataset_is_labelled(dataset, text->label_count)) return 0;
    for (int64_t i = 0; i < text->label_count; i++) counts[dataset->classes[text->labels[i]]]++;
    return 1;
}

static int64_t targets(const struct snug_loader_options *options, int64_t rows) {
    if (options->problem == SNUG_PROBLEM_SINGLE_LABEL) return 0;
    return options->problem == SNUG_PROBLEM_MULTI_LABEL ? rows * options->labels : rows;
}

const struct snug_task_info snug_task_classification = {
    .title = "sequence classification",
    .short_title = "classification",
    .labelled = true,
    .problems = true,
    .head = SNUG_HEAD_SEQUENCE,
    .model_class = "ForSequenceClassification",
    .loss = {SNUG_CROSS_ENTROPY, SNUG_BINARY_CROSS_ENTROPY, SNUG_MEAN_SQUARED_ERROR},
    .only = {"class_metrics", "threshold", "return_all_scores"},
    .pairs = true,
    .text_column = {"sentence", "text"},
    .label_column = {"label", "labels", "gold_label"},
    .targets = targets,
    .count = count,
    .collate = collate,
    .classes = classes,
};
