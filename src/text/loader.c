/* SPDX-License-Identifier: Apache-2.0 */
#include "text/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "text/fill.h"

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

int64_t snug_loader_batches(int64_t rows, const struct snug_loader_options *options) {
    int64_t whole = rows / options->batch_size;
    return whole + (!options->drop_last && rows % options->batch_size != 0);
}

int64_t snug_loader_steps(int64_t rows, const struct snug_loader_options *options) {
    int64_t batches = snug_loader_batches(rows, options);
    return batches / options->accumulation + (batches % options->accumulation != 0);
}

static snug_status check_options(snug_context *ctx, const struct snug_dataset *dataset,
                                 const struct snug_loader_options *options) {
    int64_t rows = snug_dataset_rows(dataset);
    if (options->batch_size < 1 || options->accumulation < 1 || options->batch_size > INT32_MAX ||
        options->accumulation > INT32_MAX || options->batch_size * options->accumulation > INT32_MAX)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "a batch of %" PRId64 " sequences and %" PRId64
                         " accumulation steps cannot be used: both must be 1 or more, and their product below 2^31",
                         options->batch_size, options->accumulation);
    if (snug_loader_batches(rows, options) == 0)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "%s: its %" PRId64 " rows do not fill one batch of %" PRId64
                         ", and --dataloader_drop_last drops incomplete ones",
                         snug_dataset_path(dataset), rows, options->batch_size);
    if (options->workers < 0 || options->workers > 1024 || options->prefetch < 0 || options->prefetch > 1024)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "%d --dataloader_num_workers and --dataloader_prefetch_factor %d: both must "
                         "be from 0 to 1024",
                         options->workers, options->prefetch);
    if (options->task != SNUG_TASK_MLM) return SNUG_OK;
    bool drawn = options->mlm_probability > 0 && options->mlm_probability <= 1;
    if (options->vocab_size < 1 || options->vocab_size > INT32_MAX || !(drawn || options->fill_mask))
        return snug_fail(ctx, SNUG_E_USAGE,
                         "masking %g of the tokens of a vocabulary of %" PRId64
                         " cannot be done: --mlm_probability must be above 0 and at most 1",
                         options->mlm_probability, options->vocab_size);
    if (options->tokenizer && snug_tokenizer_special(options->tokenizer).mask < 0)
        return snug_fail(ctx, SNUG_E_INPUT, "the tokenizer has no [MASK] token, which --task mlm needs");
    return SNUG_OK;
}

/* Widens longest by the rows at place … stop - 1, and gives their tokens. Rows are found first and looked at then, so
   that the processor waits for many entries of the index at a time. */
static int64_t scan_rows(struct snug_order *order, int64_t epoch, int64_t place, int64_t stop, int64_t *longest) {
    int64_t rows[SNUG_ORDER_TOGETHER], tokens = 0;
    while (place < stop) {
        int64_t count = stop - place < SNUG_ORDER_TOGETHER ? stop - place : SNUG_ORDER_TOGETHER;
        snug_order_rows(order, epoch, place, count, rows);
        for (int64_t i = 0; i < count; i++) {
            int64_t length = snug_dataset_length(order->dataset, rows[i]);
            tokens += length;
            if (*longest < length) *longest = length;
        }
        place += count;
    }
    return tokens;
}

/* Widens out by the batches first … end - 1 of an epoch. */
static void scan_batches(struct snug_order *order, const struct snug_loader_options *options, int64_t epoch,
                         int64_t first, int64_t end, struct snug_loader_limits *out) {
    for (int64_t batch = first; batch < end; batch++) {
        int64_t place = batch * options->batch_size, stop = place + options->batch_size;
        if (stop > order->rows) stop = order->rows;
        if (out->sequences < stop - place) out->sequences = stop - place;
        int64_t tokens = scan_rows(order, epoch, place, stop, &out->longest);
        if (out->tokens < tokens) out->tokens = tokens;
        snug_sizes_add(&out->sizes, tokens);
    }
}

static snug_status scan_epoch(snug_context *ctx, const struct snug_dataset *dataset,
                              const struct snug_loader_options *options, int64_t epoch, int64_t batches,
                              const uint32_t *words, struct snug_loader_limits *out) {
    snug_status result = SNUG_OK;
    bool worthwhile = batches * options->batch_size > 1 << 18; /* rows: some 10 ms for one thread */
    /* Whole windows where lengths are grouped, so that none is sorted twice. */
    int64_t grain = 50 * options->accumulation, parts = (batches + grain - 1) / grain;
#pragma omp parallel if (worthwhile)
    {
        struct snug_order order;
        struct snug_loader_limits own = {0};
        snug_status status = snug_order_init(ctx, dataset, options, &order);
        order.words = words;
#pragma omp for schedule(dynamic, 1)
        for (int64_t part = 0; part < parts; part++) {
            int64_t first = part * grain, end = first + grain < batches ? first + grain : batches;
            if (status == SNUG_OK) scan_batches(&order, options, epoch, first, end, &own);
        }
#pragma omp critical(snug_loader_limits)
        {
            if (status != SNUG_OK) result = status;
            if (out->sequences < own.sequences) out->sequences = own.sequences;
            if (out->tokens < own.tokens) out->tokens = own.tokens;
            if (out->longest < own.longest) out->longest = own.longest;
            for (int i = 0; i < SNUG_SIZES / 64; i++) out->sizes.bits[i] |= own.sizes.bits[i];
        }
        if (status == SNUG_OK) snug_order_free(&order);
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
    snug_status status = SNUG_OK;
    for (int64_t epoch = 0, left = max_steps; status == SNUG_OK && epoch < epochs && (max_steps <= 0 || left > 0);
         epoch++, left -= steps) {
        int64_t wanted = max_steps > 0 && left < steps ? left * options->accumulation : batches;
        if (permuted) snug_permutation_tabulate(options->seed, epoch, rows, words);
        status = scan_epoch(ctx, dataset, options, epoch, wanted < batches ? wanted : batches, words, out);
    }
    free(words);
    return status;
}

snug_status snug_loader_limits(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, int64_t epochs, int64_t max_steps,
                               struct snug_loader_limits *out) {
    int64_t rows = snug_dataset_rows(dataset);
    *out = (struct snug_loader_limits){0};
    RETURN_IF_ERROR(check_options(ctx, dataset, options));
    if (options->sampling == SNUG_SAMPLING_SEQUENTIAL) epochs = 1;
    if (snug_dataset_tokens(dataset) == rows * snug_dataset_longest(dataset)) { /* all of one length: any batch tells */
        out->sequences = rows < options->batch_size ? rows : options->batch_size;
        out->longest = snug_dataset_longest(dataset);
        out->tokens = out->sequences * out->longest;
        snug_sizes_add(&out->sizes, out->tokens);
        if (!options->drop_last && rows % options->batch_size)
            snug_sizes_add(&out->sizes, rows % options->batch_size * out->longest);
        epochs = 0;
    }
    RETURN_IF_ERROR(scan_epochs(ctx, dataset, options, epochs, max_steps, out));
    if (out->tokens > INT32_MAX)
        return snug_fail(ctx, SNUG_E_USAGE, "%s: a batch of %" PRId64 " tokens is too large: make the batch smaller",
                         snug_dataset_path(dataset), out->tokens);
    out->rows = options->task == SNUG_TASK_MLM ? out->tokens : out->sequences;
    return SNUG_OK;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Takes count elements of size bytes, 64-byte aligned, from the block at base; NULL where base is. */
static void *carve(char *base, int64_t *offset, int64_t count, int64_t size) {
    void *taken = base ? base + *offset : NULL;
    *offset += (count * size + 63) / 64 * 64;
    return taken;
}

static int64_t target_count(const struct snug_loader_limits *limits, const struct snug_loader_options *options) {
    if (options->task == SNUG_TASK_MLM || options->problem == SNUG_PROBLEM_SINGLE_LABEL) return 0;
    return options->problem == SNUG_PROBLEM_MULTI_LABEL ? limits->rows * options->labels : limits->rows;
}

static void carve_batch(char *base, int64_t *offset, const struct snug_loader_limits *limits,
                        const struct snug_loader_options *options, struct snug_batch *batch) {
    int64_t targets = target_count(limits, options);
    batch->offsets = carve(base, offset, limits->sequences + 1, 4);
    batch->ids = carve(base, offset, limits->tokens, 4);
    batch->types = carve(base, offset, limits->tokens, 4);
    batch->positions = carve(base, offset, limits->tokens, 4);
    batch->sample = carve(base, offset, limits->tokens, 4);
    batch->by_id = carve(base, offset, limits->tokens, 4);
    batch->head_rows = carve(base, offset, limits->rows, 4);
    batch->labels = carve(base, offset, limits->rows, 4);
    batch->targets = targets ? carve(base, offset, targets, 4) : NULL;
}

/* The batch that the caller holds, and those ahead of it. */
static int64_t slot_count(const struct snug_loader_options *options) {
    int64_t ahead = (int64_t)options->workers * options->prefetch;
    return 1 + (ahead < options->workers ? options->workers : ahead);
}

static int64_t filler_count(const struct snug_loader_options *options) {
    return options->workers > 0 ? options->workers : 1;
}

int64_t snug_loader_bytes(const struct snug_loader_limits *limits, const struct snug_loader_options *options) {
    struct snug_batch batch;
    int64_t slot = 0, scratch = 0;
    carve_batch(NULL, &slot, limits, options, &batch);
    carve(NULL, &scratch, limits->tokens, 4);
    return slot * slot_count(options) + scratch * filler_count(options);
}

/* ---- the ring -------------------------------------------------------------------------------------------------- */

struct slot {
    struct snug_batch batch;
    snug_context *errors; /* its own, since a worker may fail long before the batch is asked for */
    snug_status status;
    bool ready;
};

struct worker {
    struct snug_loader *loader;
    struct snug_filler filler;
    pthread_t thread;
};

/* Batches are numbered within the epoch; batch b lies in slot b % slots. given <= taken <= batches, and at most slots
   batches are taken and not yet given back. */
struct snug_loader {
    snug_context *ctx;
    const struct snug_dataset *dataset;
    struct snug_loader_options options;
    struct slot *slots;
    struct worker *workers;
    int64_t slot_count, worker_count, started; /* fillers; running threads */

    pthread_mutex_t lock;
    pthread_cond_t work, done; /* something can be taken; something was finished */
    int64_t epoch, batches;    /* batches of the epoch, 0 before the first */
    int64_t taken, busy;       /* the next batch to fill; fillings under way */
    int64_t given, released;   /* the next batch to give; batches whose slots are free again */
    bool stop;

    int64_t items_in_step, tokens, padded;
};

static void fill_slot(struct worker *worker, int64_t epoch, int64_t number, struct slot *slot) {
    snug_clear_error(slot->errors);
    slot->status = snug_filler_fill(slot->errors, &worker->filler, epoch, number, &slot->batch);
}

static void *run_worker(void *argument) {
    struct worker *worker = argument;
    struct snug_loader *loader = worker->loader;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->stop &&
               !(loader->taken < loader->batches && loader->taken < loader->released + loader->slot_count))
            pthread_cond_wait(&loader->work, &loader->lock);
        if (loader->stop) break;
        int64_t number = loader->taken++, epoch = loader->epoch;
        struct slot *slot = &loader->slots[number % loader->slot_count];
        slot->ready = false;
        loader->busy++;
        pthread_mutex_unlock(&loader->lock);
        fill_slot(worker, epoch, number, slot);
        pthread_mutex_lock(&loader->lock);
        slot->ready = true;
        loader->busy--;
        pthread_cond_signal(&loader->done); /* only the caller waits for it */
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static snug_status create_slots(struct snug_loader *loader, const struct snug_loader_limits *limits, char *memory) {
    const struct snug_loader_options *options = &loader->options;
    int64_t offset = 0;
    void *slots, *workers;
    RETURN_IF_ERROR(snug_alloc(loader->ctx, (size_t)slot_count(options), sizeof *loader->slots, &slots));
    loader->slots = slots;
    loader->slot_count = slot_count(options);
    RETURN_IF_ERROR(snug_alloc(loader->ctx, (size_t)filler_count(options), sizeof *loader->workers, &workers));
    loader->workers = workers;
    for (int64_t i = 0; i < loader->slot_count; i++) {
        carve_batch(memory, &offset, limits, options, &loader->slots[i].batch);
        if (snug_context_create(&loader->slots[i].errors) != SNUG_OK)
            return snug_fail(loader->ctx, SNUG_E_MEMORY, "out of memory for the loader");
    }
    for (int64_t i = 0; i < filler_count(options); i++) {
        struct worker *worker = &loader->workers[i];
        worker->loader = loader;
        RETURN_IF_ERROR(snug_filler_init(loader->ctx, loader->dataset, options, limits,
                                         carve(memory, &offset, limits->tokens, 4), &worker->filler));
        loader->worker_count++;
    }
    return SNUG_OK;
}

static snug_status start_threads(struct snug_loader *loader) {
    for (; loader->started < loader->options.workers; loader->started++) {
        struct worker *worker = &loader->workers[loader->started];
        int error = pthread_create(&worker->thread, NULL, run_worker, worker);
        if (error)
            return snug_fail(loader->ctx, SNUG_E_MEMORY,
                             "a loader thread cannot be started: %s; "
                             "--dataloader_num_workers 0 needs none",
                             strerror(error));
    }
    return SNUG_OK;
}

snug_status snug_loader_create(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, const struct snug_loader_limits *limits,
                               void *memory, struct snug_loader **out) {
    void *created;
    *out = NULL;
    RETURN_IF_ERROR(check_options(ctx, dataset, options));
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_loader), &created));
    struct snug_loader *loader = created;
    loader->ctx = ctx;
    loader->dataset = dataset;
    loader->options = *options;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->done, NULL);
    snug_status status = create_slots(loader, limits, memory);
    if (status == SNUG_OK) status = start_threads(loader);
    if (status != SNUG_OK) {
        snug_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return SNUG_OK;
}

void snug_loader_destroy(struct snug_loader *loader) {
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (int64_t i = 0; i < loader->started; i++) pthread_join(loader->workers[i].thread, NULL);
    for (int64_t i = 0; i < loader->worker_count; i++) snug_filler_free(&loader->workers[i].filler);
    for (int64_t i = 0; i < loader->slot_count; i++) snug_context_destroy(loader->slots[i].errors);
    pthread_cond_destroy(&loader->done);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    free(loader->workers);
    free(loader->slots);
    free(loader);
}

snug_status snug_loader_begin_epoch(struct snug_loader *loader, int64_t epoch, int64_t first_step) {
    int64_t rows = snug_dataset_rows(loader->dataset), steps = snug_loader_steps(rows, &loader->options);
    if (epoch < 0 || first_step < 0 || first_step > steps)
        return snug_fail(loader->ctx, SNUG_E_USAGE,
                         "step %" PRId64 " of epoch %" PRId64 " cannot be gone to: an epoch has %" PRId64 " steps",
                         first_step, epoch, steps);
    pthread_mutex_lock(&loader->lock);
    loader->batches = 0;                                                  /* nothing more is taken … */
    while (loader->busy) pthread_cond_wait(&loader->done, &loader->lock); /* … and nothing is under way */
    loader->epoch = epoch;
    loader->batches = snug_loader_batches(rows, &loader->options);
    int64_t first = first_step * loader->options.accumulation;
    if (first > loader->batches) first = loader->batches;
    loader->taken = loader->given = loader->released = first;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    return SNUG_OK;
}

/* Waits until batch number is filled, or fills it where there are no workers. */
static void await_slot(struct snug_loader *loader, int64_t number, struct slot *slot) {
    if (!loader->started) {
        fill_slot(&loader->workers[0], loader->epoch, number, slot);
        return;
    }
    pthread_mutex_lock(&loader->lock);
    loader->released = number; /* those before it are the caller's no more */
    pthread_cond_broadcast(&loader->work);
    while (loader->taken <= number || !slot->ready) pthread_cond_wait(&loader->done, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
}

snug_status snug_loader_next(struct snug_loader *loader, const struct snug_batch **out) {
    *out = NULL;
    if (loader->given >= loader->batches) return SNUG_END;
    int64_t number = loader->given;
    struct slot *slot = &loader->slots[number % loader->slot_count];
    await_slot(loader, number, slot);
    if (slot->status != SNUG_OK) return snug_fail(loader->ctx, slot->status, "%s", snug_error_message(slot->errors));
    loader->given++;
    struct snug_batch *batch = &slot->batch;
    if (number % loader->options.accumulation == 0) loader->items_in_step = batch->items_in_step;
    batch->items_in_step = loader->items_in_step;
    loader->tokens += batch->tokens;
    loader->padded += batch->sequences * batch->longest;
    *out = batch;
    return SNUG_OK;
}

void snug_loader_padding(const struct snug_loader *loader, int64_t *tokens, int64_t *padded) {
    *tokens = loader->tokens;
    *padded = loader->padded;
}
