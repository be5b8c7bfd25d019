/* SPDX-License-Identifier: Apache-2.0 */
#include "data/packs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "data/radix.h"

enum {
    WINDOW_LEAST = 1024,    /* rows; TRL packs 1,000 at a time */
    WINDOW_MOST = 1 << 20,  /* rows of few tokens, in packs of many */
    WINDOW_PACKS = 32,      /* of a window at least: its last pack is half empty in the mean */
    ORDER_EPOCH = INT32_MAX /* the order in which rows are packed is that of no epoch */
};

/* ---- one window ------------------------------------------------------------------------------------------------- */

snug_status snug_packer_init(snug_context *ctx, const struct snug_packs *packs, struct snug_packer *out) {
    const size_t rows = (size_t)packs->window;
    *out = (struct snug_packer){.packs = packs, .cached = -1, .leaves = 1};
    while (out->leaves < packs->window) out->leaves *= 2;
    RETURN_IF_ERROR(snug_lengths_init(ctx, packs->dataset, packs->window, &out->lengths));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *out->members, (void **)&out->members));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *out->rows, (void **)&out->rows));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *out->tokens, (void **)&out->tokens));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *out->sorted, (void **)&out->sorted));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *out->scratch, (void **)&out->scratch));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *out->pack_of, (void **)&out->pack_of));
    RETURN_IF_ERROR(snug_alloc(ctx, rows + 1, sizeof *out->starts, (void **)&out->starts));
    return snug_alloc(ctx, 2 * (size_t)out->leaves, sizeof *out->room, (void **)&out->room);
}

void snug_packer_free(struct snug_packer *packer) {
    snug_lengths_free(&packer->lengths);
    free(packer->members);
    free(packer->rows);
    free(packer->tokens);
    free(packer->sorted);
    free(packer->scratch);
    free(packer->pack_of);
    free(packer->starts);
    free(packer->room);
    *packer = (struct snug_packer){0};
}

/* The first pack with room for a row, which then has less. */
static int32_t take_room(struct snug_packer *p, int32_t tokens) {
    int64_t at = 1;
    while (at < p->leaves) at = 2 * at + (p->room[2 * at] < tokens);
    const int32_t pack = (int32_t)(at - p->leaves);
    p->room[at] -= tokens;
    while (at /= 2) p->room[at] = p->room[2 * at] > p->room[2 * at + 1] ? p->room[2 * at] : p->room[2 * at + 1];
    return pack;
}

static void pack_by_length(struct snug_packer *p, int64_t count) {
    const int32_t longest = (int32_t)snug_dataset_longest(p->packs->dataset);
    for (int64_t i = 0; i < 2 * p->leaves; i++) p->room[i] = (int32_t)p->packs->tokens;
    for (int64_t i = 0; i < count; i++) p->tokens[i] = longest - p->tokens[i];
    snug_radix_order(p->sorted, p->scratch, p->tokens, count); /* stably, the longest first */
    for (int64_t i = 0; i < count; i++) p->tokens[i] = longest - p->tokens[i];
    p->count = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t row = p->sorted[i], pack = take_room(p, p->tokens[row]);
        p->pack_of[row] = pack;
        if (pack >= p->count) p->count = pack + 1;
    }
}

static void pack_in_order(struct snug_packer *p, int64_t count) {
    int64_t room = 0;
    p->count = 0;
    for (int64_t i = 0; i < count; i++) {
        if (p->tokens[i] > room) {
            room = p->packs->tokens;
            p->count++;
        }
        room -= p->tokens[i];
        p->pack_of[i] = (int32_t)(p->count - 1);
    }
}

/* Rows of a pack keep the order of the window. */
static snug_status pack_window(snug_context *ctx, struct snug_packer *p, int64_t window) {
    const struct snug_packs *packs = p->packs;
    const int64_t begin = window * packs->window, count = snug_min(packs->window, packs->order.rows - begin);
    p->cached = -1; /* no window if this fails */
    snug_order_unsorted(&packs->order, ORDER_EPOCH, begin, count, p->members);
    RETURN_IF_ERROR(snug_lengths_read(ctx, &p->lengths, p->members, count, p->tokens));
    for (int64_t i = 0; i < count; i++)
        if (p->tokens[i] > packs->tokens)
            return snug_fail(ctx, SNUG_E_USAGE,
                             "--per_device_train_tokens %" PRId64 ": %s has a row of %d tokens; give at least %" PRId64
                             ", or a smaller --max_seq_length, at which rows are cut",
                             packs->tokens, snug_dataset_path(packs->dataset), p->tokens[i],
                             snug_dataset_longest(packs->dataset));
    if (packs->order.sampling == SNUG_SAMPLING_SEQUENTIAL)
        pack_in_order(p, count);
    else
        pack_by_length(p, count);
    memset(p->starts, 0, (size_t)(p->count + 1) * sizeof *p->starts);
    for (int64_t i = 0; i < count; i++) p->starts[p->pack_of[i] + 1]++;
    for (int64_t i = 0; i < p->count; i++) p->starts[i + 1] += p->starts[i];
    for (int64_t i = 0; i < p->count; i++) p->scratch[i] = p->starts[i];
    for (int64_t i = 0; i < count; i++) p->rows[p->scratch[p->pack_of[i]]++] = p->members[i];
    p->cached = window;
    return SNUG_OK;
}

snug_status snug_packer_rows(snug_context *ctx, struct snug_packer *packer, int64_t pack, const int64_t **rows,
                             int64_t *count) {
    const int64_t *first = packer->packs->first;
    int64_t low = 0, high = packer->packs->windows - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (first[middle] <= pack)
            low = middle;
        else
            high = middle - 1;
    }
    if (packer->cached != low) RETURN_IF_ERROR(pack_window(ctx, packer, low));
    const int64_t own = pack - first[low];
    *rows = packer->rows + packer->starts[own];
    *count = packer->starts[own + 1] - packer->starts[own];
    return SNUG_OK;
}

/* ---- all windows ------------------------------------------------------------------------------------------------ */

static int64_t choose_window(const struct snug_dataset *dataset, int64_t tokens) {
    const int64_t rows = snug_dataset_rows(dataset);
    const double mean = (double)snug_dataset_tokens(dataset) / (double)rows,
                 wanted = WINDOW_PACKS * (double)tokens / mean;
    const int64_t window = wanted > WINDOW_MOST ? WINDOW_MOST : wanted < WINDOW_LEAST ? WINDOW_LEAST : (int64_t)wanted;
    return snug_min(window, rows);
}

/* Counts the packs of the window that the packer has packed. */
static void measure(struct snug_packs *packs, const struct snug_packer *p, int64_t window, int64_t count) {
    packs->first[window + 1] = packs->first[window] + p->count;
    int32_t *tokens = p->scratch; /* by pack */
    memset(tokens, 0, (size_t)p->count * sizeof *tokens);
    for (int64_t i = 0; i < count; i++) {
        tokens[p->pack_of[i]] += p->tokens[i];
        packs->longest = snug_max(packs->longest, p->tokens[i]);
    }
    for (int64_t i = 0; i < p->count; i++) {
        packs->most_rows = snug_max(packs->most_rows, p->starts[i + 1] - p->starts[i]);
        packs->most_tokens = snug_max(packs->most_tokens, tokens[i]);
        snug_sizes_add(&packs->sizes, tokens[i]);
    }
}

static snug_status pack_all(snug_context *ctx, struct snug_packs *packs) {
    struct snug_packer packer;
    snug_status status = snug_packer_init(ctx, packs, &packer);
    for (int64_t window = 0; window < packs->windows && status == SNUG_OK; window++) {
        status = pack_window(ctx, &packer, window);
        if (status != SNUG_OK) break;
        measure(packs, &packer, window, snug_min(packs->window, packs->order.rows - window * packs->window));
        if (snug_stop_asked(ctx)) status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while rows were packed");
    }
    snug_packer_free(&packer);
    return status;
}

snug_status snug_packs_open(snug_context *ctx, const struct snug_dataset *dataset, int64_t tokens,
                            enum snug_sampling sampling, uint64_t seed, struct snug_packs *out) {
    const int64_t rows = snug_dataset_rows(dataset);
    const struct snug_loader_options options = {
        .sampling = sampling, .seed = seed, .batch_size = 1, .accumulation = 1, .drop_last = false};
    *out = (struct snug_packs){.dataset = dataset, .tokens = tokens, .window = choose_window(dataset, tokens)};
    out->windows = (rows + out->window - 1) / out->window;
    RETURN_IF_ERROR(snug_order_init(ctx, dataset, &options, &out->order));
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)out->windows + 1, sizeof *out->first, (void **)&out->first));
    if (sampling != SNUG_SAMPLING_SEQUENTIAL) {
        RETURN_IF_ERROR(
            snug_alloc(ctx, (size_t)snug_permutation_words(rows), sizeof *out->words, (void **)&out->words));
        snug_permutation_tabulate(seed, ORDER_EPOCH, rows, out->words);
        out->order.words = out->words;
    }
    return pack_all(ctx, out);
}

void snug_packs_close(struct snug_packs *packs) {
    snug_order_free(&packs->order);
    free(packs->words);
    free(packs->first);
    *packs = (struct snug_packs){0};
}
