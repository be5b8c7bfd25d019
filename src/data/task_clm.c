/* SPDX-License-Identifier: Apache-2.0 */
/* Causal LM, as run_clm.py and SFTTrainer: each token of a row but the last predicts the next one. */
#include "data/collate.h"
#include "data/dataset.h"
#include "data/task.h"

static int64_t predicting(const struct snug_dataset_row *text) { return text->count > 1 ? text->count - 1 : 0; }

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    const int64_t items = predicting(text);
    (void)collator, (void)epoch, (void)row;
    for (int64_t i = 0; i < items; i++) {
        batch->labels[batch->rows] = text->ids[i + 1];
        batch->loss_positions[batch->rows++] = (int32_t)(first + i);
    }
    batch->items += items;
    batch->weight += (double)items;
}

static snug_status count(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                         struct snug_items *items) {
    struct snug_dataset_row text;
    (void)epoch;
    RETURN_IF_ERROR(snug_dataset_read(ctx, collator->dataset, row, &collator->buffer, &text));
    items->count += predicting(&text);
    items->weight = (double)items->count;
    return SNUG_OK;
}

static double positions(const struct snug_loader_options *options, const struct snug_dataset *dataset, double sequences,
                        double tokens) {
    (void)options, (void)dataset;
    return tokens - sequences;
}

const struct snug_task_info snug_task_clm = {
    .title = "causal language model",
    .short_title = "causal LM",
    .skips_empty = true,
    .causal = true,
    .head = SNUG_HEAD_VOCABULARY,
    .model_class = "ForCausalLM",
    .text_column = {"text"},
    .label_column = {"label", "labels", "gold_label"},
    .positions = positions,
    .count = count,
    .collate = collate,
};
