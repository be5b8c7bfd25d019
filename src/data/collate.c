/* SPDX-License-Identifier: Apache-2.0 */
#include "data/collate.h"

#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "data/dataset_impl.h"
#include "data/radix.h"
#include "data/task.h"

snug_status snug_collator_init(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, const struct snug_loader_limits *limits,
                               int32_t *scratch, struct snug_collator *out) {
    *out = (struct snug_collator){.dataset = dataset,
                                  .options = options,
                                  .limits = *limits,
                                  .scratch = scratch,
                                  .batches = snug_loader_batches(snug_dataset_rows(dataset), options)};
    RETURN_IF_ERROR(snug_order_init(ctx, dataset, options, &out->order));
    if (options->packs) RETURN_IF_ERROR(snug_packer_init(ctx, options->packs, &out->packer));
    if (options->task == SNUG_TASK_MLM) RETURN_IF_ERROR(snug_masking_init(ctx, options, limits->tokens, &out->masking));
    /* Reserves memory for the largest row, so that collating allocates nothing. */
    return snug_grow(ctx, &out->buffer.data, &out->buffer.capacity, (size_t)snug_dataset_row_bytes(dataset), 1);
}

void snug_collator_free(struct snug_collator *collator) {
    snug_order_free(&collator->order);
    snug_packer_free(&collator->packer);
    snug_masking_free(&collator->masking);
    free(collator->buffer.data);
    *collator = (struct snug_collator){0};
}

/* The rows of a batch: those of a pack, or those at some positions of the epoch's order. */
struct members {
    int64_t epoch, first, count;
    const int64_t *pack; /* NULL: by position */
    int64_t sample;      /* of a pack's first row */
};

static snug_status find_members(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t number,
                                struct members *out) {
    const struct snug_loader_options *options = collator->options;
    const int64_t first = number * options->batch_size;
    int64_t pack, place;
    *out = (struct members){epoch, first, snug_min(options->batch_size, snug_dataset_rows(collator->dataset) - first),
                            NULL, 0};
    if (!options->packs) return SNUG_OK;
    RETURN_IF_ERROR(snug_order_row(ctx, &collator->order, epoch, number, &pack, &place));
    out->sample = place * options->packs->most_rows;
    return snug_packer_rows(ctx, &collator->packer, pack, &out->pack, &out->count);
}

/* Row number i of them, and the index in the step of its sequence, which has gaps between packs. */
static snug_status find_member(snug_context *ctx, struct snug_collator *collator, const struct members *members,
                               int64_t i, int64_t *row, int64_t *sample) {
    if (!members->pack) return snug_order_row(ctx, &collator->order, members->epoch, members->first + i, row, sample);
    *row = members->pack[i];
    *sample = members->sample + i;
    return SNUG_OK;
}

/* ---- counting -------------------------------------------------------------------------------------------------- */

static snug_status count_row(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                             struct snug_items *items) {
    const struct snug_task_info *task = snug_task_info(collator->options->task);
    struct snug_dataset_row text;
    if (task->count) return task->count(ctx, collator, epoch, row, items);
    RETURN_IF_ERROR(snug_dataset_read(ctx, collator->dataset, row, &collator->buffer, &text));
    items->count += task->items(collator->options, &text);
    items->weight = (double)items->count;
    return SNUG_OK;
}

/* Items of a batch that is not collated yet. */
static snug_status count_items(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t number,
                               struct snug_items *items) {
    struct members members;
    *items = (struct snug_items){0};
    RETURN_IF_ERROR(find_members(ctx, collator, epoch, number, &members));
    for (int64_t i = 0; i < members.count; i++) {
        int64_t row, sample;
        RETURN_IF_ERROR(find_member(ctx, collator, &members, i, &row, &sample));
        RETURN_IF_ERROR(count_row(ctx, collator, epoch, row, items));
    }
    return SNUG_OK;
}

/* ---- filling --------------------------------------------------------------------------------------------------- */

static void add_tokens(const struct snug_collator *collator, const struct snug_dataset_row *text, int64_t sample,
                       struct snug_batch *batch) {
    const struct snug_loader_options *options = collator->options;
    int64_t first = batch->tokens;
    memcpy(batch->ids + first, text->ids, (size_t)text->count * sizeof *batch->ids);
    for (int64_t i = 0; i < text->count; i++) {
        batch->types[first + i] = !options->one_type && i >= text->first_count;
        batch->positions[first + i] = (int32_t)i;
        batch->sample[first + i] = (int32_t)sample;
    }
    batch->tokens += text->count;
    batch->offsets[++batch->sequences] = (int32_t)batch->tokens;
    batch->truncated += text->truncated;
    if (batch->longest < text->count) batch->longest = text->count;
}

static void add_text(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                     int64_t sample, struct snug_batch *batch) {
    const int64_t first = batch->tokens;
    add_tokens(collator, text, sample, batch);
    snug_task_info(collator->options->task)->collate(collator, epoch, row, text, first, batch);
    snug_batch_number_positions(batch, first, batch->tokens, collator->options->first_position);
}

/* The texts of a row, each a sequence of its own. */
static void add_texts(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                      int64_t sample, struct snug_batch *batch) {
    const int64_t texts = collator->options->texts;
    struct snug_dataset_row one = *text;
    for (int64_t i = 0; i < texts; i++, one.ids += one.count, one.truncated = false) {
        one.count = one.first_count = text->labels[1 + i];
        if (text->prompts) one.prompts = text->prompts + i;
        add_text(collator, epoch, row, &one, sample * texts + i, batch);
    }
    if (text->label_count > 1 + texts && batch->targets)
        memcpy(&batch->targets[batch->sequences / texts - 1], &text->labels[1 + texts], sizeof *batch->targets);
}

/* The members of a group, each a sequence of its own. */
static void add_group(struct snug_collator *collator, int64_t epoch, int64_t row, const struct snug_dataset_row *text,
                      int64_t sample, struct snug_batch *batch) {
    const int64_t texts = collator->options->texts, first = batch->tokens;
    struct snug_dataset_row one = *text;
    struct snug_group group;
    snug_dataset_row_group(text, &group);
    for (int64_t i = 0; i < (int64_t)group.count; i++, one.ids += one.count, one.truncated = false) {
        const int64_t begin = batch->tokens;
        one.count = snug_group_tokens(&group, i);
        one.first_count = snug_group_first(&group, i);
        add_tokens(collator, &one, sample * texts + i, batch);
        snug_batch_number_positions(batch, begin, batch->tokens, collator->options->first_position);
    }
    snug_task_info(collator->options->task)->collate(collator, epoch, row, text, first, batch);
}

/* Sequences of a row. */
static int64_t count_sequences(const struct snug_collator *collator, const struct snug_dataset_row *text) {
    struct snug_group group;
    if (!snug_task_info(collator->options->task)->groups)
        return collator->options->texts ? collator->options->texts : 1;
    snug_dataset_row_group(text, &group);
    return group.count;
}

static snug_status add_row(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t row,
                           int64_t sample, struct snug_batch *batch) {
    struct snug_dataset_row text;
    RETURN_IF_ERROR(snug_dataset_read(ctx, collator->dataset, row, &collator->buffer, &text));
    if (batch->sequences + count_sequences(collator, &text) > collator->limits.sequences ||
        text.count > collator->limits.tokens - batch->tokens)
        return snug_fail(ctx, SNUG_E_INTERNAL,
                         "a batch of %s is larger than planned: the plan did not include this epoch",
                         snug_dataset_path(collator->dataset));
    (snug_task_info(collator->options->task)->groups ? add_group
     : collator->options->texts                      ? add_texts
                                                     : add_text)(collator, epoch, row, &text, sample, batch);
    return SNUG_OK;
}

snug_status snug_collator_collate(snug_context *ctx, struct snug_collator *collator, int64_t epoch, int64_t number,
                                  struct snug_batch *batch) {
    const int64_t steps = collator->options->accumulation, micro = number % steps;
    struct members members;
    const int64_t share = snug_loader_share(collator->options), first = number - micro;
    const int64_t between =
        collator->options->in_turns ? collator->options->ranks : 1; /* from one of a rank's to the next */
    const int64_t own = micro / between % share;
    batch->sequences = batch->tokens = batch->rows = batch->items = batch->longest = batch->truncated = 0;
    batch->weight = 0;
    batch->texts = collator->options->texts;
    batch->class_weights = collator->options->class_weights;
    RETURN_IF_ERROR(find_members(ctx, collator, epoch, number, &members));
    RETURN_IF_ERROR(find_member(ctx, collator, &members, 0, &batch->first_row, &batch->first_sample));
    batch->last_in_step = own == share - 1 || number + between >= collator->batches;
    batch->offsets[0] = 0;
    for (int64_t i = 0, row, sample; i < members.count; i++) {
        RETURN_IF_ERROR(find_member(ctx, collator, &members, i, &row, &sample));
        RETURN_IF_ERROR(add_row(ctx, collator, epoch, row, sample, batch));
    }
    snug_radix_order(batch->by_id, collator->scratch, batch->ids, batch->tokens);

    batch->items_in_step = 0;
    batch->weight_in_step = 0;
    if (own) return SNUG_OK;
    /* In the order of the micro-batches: all ranks, however many there are, have the same bits. */
    for (int64_t next = first; next < first + steps && next < collator->batches; next++) {
        struct snug_items items = {batch->items, batch->weight};
        if (next != number) RETURN_IF_ERROR(count_items(ctx, collator, epoch, next, &items));
        batch->items_in_step += items.count;
        batch->weight_in_step += items.weight;
    }
    return SNUG_OK;
}
