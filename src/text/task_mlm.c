/* SPDX-License-Identifier: Apache-2.0 */
/* Masked LM, as run_mlm.py: a fraction of the tokens is replaced, and the model predicts the original ones. */
#include <inttypes.h>

#include "core/philox.h"
#include "text/collate.h"
#include "text/dataset.h"
#include "text/task.h"

#define BERT_MASK_ID 103 /* for dummy data, which may come without a tokenizer */

static int32_t mask_id(const struct snug_loader_options *options) {
    if (options->tokenizer) return snug_tokenizer_special(options->tokenizer).mask;
    return options->vocab_size > BERT_MASK_ID ? BERT_MASK_ID : (int32_t)options->vocab_size - 1;
}

/*
 * Whether the token becomes a loss position, and its replacement. In prediction: whether it is [MASK].
 * DataCollatorForLanguageModeling: of the tokens that are not [CLS] or [SEP] mlm_probability are chosen; of these 80 %
 * become [MASK], 10 % a random token, 10 % are unchanged. The random numbers have the key (seed, epoch) and the counter
 * (position, row), so the number of chosen tokens can be computed before the batch is collated. Evaluation always uses
 * the masks of epoch 0.
 */
static bool choose(const struct snug_collator *collator, int64_t epoch, int64_t row, int64_t position, int32_t id,
                   int32_t *replacement) {
    const struct snug_loader_options *options = collator->options;
    *replacement = id;
    if (options->predict) return id == mask_id(options);
    struct snug_philox_block draw =
        snug_philox((uint32_t)position, (uint32_t)row, (uint32_t)((uint64_t)row >> 32),
                    (uint32_t)SNUG_PHILOX_MASKING << 29, snug_philox_key(options->seed), (uint32_t)epoch);
    if ((double)draw.word[0] >= options->mlm_probability * 4294967296.0) return false;
    if (options->tokenizer) { /* run_mlm.py's special_tokens_mask: the tokens that the template adds */
        const struct snug_special_ids special = snug_tokenizer_special(options->tokenizer);
        /* may be untested: depends on which tokens are drawn */
        if (id == special.cls || id == special.sep || id == special.pad) return false;
    }
    float way = snug_philox_uniform(draw.word[1]);
    if (way < 0.8f)
        *replacement = mask_id(options);
    else if (way < 0.9f)
        *replacement = (int32_t)((uint64_t)draw.word[2] * (uint64_t)options->vocab_size >> 32);
    return true;
}

static void collate(const struct snug_collator *collator, int64_t epoch, int64_t row,
                    const struct snug_dataset_row *text, int64_t first, struct snug_batch *batch) {
    const bool predicts = collator->options->predict;
    for (int64_t i = 0; i < text->count; i++) {
        int32_t id = batch->ids[first + i];
        if (!choose(collator, epoch, row, i, id, &batch->ids[first + i])) continue;
        batch->labels[batch->rows] = predicts ? SNUG_IGNORE_LABEL : id;
        batch->loss_positions[batch->rows++] = (int32_t)(first + i);
        batch->items += !predicts;
        batch->weight += !predicts;
    }
}

static snug_status count(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                         struct snug_items *items) {
    struct snug_dataset_row text;
    int32_t ignored;
    if (collator->options->predict) return SNUG_OK;
    RETURN_IF_ERROR(snug_dataset_read(ctx, collator->dataset, row, &collator->buffer, &text));
    for (int64_t i = 0; i < text.count; i++) items->count += choose(collator, epoch, row, i, text.ids[i], &ignored);
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
    return SNUG_OK;
}

const struct snug_task_info snug_task_mlm = {
    .title = "masked language model",
    .short_title = "masked LM",
    .joins = true,
    .skips_empty = true,
    .head = SNUG_HEAD_VOCABULARY,
    .model_class = "ForMaskedLM",
    .only = {"line_by_line", "mlm_probability", "top_k"},
    .text_column = {"text"},
    .label_column = "label",
    .check = check,
    .positions = positions,
    .count = count,
    .collate = collate,
};
