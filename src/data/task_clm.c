/* SPDX-License-Identifier: Apache-2.0 */
/* Causal LM, as run_clm.py and SFTTrainer: each token of a row but the last predicts the next one, if that has a loss.
 */
#include "data/collate.h"
#include "data/dataset.h"
#include "data/loss_mask.h"
#include "data/positions.h"

static bool has_loss(const struct snug_dataset_row *text, int64_t token) {
    return snug_loss_mask_has(text->labels, text->label_count, token);
}

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    const int64_t before = batch->rows;
    (void)collator, (void)epoch, (void)row;
    for (int64_t i = 1; i < text->count; i++) {
        if (!has_loss(text, i)) continue;
        batch->labels[batch->rows] = text->ids[i];
        batch->loss_positions[batch->rows++] = (int32_t)(first + i - 1);
    }
    batch->items += batch->rows - before;
    batch->weight += (double)(batch->rows - before);
}

static int64_t items(const struct snug_loader_options *options, const struct snug_dataset_row *text) {
    int64_t sum = 0;
    (void)options;
    for (int64_t i = 1; i < text->count; i++) sum += has_loss(text, i);
    return sum;
}

const struct snug_task_info snug_task_clm = {
    .title = "causal language model",
    .short_title = "causal LM",
    .causal = true,
    .max_length = 1024, /* SFTTrainer's, and run_clm.py's where the model takes it */
    .head = SNUG_HEAD_VOCABULARY,
    .model_class = "ForCausalLM",
    .only = {"line_by_line", "block_size", "completion_only_loss", "assistant_only_loss", "chat_template_path",
             "chat_template_date"},
    .text_column = {"text"},
    .label_column = {"label", "labels", "gold_label"},
    .positions = snug_causal_positions,
    .items = items,
    .collate = collate,
};
