/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sampler.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "data/distinct.h"
#include "data/radix.h"

static void permute(const struct snug_order *order, int64_t epoch, int64_t place, int64_t count, int64_t *rows) {
    const struct snug_permutation p = {order->seed, order->rows, order->bits, order->words};
    snug_permutation_rows(&p, epoch, place, count, rows);
}

/* transformers' get_length_grouped_indices: windows of 50 batches, or fewer if the data would have less than four
   windows. The batch is that of a whole optimizer step, as in Trainer, so that splitting it into micro-batches changes
   nothing. transformers also moves the longest row to the front, to run out of memory early; snug's plan already knows
   that row. */
int64_t snug_order_window(int64_t rows, const struct snug_loader_options *options) {
    int64_t step = options->batch_size * options->accumulation, batches = rows / 4 / step;
    return step * (batches < 1 ? 1 : batches > 50 ? 50 : batches);
}

static snug_status alloc_window(snug_context *ctx, struct snug_order *order) {
    const size_t rows = (size_t)snug_min(order->window, order->rows);
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *order->sorted, (void **)&order->sorted));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *order->scratch, (void **)&order->scratch));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *order->keys, (void **)&order->keys));
    return snug_alloc(ctx, rows, sizeof *order->members, (void **)&order->members);
}

static snug_status alloc_deal(snug_context *ctx, struct snug_deal *deal, int64_t most) {
    const size_t rows = (size_t)most, batches = (size_t)((most + deal->batch - 1) / deal->batch);
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *deal->members, (void **)&deal->members));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *deal->lengths, (void **)&deal->lengths));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *deal->sorted, (void **)&deal->sorted));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *deal->scratch, (void **)&deal->scratch));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *deal->batches, (void **)&deal->batches));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *deal->places, (void **)&deal->places));
    return snug_alloc(ctx, batches, sizeof *deal->heap, (void **)&deal->heap);
}

snug_status snug_order_init(snug_context *ctx, const struct snug_dataset *dataset,
                            const struct snug_loader_options *options, struct snug_order *out) {
    const int64_t rows = options->packs ? options->pack_count : snug_dataset_rows(dataset);
    const int64_t window = snug_order_window(rows, options);
    *out = (struct snug_order){.dataset = dataset,
                               .sampling = options->sampling,
                               .distinct = options->distinct,
                               .seed = options->seed,
                               .rows = rows,
                               .bits = snug_permutation_bits(rows),
                               .window = window,
                               .used = snug_min(snug_loader_batches(rows, options) * options->batch_size, rows),
                               .deal = {.batch = options->batch_size},
                               .cached_first = -1};
    const bool groups = options->sampling == SNUG_SAMPLING_GROUP_BY_LENGTH;
    int64_t most = groups ? snug_min(window, rows) : 0;
    out->step = options->batch_size * options->accumulation;
    if (groups && out->window > INT32_MAX)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "grouping by length sorts %" PRId64 " rows at a time, which is too many: "
                         "make the batch or --gradient_accumulation_steps smaller",
                         out->window);
    if (groups) RETURN_IF_ERROR(alloc_window(ctx, out));
    if (options->sampling != SNUG_SAMPLING_SEQUENTIAL && options->accumulation > 1 && !options->packs) {
        out->deal.rows = snug_min(out->step, rows);
        RETURN_IF_ERROR(alloc_deal(ctx, &out->deal, out->deal.rows));
        if (out->deal.rows > most) most = out->deal.rows;
    }
    return most ? snug_lengths_init(ctx, dataset, most, &out->lengths) : SNUG_OK;
}

void snug_order_free(struct snug_order *order) {
    free(order->sorted);
    free(order->scratch);
    free(order->keys);
    free(order->members);
    free(order->deal.members);
    free(order->deal.lengths);
    free(order->deal.sorted);
    free(order->deal.scratch);
    free(order->deal.batches);
    free(order->deal.places);
    free(order->deal.heap);
    snug_lengths_free(&order->lengths);
    *order = (struct snug_order){0};
}

/* Sorts longest first, stably; keys has the lengths. */
static void sort_by_length(struct snug_order *order, int64_t count) {
    const int32_t longest = (int32_t)snug_dataset_longest(order->dataset);
    for (int64_t i = 0; i < count; i++) order->keys[i] = longest - order->keys[i];
    snug_radix_order(order->sorted, order->scratch, order->keys, count);
}

void snug_order_sort_lengths(struct snug_order *order, int32_t *lengths, int64_t count) {
    memcpy(order->keys, lengths, (size_t)count * sizeof *lengths);
    sort_by_length(order, count);
    const int32_t longest = (int32_t)snug_dataset_longest(order->dataset);
    for (int64_t i = 0; i < count; i++) lengths[i] = longest - order->keys[order->sorted[i]];
}

static snug_status sort_window(snug_context *ctx, struct snug_order *order, int64_t epoch, int64_t first) {
    int64_t count = order->rows - first;
    if (count > order->window) count = order->window;
    order->cached_first = -1; /* no window if this fails */
    permute(order, epoch, first, count, order->members);
    RETURN_IF_ERROR(snug_lengths_read(ctx, &order->lengths, order->members, count, order->keys));
    sort_by_length(order, count);
    order->cached_epoch = epoch;
    order->cached_first = first;
    return SNUG_OK;
}

void snug_order_unsorted(const struct snug_order *order, int64_t epoch, int64_t place, int64_t count, int64_t *rows) {
    if (order->distinct)
        snug_distinct_rows(order->distinct, epoch, place, count, rows);
    else if (order->sampling != SNUG_SAMPLING_SEQUENTIAL)
        permute(order, epoch, place, count, rows);
    else
        for (int64_t i = 0; i < count; i++) rows[i] = place + i;
}

/* The row at a position before rows are dealt. */
static snug_status find_row(snug_context *ctx, struct snug_order *order, int64_t epoch, int64_t place, int64_t *row) {
    if (order->sampling != SNUG_SAMPLING_GROUP_BY_LENGTH) {
        snug_order_unsorted(order, epoch, place, 1, row);
        return SNUG_OK;
    }
    int64_t first = place / order->window * order->window;
    if (order->cached_first != first || order->cached_epoch != epoch)
        RETURN_IF_ERROR(sort_window(ctx, order, epoch, first));
    *row = order->members[order->sorted[place - first]];
    return SNUG_OK;
}

/* ---- dealing --------------------------------------------------------------------------------------------------- */

/* Work of a row, in units of a token's: a layer's matmuls have 24 h^2 FLOPs a token, its attention 4 h for each pair of
   tokens. The order of rows must not depend on the model: h is that of base models. */
static uint64_t work_of(int32_t length) {
    enum { HIDDEN = 768, MATMULS = 6 * HIDDEN };
    return (uint64_t)length * (uint64_t)(MATMULS + length);
}

static bool comes_first(const struct snug_deal_batch *a, const struct snug_deal_batch *b) {
    return a->work != b->work ? a->work < b->work : a->number < b->number;
}

/* Restores the heap after its first element has grown. */
static void sift_down(struct snug_deal_batch *heap, int64_t count) {
    for (int64_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && comes_first(&heap[child + 1], &heap[child])) child++;
        if (comes_first(&heap[at], &heap[child])) return;
        const struct snug_deal_batch down = heap[at];
        heap[at] = heap[child];
        heap[child] = down;
    }
}

/* Sets places, of `count` rows with the given lengths. */
static void deal_rows(struct snug_deal *deal, int32_t *lengths, int64_t count, int32_t longest) {
    int64_t batches = (count + deal->batch - 1) / deal->batch;
    for (int64_t i = 0; i < count; i++) lengths[i] = longest - lengths[i];
    snug_radix_order(deal->sorted, deal->scratch, lengths, count); /* stably, the longest first */
    for (int64_t i = 0; i < count; i++) lengths[i] = longest - lengths[i];
    for (int64_t i = 0; i < batches; i++)
        deal->heap[i] =
            (struct snug_deal_batch){0, (int32_t)i, (int32_t)snug_min(deal->batch, count - i * deal->batch)};
    for (int64_t i = 0; i < count; i++) {
        struct snug_deal_batch *least = &deal->heap[0];
        deal->batches[deal->sorted[i]] = least->number;
        least->work += work_of(lengths[deal->sorted[i]]);
        if (--least->left == 0) *least = deal->heap[--batches];
        sift_down(deal->heap, batches);
    }
    int32_t *next = deal->scratch; /* by micro-batch: its next dealt place */
    for (int64_t i = 0; i * deal->batch < count; i++) next[i] = (int32_t)(i * deal->batch);
    for (int64_t i = 0; i < count; i++) deal->places[next[deal->batches[i]]++] = (int32_t)i;
}

void snug_order_deal_lengths(struct snug_order *order, int32_t *lengths, int64_t count) {
    struct snug_deal *deal = &order->deal;
    if (!deal->rows) return;
    deal_rows(deal, lengths, count, (int32_t)snug_dataset_longest(order->dataset));
    memcpy(deal->lengths, lengths, (size_t)count * sizeof *lengths);
    for (int64_t i = 0; i < count; i++) lengths[i] = deal->lengths[deal->places[i]];
}

/* The step whose first place is `first`. */
static snug_status deal_step(snug_context *ctx, struct snug_order *order, int64_t epoch, int64_t first) {
    struct snug_deal *deal = &order->deal;
    const int64_t count = snug_min(order->step, order->used - first);
    deal->count = 0; /* no step if this fails */
    if (order->sampling == SNUG_SAMPLING_RANDOM)
        snug_order_unsorted(order, epoch, first, count, deal->members);
    else
        for (int64_t i = 0; i < count; i++) RETURN_IF_ERROR(find_row(ctx, order, epoch, first + i, &deal->members[i]));
    RETURN_IF_ERROR(snug_lengths_read(ctx, &order->lengths, deal->members, count, deal->lengths));
    deal_rows(deal, deal->lengths, count, (int32_t)snug_dataset_longest(order->dataset));
    deal->epoch = epoch;
    deal->first = first;
    deal->count = count;
    return SNUG_OK;
}

snug_status snug_order_row(snug_context *ctx, struct snug_order *order, int64_t epoch, int64_t place, int64_t *row,
                           int64_t *sample) {
    struct snug_deal *deal = &order->deal;
    const int64_t first = place / order->step * order->step;
    *sample = place - first;
    if (!deal->rows) return find_row(ctx, order, epoch, place, row);
    if (!deal->count || deal->first != first || deal->epoch != epoch)
        RETURN_IF_ERROR(deal_step(ctx, order, epoch, first));
    *sample = deal->places[place - first];
    *row = deal->members[*sample];
    return SNUG_OK;
}
