/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest batch of a run. The order of all epochs is scanned by lengths only, part by part, if that is cheap.
 * Longer runs get a bound from one histogram of the lengths: no order gives a larger batch than the longest rows.
 */
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>

#include "core/min_max.h"
#include "data/distinct.h"
#include "data/loader.h"
#include "data/packs.h"
#include "data/sampler.h"
#include "data/task.h"

enum {
    SCANNED =
        1 << 24, /* rows of all epochs: 0.8 s on two cores. A number of rows, so that every machine has the same plan */
    SCANNED_EPOCHS = 3, /* for any number of rows: negligible compared with the training */
    TOGETHER = 1 << 20, /* positions whose lengths all threads request at a time: more of them are in one block */
    PART_LEAST = 1 << 14,
    BYTES_A_PLACE = 8 + 4 + 4 /* the row, its length, what data/lengths.h needs: at most 16 MiB for 2^20 of them */
};

_Static_assert((int64_t)TOGETHER *BYTES_A_PLACE <= 16 << 20, "memory does not depend on the data set's size");

/* Shared by the threads. */
struct scan {
    const struct snug_dataset *dataset;
    const struct snug_loader_options *options;
    int64_t epoch, batches, part; /* of the epoch; batches of a part */
    const uint32_t *words;
    int stopped; /* only the caller's thread asks whether to stop */
};

/* Per thread. */
struct scanner {
    struct snug_order order;
    struct snug_lengths lengths;
    int64_t *rows;   /* [places of a part] */
    int32_t *tokens; /* the same */
    struct snug_loader_limits limits;
};

/* Batches of a part: whole steps, whose rows are dealt to them; whole windows if lengths are grouped, so that none is
   sorted twice; and enough per thread that threads rarely wait for each other. */
static int64_t choose_part(const struct scan *scan, int64_t window, int threads) {
    const int64_t batch = scan->options->batch_size;
    const int64_t unit =
        scan->options->sampling == SNUG_SAMPLING_GROUP_BY_LENGTH ? window / batch : scan->options->accumulation;
    const int64_t most = TOGETHER / threads;
    int64_t places = scan->batches * batch / threads / 4;
    if (places > most) places = most;
    if (places < PART_LEAST) places = PART_LEAST;
    return places / (unit * batch) < 1 ? unit : places / (unit * batch) * unit;
}

static snug_status open_scanner(snug_context *ctx, const struct scan *scan, struct scanner *own) {
    const int64_t all = snug_dataset_rows(scan->dataset), wanted = scan->part * scan->options->batch_size;
    const int64_t places = wanted < all ? wanted : all;
    void *rows, *tokens;
    RETURN_IF_ERROR(snug_order_init(ctx, scan->dataset, scan->options, &own->order));
    own->order.words = scan->words;
    RETURN_IF_ERROR(snug_lengths_init(ctx, scan->dataset, places, &own->lengths));
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)places, sizeof *own->rows, &rows));
    own->rows = rows;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)places, sizeof *own->tokens, &tokens));
    own->tokens = tokens;
    return SNUG_OK;
}

static void close_scanner(struct scanner *own) {
    snug_order_free(&own->order);
    snug_lengths_free(&own->lengths);
    free(own->rows);
    free(own->tokens);
}

/* Widens the limits by the batches first … end - 1 of the epoch. */
static snug_status scan_part(snug_context *ctx, const struct scan *scan, struct scanner *own, int64_t first,
                             int64_t end) {
    const int64_t batch = scan->options->batch_size, rows = own->order.rows, window = own->order.window;
    const bool grouped = scan->options->sampling == SNUG_SAMPLING_GROUP_BY_LENGTH;
    const int64_t place = first * batch;
    int64_t stop = end * batch;
    if (grouped) stop = (stop + window - 1) / window * window; /* its last window as a whole decides what comes first */
    if (stop > rows) stop = rows;
    snug_order_unsorted(&own->order, scan->epoch, place, stop - place, own->rows);
    RETURN_IF_ERROR(snug_lengths_read(ctx, &own->lengths, own->rows, stop - place, own->tokens));
    for (int64_t at = 0; grouped && at < stop - place; at += window)
        snug_order_sort_lengths(&own->order, own->tokens + at, stop - place - at < window ? stop - place - at : window);
    const int64_t used = (end * batch < rows ? end * batch : rows) - place;
    for (int64_t at = 0; at < used; at += own->order.step)
        snug_order_deal_lengths(&own->order, own->tokens + at,
                                used - at < own->order.step ? used - at : own->order.step);
    for (int64_t number = first; number < end; number++) {
        const int32_t *lengths = own->tokens + (number - first) * batch;
        const int64_t count = rows - number * batch < batch ? rows - number * batch : batch;
        int64_t tokens = 0;
        for (int64_t i = 0; i < count; i++) {
            tokens += lengths[i];
            if (own->limits.longest < lengths[i]) own->limits.longest = lengths[i];
        }
        if (own->limits.sequences < count) own->limits.sequences = count;
        if (own->limits.tokens < tokens) own->limits.tokens = tokens;
        snug_sizes_add(&own->limits.sizes, tokens);
    }
    return SNUG_OK;
}

static void widen(struct snug_loader_limits *out, const struct snug_loader_limits *by) {
    if (out->sequences < by->sequences) out->sequences = by->sequences;
    if (out->tokens < by->tokens) out->tokens = by->tokens;
    if (out->longest < by->longest) out->longest = by->longest;
    for (int i = 0; i < SNUG_SIZES / 64; i++) out->sizes.bits[i] |= by->sizes.bits[i];
}

/* A scan of one epoch. */
struct epoch {
    snug_context *ctx;
    struct scan *scan;
    int64_t window;
    struct snug_loader_limits *out;
};

/* Whether several threads scan it: rows take one thread some 10 ms. */
static bool is_worthwhile(const struct scan *scan) { return scan->batches * scan->options->batch_size > 1 << 18; }

static snug_status scan_epoch(void *user) {
    const struct epoch *epoch = user;
    snug_context *ctx = epoch->ctx;
    struct scan *scan = epoch->scan;
    struct snug_loader_limits *out = epoch->out;
    snug_status result = SNUG_OK;
    const int threads = is_worthwhile(scan) && scan->options->threads > 0 ? scan->options->threads : 1;
    scan->part = choose_part(scan, epoch->window, threads);
    const int64_t parts = (scan->batches + scan->part - 1) / scan->part;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct scanner own = {.rows = NULL};
        snug_status status = open_scanner(ctx, scan, &own);
#pragma omp for schedule(dynamic, 1)
        for (int64_t part = 0; part < parts; part++) {
            const int64_t first = part * scan->part, end = first + scan->part;
            if (status != SNUG_OK) continue;
            status = scan_part(ctx, scan, &own, first, end < scan->batches ? end : scan->batches);
            if (omp_get_thread_num() == 0 && snug_stop_asked(ctx))
#pragma omp atomic write
                scan->stopped = 1;
            int stopped;
#pragma omp atomic read
            stopped = scan->stopped;
            if (status == SNUG_OK && stopped)
                status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while the order of the rows was scanned");
        }
#pragma omp critical(snug_loader_limits)
        {
            if (status != SNUG_OK) result = status;
            widen(out, &own.limits);
        }
        close_scanner(&own);
    }
    return result;
}

static snug_status scan_epochs(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, int64_t epochs, int64_t max_steps,
                               struct snug_loader_limits *out) {
    int64_t rows = snug_dataset_rows(dataset);
    int64_t steps = snug_loader_steps(rows, options), batches = snug_loader_batches(rows, options);
    bool permuted = options->sampling != SNUG_SAMPLING_SEQUENTIAL && epochs > 0;
    void *words;
    RETURN_IF_ERROR(snug_alloc(ctx, permuted ? (size_t)snug_permutation_words(rows) : 0, sizeof(uint32_t), &words));
    struct scan scan = {.dataset = dataset, .options = options, .words = words};
    snug_status status = SNUG_OK;
    for (int64_t left = max_steps; status == SNUG_OK && scan.epoch < epochs && (max_steps <= 0 || left > 0);
         scan.epoch++, left -= steps) {
        int64_t wanted = max_steps > 0 && left < steps ? left * options->accumulation : batches;
        scan.batches = wanted < batches ? wanted : batches;
        if (permuted) snug_permutation_tabulate(options->seed, scan.epoch, rows, words);
        struct epoch epoch = {ctx, &scan, snug_order_window(rows, options), out};
        /* Small epochs are many, and need no other threads. */
        status = is_worthwhile(&scan) ? snug_compute(ctx, scan_epoch, &epoch) : scan_epoch(&epoch);
    }
    free(words);
    return status;
}

/* ---- the bound ------------------------------------------------------------------------------------------------- */

/* counts[n]: rows of n tokens. */
static snug_status count_lengths(snug_context *ctx, const struct snug_dataset *dataset, int64_t all, int64_t *counts) {
    const int64_t part = all < PART_LEAST ? all : PART_LEAST;
    struct snug_lengths lengths = {0};
    void *rows = NULL, *tokens = NULL;
    snug_status status = snug_lengths_init(ctx, dataset, part, &lengths);
    if (status == SNUG_OK) status = snug_alloc(ctx, (size_t)part, sizeof(int64_t), &rows);
    if (status == SNUG_OK) status = snug_alloc(ctx, (size_t)part, sizeof(int32_t), &tokens);
    for (int64_t first = 0; status == SNUG_OK && first < all; first += part) {
        const int64_t count = all - first < part ? all - first : part;
        for (int64_t i = 0; i < count; i++) ((int64_t *)rows)[i] = first + i;
        status = snug_lengths_read(ctx, &lengths, rows, count, tokens);
        for (int64_t i = 0; status == SNUG_OK && i < count; i++) counts[((const int32_t *)tokens)[i]]++;
        if (status == SNUG_OK && snug_stop_asked(ctx))
            status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while the lengths of the rows were counted");
    }
    free(rows);
    free(tokens);
    snug_lengths_free(&lengths);
    return status;
}

/* Tokens of the given number of shortest rows, or of longest rows. */
static int64_t sum_of(const int64_t *counts, int64_t longest, int64_t wanted, bool of_longest) {
    int64_t sum = 0;
    for (int64_t i = 0; wanted > 0 && i <= longest; i++) {
        const int64_t length = of_longest ? longest - i : i;
        const int64_t taken = counts[length] < wanted ? counts[length] : wanted;
        sum += taken * length;
        wanted -= taken;
    }
    return sum;
}

/* Marks all sizes that batches of this number of rows can have; returns the tokens of the largest. */
static int64_t mark_sizes(const int64_t *counts, int64_t longest, int64_t sequences, struct snug_sizes *sizes) {
    const int64_t most = sum_of(counts, longest, sequences, true);
    if (most > INT32_MAX) return most; /* is refused */
    const int last = snug_size_of(most);
    for (int size = snug_size_of(sum_of(counts, longest, sequences, false)); size <= last; size++)
        sizes->bits[size / 64] |= UINT64_C(1) << size % 64;
    return most;
}

static snug_status bound_batches(snug_context *ctx, const struct snug_dataset *dataset,
                                 const struct snug_loader_options *options, struct snug_loader_limits *out) {
    const int64_t rows = snug_dataset_rows(dataset);
    int64_t longest = snug_dataset_longest(dataset); /* of dummy data: maximum tokens of a row */
    const int64_t full = rows < options->batch_size ? rows : options->batch_size, rest = rows % full;
    void *counts;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)longest + 1, sizeof(int64_t), &counts));
    const int64_t all = options->distinct ? snug_distinct_all(options->distinct) : rows;
    const snug_status status = count_lengths(ctx, dataset, all, counts);
    if (status == SNUG_OK) {
        while (!((const int64_t *)counts)[longest]) longest--;
        out->any_order = true;
        out->longest = longest;
        out->sequences = full;
        out->tokens = mark_sizes(counts, longest, full, &out->sizes);
        if (rest && !options->drop_last) mark_sizes(counts, longest, rest, &out->sizes);
    }
    free(counts);
    return status;
}

/* Scans the order of the first epoch if that is cheap: its largest batch shows how tight the bound is. */
static snug_status bound_epochs(snug_context *ctx, const struct snug_dataset *dataset,
                                const struct snug_loader_options *options, struct snug_loader_limits *out) {
    struct snug_loader_limits first = {0};
    if (snug_dataset_rows(dataset) <= SCANNED / 4) RETURN_IF_ERROR(scan_epochs(ctx, dataset, options, 1, 0, &first));
    RETURN_IF_ERROR(bound_batches(ctx, dataset, options, out));
    out->first_epoch_tokens = first.tokens;
    return SNUG_OK;
}

/* ---- scan or bound ----------------------------------------------------------------------------------------------- */

static bool is_cheap(const struct snug_loader_options *options, int64_t rows, int64_t epochs, int64_t max_steps) {
    const double step = (double)options->batch_size * (double)options->accumulation;
    const double in_epochs = (double)epochs * (double)rows, in_steps = (double)max_steps * step;
    return epochs <= SCANNED_EPOCHS || in_epochs <= SCANNED || (max_steps > 0 && in_steps <= SCANNED);
}

snug_status snug_loader_limits(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, int64_t epochs, int64_t max_steps,
                               struct snug_loader_limits *out) {
    int64_t rows = snug_dataset_rows(dataset);
    *out = (struct snug_loader_limits){0};
    RETURN_IF_ERROR(snug_loader_check(ctx, dataset, options));
    if (options->sampling == SNUG_SAMPLING_SEQUENTIAL) epochs = 1;
    if (options->packs) { /* all epochs have all of them */
        out->sequences = options->packs->most_rows;
        out->tokens = options->packs->most_tokens;
        out->longest = options->packs->longest;
        out->sizes = options->packs->sizes;
        epochs = 0;
    } else if (snug_dataset_tokens(dataset) ==
               rows * snug_dataset_longest(dataset)) { /* all rows have one length: any batch gives the limits */
        out->sequences = rows < options->batch_size ? rows : options->batch_size;
        out->longest = snug_dataset_longest(dataset);
        out->tokens = out->sequences * out->longest;
        snug_sizes_add(&out->sizes, out->tokens);
        if (!options->drop_last && rows % options->batch_size)
            snug_sizes_add(&out->sizes, rows % options->batch_size * out->longest);
        epochs = 0;
    }
    RETURN_IF_ERROR(is_cheap(options, rows, epochs, max_steps)
                        ? scan_epochs(ctx, dataset, options, epochs, max_steps, out)
                        : bound_epochs(ctx, dataset, options, out));
    if (out->tokens > INT32_MAX)
        return snug_fail(ctx, SNUG_E_USAGE, "%s: a batch of %" PRId64 " tokens is too large: make the batch smaller",
                         snug_dataset_path(dataset), out->tokens);
    if (options->texts) {
        out->sequences = snug_min(out->sequences * options->texts, out->tokens);
        out->longest = snug_min(out->longest, snug_dataset_longest_sequence(dataset));
    }
    out->rows = snug_task_is_per_token(snug_task_info(options->task)) ? out->tokens : out->sequences;
    return SNUG_OK;
}
