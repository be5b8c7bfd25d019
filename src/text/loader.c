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

snug_status snug_loader_check(snug_context *ctx, const struct snug_dataset *dataset,
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
        loader->worker_count++;
        RETURN_IF_ERROR(snug_filler_init(loader->ctx, loader->dataset, options, limits,
                                         carve(memory, &offset, limits->tokens, 4), &worker->filler));
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
    RETURN_IF_ERROR(snug_loader_check(ctx, dataset, options));
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
