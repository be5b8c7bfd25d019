/* SPDX-License-Identifier: Apache-2.0 */
/* Preference tuning, as TRL's DPOTrainer: a row is a chosen and a rejected sequence that begin with the same prompt,
 * and each token after it has a log-probability. The loss is of the pair. */
#include "data/collate.h"
#include "data/dataset.h"
#include "data/positions.h"
#include "data/row_texts.h"

/* The tokens of the prompt, of a sequence of so many. The row's score is their number (data/preferences.h). */
static int64_t prompt_tokens(const struct snug_dataset_row *text) {
    float prompt;
    memcpy(&prompt, &text->labels[3], sizeof prompt);
    return !(prompt > 0) ? 0 : prompt >= (float)text->count ? text->count : (int64_t)prompt;
}

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    const float *reference = collator->options->reference;
    const int64_t prompt = prompt_tokens(text), sequence = batch->sequences - 1;
    (void)epoch;
    for (int64_t i = prompt > 1 ? prompt : 1; i < text->count; i++) { /* none predicts the first token */
        batch->labels[batch->rows] = text->ids[i];
        batch->loss_positions[batch->rows++] = (int32_t)(first + i - 1);
    }
    batch->references[2 * sequence] = reference ? reference[2 * row + sequence % 2] : 0;
    batch->references[2 * sequence + 1] = (float)(text->count - prompt);
    batch->items += sequence % 2;
    batch->weight += (double)(sequence % 2);
}

/* Of a pair. */
static snug_status count(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                         struct snug_items *items) {
    (void)ctx, (void)collator, (void)epoch, (void)row;
    items->count++;
    items->weight++;
    return SNUG_OK;
}

const struct snug_task_info snug_task_dpo = {
    .title = "preference tuning (DPO)",
    .short_title = "preference tuning",
    .causal = true,
    .preferences = true,
    .other_class = true, /* a causal language model's */
    .apart = true,
    .head = SNUG_HEAD_VOCABULARY,
    .model_class = "ForCausalLM",
    .max_length = 1024,
    .loss = {SNUG_PREFERENCE_CROSS_ENTROPY, SNUG_PREFERENCE_CROSS_ENTROPY, SNUG_PREFERENCE_CROSS_ENTROPY},
    .only = {"chat_template_path", "chat_template_date", "beta", "loss_type", "label_smoothing",
             "ref_model_name_or_path"},
    .text_column = {"prompt"},
    .label_column = {"label"},
    .positions = snug_causal_positions,
    .count = count,
    .collate = collate,
};
