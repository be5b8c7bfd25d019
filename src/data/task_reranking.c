/* SPDX-License-Identifier: Apache-2.0 */
/* Reranking, as sentence-transformers' CrossEncoder: a row is a group of pairs, of a query and a document each, and the
 * loss is of each pair's score, or of the scores of a group. */
#include <math.h>

#include "data/collate.h"
#include "data/dataset_impl.h"
#include "data/rankings.h"
#include "data/task.h"

/* Losses of a group: of BinaryCrossEntropyLoss each pair's, of ListNetLoss its own, of MarginMSELoss those of all pairs
   but the first. */
static int64_t items(const struct snug_loader_options *options, const struct snug_dataset_row *text) {
    struct snug_group group;
    snug_dataset_row_group(text, &group);
    if (!group.labelled) return 0;
    if (options->ranking_loss == SNUG_RANKING_LISTNET) return 1;
    return options->ranking_loss == SNUG_RANKING_MARGIN ? (int64_t)group.count - 1 : (int64_t)group.count;
}

/* The softmax of the targets; zeros where they are not known. */
static void distribute(const struct snug_group *group, float *targets) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < (int64_t)group->count; i++) most = fmax(most, (double)snug_group_target(group, i));
    for (int64_t i = 0; i < (int64_t)group->count; i++) sum += exp((double)snug_group_target(group, i) - most);
    for (int64_t i = 0; i < (int64_t)group->count; i++)
        targets[i] = group->labelled ? (float)(exp((double)snug_group_target(group, i) - most) / sum) : 0;
}

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    const enum snug_ranking_loss loss = collator->options->ranking_loss;
    float *targets = batch->targets + batch->rows;
    struct snug_group group;
    (void)epoch, (void)row;
    snug_dataset_row_group(text, &group);
    for (int64_t i = 0; i < (int64_t)group.count; first += snug_group_tokens(&group, i++)) {
        targets[i] = snug_group_target(&group, i);
        if (loss == SNUG_RANKING_MARGIN && i == 0) targets[i] = group.labelled;
        batch->labels[batch->rows] = i == 0 ? SNUG_SEGMENT_BEGINS : 0;
        batch->loss_positions[batch->rows++] = (int32_t)first;
    }
    if (loss == SNUG_RANKING_LISTNET) distribute(&group, targets);
    const int64_t count = items(collator->options, text);
    batch->items += count;
    batch->weight += (double)count;
}

const struct snug_task_info snug_task_reranking = {
    .title = "reranking",
    .short_title = "reranking",
    .objects = &snug_ranking_rows,
    .groups = true,
    .scored = true,
    .other_class = true,     /* a classifier's */
    .max_length = INT32_MAX, /* the model's */
    .head = SNUG_HEAD_SEQUENCE,
    .model_class = "ForSequenceClassification",
    .loss = {SNUG_BINARY_CROSS_ENTROPY, SNUG_SEGMENT_DISTRIBUTION, SNUG_SEGMENT_MARGIN}, /* by --ranking_loss */
    .only = {"ranking_loss", "query"},
    .text_column = {"query"},
    .label_column = {"label"},
    .items = items,
    .collate = collate,
};
