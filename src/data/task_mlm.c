/* SPDX-License-Identifier: Apache-2.0 */
/* Masked LM, as run_mlm.py: a fraction of the tokens is replaced, and the model predicts the original ones. */
#include <inttypes.h>

#include "data/collate.h"
#include "data/dataset.h"
#include "data/task.h"

/* DataCollatorForLanguageModeling: of the chosen tokens 80 % become [MASK], 10 % a random token, 10 % are unchanged.
   The random numbers are keyed by the token's place, so the number of chosen tokens can be computed before the batch is
   collated. Evaluation always uses the masks of epoch 0. */
static int32_t replacement(const struct snug_loader_options *options, int64_t epoch, int64_t row, int64_t position,
                           int32_t id) {
    const struct snug_philox_block draw = snug_masking_draw(options, epoch, row, position);
    const float way = snug_philox_uniform(draw.word[1]);
    if (way < 0.8f) return snug_masking_mask(options);
    return way < 0.9f ? (int32_t)((uint64_t)draw.word[2] * (uint64_t)options->vocab_size >> 32) : id;
}

static void collate(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                    int64_t first, struct snug_batch *batch) {
    const struct snug_loader_options *options = collator->options;
    int32_t *ids = batch->ids + first;
    const int64_t chosen = snug_masking_choose(&collator->masking, options, epoch, row, ids, text->count);
    for (int64_t i = 0; i < text->count; i++) {
        if (!collator->masking.chosen[i]) continue;
        batch->labels[batch->rows] = options->predict ? SNUG_IGNORE_LABEL : ids[i];
        batch->loss_positions[batch->rows++] = (int32_t)(first + i);
        if (!options->predict) ids[i] = replacement(options, epoch, row, i, ids[i]);
    }
    if (options->predict) return;
    batch->items += chosen;
    batch->weight += (double)chosen;
}

static snug_status count(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                         struct snug_items *items) {
    struct snug_dataset_row text;
    if (collator->options->predict) return SNUG_OK;
    RETURN_IF_ERROR(snug_dataset_read(ctx, collator->dataset, row, &collator->buffer, &text));
    items->count += snug_masking_choose(&collator->masking, collator->options, epoch, row, text.ids, text.count);
    items->weight = (double)items->count;
    return SNUG_OK;
}

static double positions(const struct snug_loader_options *options, const struct snug_dataset *dataset, double sequences,
                        double tokens) {
    (void)dataset;
    (void)sequences;
    return tokens * options->mlm_probability;
}

static snug_status check(snug_context *ctx, const struct snug_loader_options *options) {
    bool drawn = options->mlm_probability > 0 && options->mlm_probability <= 1;
    if (options->vocab_size < 1 || options->vocab_size > INT32_MAX || !(drawn || options->predict))
        return snug_fail(ctx, SNUG_E_USAGE,
                         "masking %g of the tokens of a vocabulary of %" PRId64
                         " cannot be done: --mlm_probability must be above 0 and at most 1",
                         options->mlm_probability, options->vocab_size);
    if (options->tokenizer && snug_tokenizer_special(options->tokenizer).mask < 0)
        return snug_fail(ctx, SNUG_E_INPUT, "the tokenizer has no [MASK] token, which --task mlm needs");
    struct snug_word_mark mark;
    return options->whole_words && !options->predict ? snug_word_mark_find(ctx, options->tokenizer, &mark) : SNUG_OK;
}

const struct snug_task_info snug_task_mlm = {
    .title = "masked language model",
    .short_title = "masked LM",
    .joins = true,
    .skips_empty = true,
    .head = SNUG_HEAD_VOCABULARY,
    .model_class = "ForMaskedLM",
    .only = {"line_by_line", "mlm_probability", "whole_word_mask", "top_k"},
    .text_column = {"text"},
    .label_column = {"label", "labels", "gold_label"},
    .check = check,
    .positions = positions,
    .count = count,
    .collate = collate,
};
