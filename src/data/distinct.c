/* SPDX-License-Identifier: Apache-2.0 */
#include "data/distinct.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/min_max.h"
#include "data/permutation.h"

enum {
    LOOKS = 4 /* steps of waiting rows that a step is offered before new ones: the time is in proportion to the rows */
};

/* A text of the current step. */
struct slot {
    uint64_t text;
    int64_t step; /* that it belongs to: others are empty */
};

struct snug_distinct {
    enum snug_sampling sampling;
    uint64_t seed;
    int64_t all, used, texts, step, put_off;
    uint64_t *hashes; /* [all * texts] */
    int32_t *table;   /* [all] the rows of the epoch */
    int32_t *queue;   /* [all] a ring of those that wait */
    int64_t first, waiting;
    struct slot *slots;
    int64_t mask, steps; /* of slots; steps that were begun: the current one's number */
    pthread_mutex_t lock;
    _Atomic int64_t epoch; /* of the table; -1: none */
};

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static struct slot *find_slot(struct snug_distinct *d, uint64_t text) {
    int64_t at = (int64_t)(text & (uint64_t)d->mask);
    while (d->slots[at].step == d->steps && d->slots[at].text != text) at = (at + 1) & d->mask;
    return &d->slots[at];
}

/* Adds a row to the current step if that has none of its texts. */
static bool take(struct snug_distinct *d, int64_t row, int64_t *count, int32_t *out) {
    const uint64_t *texts = d->hashes + row * d->texts;
    for (int64_t i = 0; i < d->texts; i++)
        if (find_slot(d, texts[i])->step == d->steps) return false;
    for (int64_t i = 0; i < d->texts; i++) *find_slot(d, texts[i]) = (struct slot){texts[i], d->steps};
    out[(*count)++] = (int32_t)row;
    return true;
}

static int64_t row_at(const struct snug_distinct *d, int64_t epoch, int64_t place) {
    return d->sampling == SNUG_SAMPLING_SEQUENTIAL ? place : snug_permutation(d->seed, epoch, d->all, place);
}

static void wait_for_later(struct snug_distinct *d, int64_t row) {
    d->queue[(d->first + d->waiting++) % d->all] = (int32_t)row;
}

/* Offers up to `most` waiting rows to the step. A row that it does not take goes to the end of the queue. */
static void offer_waiting(struct snug_distinct *d, int64_t most, int64_t wanted, int64_t *count, int32_t *out) {
    for (int64_t left = snug_min(most, d->waiting); left > 0 && *count < wanted; left--) {
        const int64_t row = d->queue[d->first];
        d->first = (d->first + 1) % d->all;
        d->waiting--;
        if (!take(d, row, count, out)) wait_for_later(d, row);
    }
}

/* Fills a step with up to `wanted` rows; *next: the epoch's next new row. */
static int64_t fill(struct snug_distinct *d, int64_t epoch, int64_t wanted, int64_t *next, int32_t *out) {
    int64_t count = 0;
    d->steps++;
    offer_waiting(d, LOOKS * d->step, wanted, &count, out);
    while (count < wanted && *next < d->all) {
        const int64_t row = row_at(d, epoch, (*next)++);
        if (take(d, row, &count, out)) continue;
        d->put_off += epoch == 0;
        wait_for_later(d, row);
    }
    offer_waiting(d, d->all, wanted, &count, out);
    return count;
}

/* ---- an epoch ---------------------------------------------------------------------------------------------------- */

static void begin_epoch(struct snug_distinct *d) { d->first = d->waiting = 0; }

/* The first epoch, which decides how many rows an epoch has. */
static void fill_first(struct snug_distinct *d) {
    int64_t count = d->step, next = 0;
    begin_epoch(d);
    d->used = d->put_off = 0;
    while (count == d->step) {
        count = fill(d, 0, d->step, &next, d->table + d->used);
        d->used += count;
    }
}

/* Whether all steps of an epoch could be filled. */
static bool fill_other(struct snug_distinct *d, int64_t epoch) {
    int64_t next = 0;
    begin_epoch(d);
    for (int64_t at = 0; at < d->used; at += d->step) {
        const int64_t wanted = snug_min(d->step, d->used - at);
        int64_t count = fill(d, epoch, wanted, &next, d->table + at);
        for (int64_t place = 0; count < wanted && place < d->all; place++) /* rows that the epoch had */
            take(d, row_at(d, epoch, place), &count, d->table + at);
        if (count < wanted) return false;
    }
    return true;
}

/* The steps of the first epoch in another order. */
static void shuffle_first(struct snug_distinct *d, int64_t epoch) {
    const int64_t full = d->used / d->step;
    fill_first(d);
    memcpy(d->queue, d->table, (size_t)d->used * sizeof *d->table);
    for (int64_t i = 0; i < full; i++)
        memcpy(d->table + i * d->step, d->queue + snug_permutation(d->seed, epoch, full, i) * d->step,
               (size_t)d->step * sizeof *d->table);
}

static void make_epoch(struct snug_distinct *d, int64_t epoch) {
    if (epoch == 0 || d->sampling == SNUG_SAMPLING_SEQUENTIAL)
        fill_first(d);
    else if (!fill_other(d, epoch))
        shuffle_first(d, epoch);
}

void snug_distinct_rows(struct snug_distinct *d, int64_t epoch, int64_t place, int64_t count, int64_t *rows) {
    if (atomic_load(&d->epoch) != epoch) {
        pthread_mutex_lock(&d->lock);
        if (atomic_load(&d->epoch) != epoch) make_epoch(d, epoch);
        atomic_store(&d->epoch, epoch);
        pthread_mutex_unlock(&d->lock);
    }
    for (int64_t i = 0; i < count; i++) rows[i] = d->table[place + i];
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static snug_status read_texts(snug_context *ctx, const struct snug_dataset *dataset, struct snug_distinct *d) {
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    snug_status status = SNUG_OK;
    for (int64_t i = 0; i < d->all && status == SNUG_OK; i++) {
        status = snug_dataset_read(ctx, dataset, i, &buffer, &row);
        if (status != SNUG_OK) break;
        for (int64_t k = 0; k < d->texts; row.ids += row.labels[1 + k++])
            d->hashes[i * d->texts + k] = XXH3_64bits(row.ids, row.labels[1 + k] * sizeof *row.ids);
        if (i % 4096 == 0 && snug_stop_asked(ctx))
            status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while texts were compared");
    }
    free(buffer.data);
    return status;
}

static snug_status allocate(snug_context *ctx, struct snug_distinct *d) {
    const size_t rows = (size_t)d->all;
    int64_t slots = 8;
    while (slots < 2 * snug_min(d->step, d->all) * d->texts) slots *= 2;
    d->mask = slots - 1;
    RETURN_IF_ERROR(snug_alloc(ctx, rows * (size_t)d->texts, sizeof *d->hashes, (void **)&d->hashes));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *d->table, (void **)&d->table));
    RETURN_IF_ERROR(snug_alloc(ctx, rows, sizeof *d->queue, (void **)&d->queue));
    return snug_alloc(ctx, (size_t)slots, sizeof *d->slots, (void **)&d->slots);
}

static snug_status open_distinct(snug_context *ctx, const struct snug_dataset *dataset, struct snug_distinct *d) {
    RETURN_IF_ERROR(allocate(ctx, d));
    RETURN_IF_ERROR(read_texts(ctx, dataset, d));
    fill_first(d);
    atomic_store(&d->epoch, 0);
    if (d->used >= snug_min(d->step, d->all)) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: --batch_sampler no_duplicates: %" PRId64 " of its %" PRId64
                     " rows have no text in common, too few for a step of %" PRId64
                     ": give a smaller --per_device_train_batch_size",
                     snug_dataset_path(dataset), d->used, d->all, d->step);
}

snug_status snug_distinct_open(snug_context *ctx, const struct snug_dataset *dataset, int64_t step,
                               enum snug_sampling sampling, uint64_t seed, struct snug_distinct **out) {
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &memory));
    struct snug_distinct *d = memory;
    *d = (struct snug_distinct){.sampling = sampling,
                                .seed = seed,
                                .all = snug_dataset_rows(dataset),
                                .texts = snug_dataset_texts(dataset),
                                .step = step,
                                .epoch = -1};
    pthread_mutex_init(&d->lock, NULL);
    const snug_status status = open_distinct(ctx, dataset, d);
    if (status == SNUG_OK)
        *out = d;
    else
        snug_distinct_close(d);
    return status;
}

void snug_distinct_close(struct snug_distinct *d) {
    if (!d) return;
    pthread_mutex_destroy(&d->lock);
    free(d->hashes);
    free(d->table);
    free(d->queue);
    free(d->slots);
    free(d);
}

int64_t snug_distinct_all(const struct snug_distinct *d) { return d->all; }
int64_t snug_distinct_used(const struct snug_distinct *d) { return d->used; }
int64_t snug_distinct_put_off(const struct snug_distinct *d) { return d->put_off; }
