/* SPDX-License-Identifier: Apache-2.0 */
#include "text/fill.h"

#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "text/dataset_impl.h"
#include "text/radix.h"

#define BERT_MASK_ID 103 /* for dummy data, which may come without a tokenizer */

snug_status snug_filler_init(snug_context *ctx, const struct snug_dataset *dataset,
                             const struct snug_loader_options *options, const struct snug_loader_limits *limits,
                             int32_t *scratch, struct snug_filler *out) {
    *out = (struct snug_filler){.dataset = dataset,
                                .options = options,
                                .limits = *limits,
                                .scratch = scratch,
                                .batches = snug_loader_batches(snug_dataset_rows(dataset), options)};
    RETURN_IF_ERROR(snug_order_init(ctx, dataset, options, &out->order));
    /* Room for the longest text and some labels from the start: filling allocates nothing. */
    return snug_grow(ctx, &out->buffer.data, &out->buffer.capacity, 4 * (size_t)limits->longest + 256, 1);
}

void snug_filler_free(struct snug_filler *filler) {
    snug_order_free(&filler->order);
    free(filler->buffer.data);
    *filler = (struct snug_filler){0};
}

/* Places first … *end - 1 of the epoch's order belong to batch number. */
static int64_t places_of(const struct snug_filler *filler, int64_t number, int64_t *end) {
    int64_t rows = snug_dataset_rows(filler->dataset), first = number * filler->options->batch_size;
    *end = rows - first < filler->options->batch_size ? rows : first + filler->options->batch_size;
    return first;
}

/* ---- masking --------------------------------------------------------------------------------------------------- */

static int32_t mask_id(const struct snug_loader_options *options) {
    if (options->tokenizer) return snug_tokenizer_special(options->tokenizer).mask;
    return options->vocab_size > BERT_MASK_ID ? BERT_MASK_ID : (int32_t)options->vocab_size - 1;
}

/*
 * Whether the token becomes a head row, and what stands in its place then.
 * DataCollatorForLanguageModeling: of the tokens that are not [CLS] or [SEP] mlm_probability are chosen; of these 80 %
 * become [MASK], 10 % a random token, 10 % stay. The draw is keyed by (seed, epoch) and counted by (position, row), so
 * that how many are chosen can be told before the batch is made, and again. Evaluation always sees the masks of epoch
 * 0.
 */
static bool choose(const struct snug_filler *filler, int64_t epoch, int64_t row, int64_t position, int32_t id,
                   int32_t *replacement) {
    const struct snug_loader_options *options = filler->options;
    *replacement = id;
    if (options->fill_mask) return id == mask_id(options);
    struct snug_philox_block draw =
        snug_philox((uint32_t)position, (uint32_t)row, (uint32_t)((uint64_t)row >> 32),
                    (uint32_t)SNUG_PHILOX_MASKING << 29, snug_philox_key(options->seed), (uint32_t)epoch);
    if ((double)draw.word[0] >= options->mlm_probability * 4294967296.0) return false;
    if (options->tokenizer) { /* run_mlm.py's special_tokens_mask: what the template adds */
        const struct snug_special_ids special = snug_tokenizer_special(options->tokenizer);
        if (id == special.cls || id == special.sep || id == special.pad) return false;
    }
    float way = snug_philox_uniform(draw.word[1]);
    if (way < 0.8f)
        *replacement = mask_id(options);
    else if (way < 0.9f)
        *replacement = (int32_t)((uint64_t)draw.word[2] * (uint64_t)options->vocab_size >> 32);
    return true;
}

/* Masks tokens first … first + count - 1 of the batch, which are row's. */
static void mask_row(const struct snug_filler *filler, int64_t epoch, int64_t row, int64_t first, int64_t count,
                     struct snug_batch *batch) {
    for (int64_t i = 0; i < count; i++) {
        int32_t id = batch->ids[first + i];
        if (!choose(filler, epoch, row, i, id, &batch->ids[first + i])) continue;
        batch->labels[batch->rows] = filler->options->fill_mask ? SNUG_IGNORE_LABEL : id;
        batch->head_rows[batch->rows++] = (int32_t)(first + i);
    }
}

/* ---- counting -------------------------------------------------------------------------------------------------- */

static int64_t items_of_labels(const struct snug_loader_options *options, int64_t labelled) {
    return options->problem == SNUG_PROBLEM_MULTI_LABEL ? labelled * options->labels : labelled;
}

/* Items of a batch that is not made yet. */
static snug_status count_items(snug_context *ctx, struct snug_filler *filler, int64_t epoch, int64_t number,
                               int64_t *items) {
    int64_t end, labelled = 0, masked = 0;
    *items = 0;
    if (filler->options->task == SNUG_TASK_MLM && filler->options->fill_mask) return SNUG_OK;
    for (int64_t place = places_of(filler, number, &end); place < end; place++) {
        int64_t row, labels;
        RETURN_IF_ERROR(snug_order_row(ctx, &filler->order, epoch, place, &row));
        if (filler->options->task == SNUG_TASK_CLASSIFICATION) {
            RETURN_IF_ERROR(snug_dataset_count_labels(ctx, filler->dataset, row, &labels));
            labelled += snug_dataset_is_labelled(filler->dataset, labels);
            continue;
        }
        struct snug_dataset_row text;
        int32_t ignored;
        RETURN_IF_ERROR(snug_dataset_read(ctx, filler->dataset, row, &filler->buffer, &text));
        for (int64_t i = 0; i < text.count; i++) masked += choose(filler, epoch, row, i, text.ids[i], &ignored);
    }
    *items = filler->options->task == SNUG_TASK_MLM ? masked : items_of_labels(filler->options, labelled);
    return SNUG_OK;
}

/* ---- filling --------------------------------------------------------------------------------------------------- */

static void add_label(const struct snug_filler *filler, const struct snug_dataset_row *text, struct snug_batch *batch) {
    const struct snug_dataset *dataset = filler->dataset;
    int64_t classes = filler->options->labels, here = batch->rows++;
    bool labelled = snug_dataset_is_labelled(dataset, text->label_count);
    batch->head_rows[here] = batch->offsets[here];
    batch->labels[here] = labelled ? 0 : SNUG_IGNORE_LABEL;
    batch->items += items_of_labels(filler->options, labelled);
    if (filler->options->problem == SNUG_PROBLEM_MULTI_LABEL) {
        float *targets = batch->targets + here * classes;
        memset(targets, 0, (size_t)classes * sizeof *targets);
        for (int64_t i = 0; labelled && i < text->label_count; i++) targets[dataset->classes[text->labels[i]]] = 1.0f;
    } else if (filler->options->problem == SNUG_PROBLEM_REGRESSION) {
        const bool value = labelled && snug_label_is_value(text->labels, text->label_count);
        batch->targets[here] = value ? snug_label_value(text->labels) : labelled ? dataset->values[text->labels[0]] : 0;
    } else if (labelled) {
        batch->labels[here] = dataset->classes[text->labels[0]];
    }
}

static void add_tokens(const struct snug_dataset_row *text, struct snug_batch *batch) {
    int64_t first = batch->tokens, sequence = batch->sequences;
    memcpy(batch->ids + first, text->ids, (size_t)text->count * sizeof *batch->ids);
    for (int64_t i = 0; i < text->count; i++) {
        batch->types[first + i] = i >= text->first_count;
        batch->positions[first + i] = (int32_t)i;
        batch->sample[first + i] = (int32_t)(batch->first_sample + sequence);
    }
    batch->tokens += text->count;
    batch->offsets[++batch->sequences] = (int32_t)batch->tokens;
    batch->truncated += text->truncated;
    if (batch->longest < text->count) batch->longest = text->count;
}

static snug_status add_row(snug_context *ctx, struct snug_filler *filler, int64_t epoch, int64_t row,
                           struct snug_batch *batch) {
    struct snug_dataset_row text;
    RETURN_IF_ERROR(snug_dataset_read(ctx, filler->dataset, row, &filler->buffer, &text));
    int64_t first = batch->tokens;
    if (batch->sequences == filler->limits.sequences || text.count > filler->limits.tokens - first)
        return snug_fail(ctx, SNUG_E_INTERNAL, "a batch of %s is larger than planned: this epoch was not in the plan",
                         snug_dataset_path(filler->dataset));
    add_tokens(&text, batch);
    if (filler->options->task == SNUG_TASK_MLM)
        mask_row(filler, epoch, row, first, text.count, batch);
    else
        add_label(filler, &text, batch);
    return SNUG_OK;
}

snug_status snug_filler_fill(snug_context *ctx, struct snug_filler *filler, int64_t epoch, int64_t number,
                             struct snug_batch *batch) {
    int64_t steps = filler->options->accumulation, micro = number % steps, end, place = places_of(filler, number, &end);
    batch->sequences = batch->tokens = batch->rows = batch->items = batch->longest = batch->truncated = 0;
    batch->first_sample = micro * filler->options->batch_size;
    RETURN_IF_ERROR(snug_order_row(ctx, &filler->order, epoch, place, &batch->first_row));
    batch->last_in_step = micro == steps - 1 || number == filler->batches - 1;
    batch->offsets[0] = 0;
    for (int64_t row; place < end; place++) {
        RETURN_IF_ERROR(snug_order_row(ctx, &filler->order, epoch, place, &row));
        RETURN_IF_ERROR(add_row(ctx, filler, epoch, row, batch));
    }
    if (filler->options->task == SNUG_TASK_MLM && !filler->options->fill_mask) batch->items = batch->rows;
    snug_radix_order(batch->by_id, filler->scratch, batch->ids, batch->tokens);

    batch->items_in_step = batch->items;
    if (micro) return SNUG_OK;
    for (int64_t next = number + 1; next < number + steps && next < filler->batches; next++) {
        int64_t items;
        RETURN_IF_ERROR(count_items(ctx, filler, epoch, next, &items));
        batch->items_in_step += items;
    }
    return SNUG_OK;
}
