/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "data/collate.h"
#include "data/packs.h"
#include "data/task.h"

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

static bool takes_turns(const struct snug_loader_options *options) {
    return options->independent && options->ranks > 1;
}

/* Batches of an epoch that this rank has. */
static int64_t own_batches(int64_t rows, const struct snug_loader_options *options) {
    const int64_t batches = snug_loader_batches(rows, options), share = snug_loader_share(options);
    if (takes_turns(options)) return (batches - options->rank + options->ranks - 1) / options->ranks;
    const int64_t left = batches % options->accumulation; /* of the incomplete last step */
    int64_t last =
        options->in_turns ? (left - options->rank + options->ranks - 1) / options->ranks : left - options->rank * share;
    if (last < 0) last = 0;
    return batches / options->accumulation * share + (last < share ? last : share);
}

/* The number in the epoch of a rank's batch number `own`. */
static int64_t epoch_number(const struct snug_loader_options *options, int64_t own) {
    const int64_t share = snug_loader_share(options), first = own / share * options->accumulation;
    if (takes_turns(options)) return own * options->ranks + options->rank;
    if (options->in_turns) return first + own % share * options->ranks + options->rank;
    return first + options->rank * share + own % share;
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
    if (options->packs && options->packs->most_rows * options->accumulation > INT32_MAX)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "%" PRId64 " micro-batches of up to %" PRId64 " rows are more than 2^31 rows a step: make "
                         "--per_device_train_tokens or --gradient_accumulation_steps smaller",
                         options->accumulation, options->packs->most_rows);
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
    const struct snug_task_info *task = snug_task_info(options->task);
    return task->check ? task->check(ctx, options) : SNUG_OK;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Takes count elements of size bytes, 64-byte aligned, from the block at base; NULL if base is NULL. */
static void *place_array(char *base, int64_t *offset, int64_t count, int64_t size) {
    void *taken = base ? base + *offset : NULL;
    *offset += (count * size + 63) / 64 * 64;
    return taken;
}

static int64_t target_count(const struct snug_loader_limits *limits, const struct snug_loader_options *options) {
    const struct snug_task_info *task = snug_task_info(options->task);
    if (task->scored) return limits->rows;
    return task->targets ? task->targets(options, limits->rows) : 0;
}

static void place_batch_arrays(char *base, int64_t *offset, const struct snug_loader_limits *limits,
                               const struct snug_loader_options *options, struct snug_batch *batch) {
    int64_t targets = target_count(limits, options);
    batch->offsets = place_array(base, offset, limits->sequences + 1, 4);
    batch->ids = place_array(base, offset, limits->tokens, 4);
    batch->types = place_array(base, offset, limits->tokens, 4);
    batch->positions = place_array(base, offset, limits->tokens, 4);
    batch->position_ids = place_array(base, offset, limits->tokens, 4);
    batch->sample = place_array(base, offset, limits->tokens, 4);
    batch->by_id = place_array(base, offset, limits->tokens, 4);
    batch->loss_positions = place_array(base, offset, limits->rows, 4);
    batch->labels = place_array(base, offset, limits->rows, 4);
    batch->targets = targets ? place_array(base, offset, targets, 4) : NULL;
    if (snug_task_info(options->task)->preferences)
        batch->references = place_array(base, offset, 2 * limits->sequences, 4);
}

/* The batch that the caller holds, and those ahead of it. */
static int64_t slot_count(const struct snug_loader_options *options) {
    int64_t ahead = (int64_t)options->workers * options->prefetch;
    return 1 + (ahead < options->workers ? options->workers : ahead);
}

static int64_t collator_count(const struct snug_loader_options *options) {
    return options->workers > 0 ? options->workers : 1;
}

int64_t snug_loader_bytes(const struct snug_loader_limits *limits, const struct snug_loader_options *options) {
    struct snug_batch batch;
    int64_t slot = 0, scratch = 0;
    place_batch_arrays(NULL, &slot, limits, options, &batch);
    place_array(NULL, &scratch, limits->tokens, 4);
    return slot * slot_count(options) + scratch * collator_count(options);
}

/* ---- the ring -------------------------------------------------------------------------------------------------- */

struct slot {
    struct snug_batch batch;
    snug_context *errors; /* separate, because a worker may fail long before the batch is requested */
    snug_status status;
    bool ready;
};

struct worker {
    struct snug_loader *loader;
    struct snug_collator collator;
    pthread_t thread;
};

/* A rank's batches are numbered within the epoch; batch b is in slot b % slots. given <= taken <= batches, and at most
   slots batches are taken and not yet released. */
struct snug_loader {
    snug_context *ctx;
    const struct snug_dataset *dataset;
    struct snug_loader_options options;
    struct slot *slots;
    struct worker *workers;
    int64_t slot_count, worker_count, started; /* collators; running threads */

    pthread_mutex_t lock;
    pthread_cond_t work, done; /* a batch can be taken; a batch was finished */
    int64_t epoch, batches;    /* batches of the epoch, 0 before the first; those of two passes count twice */
    int64_t own;               /* without repetition; each step but the last has as many */
    int64_t taken, busy;       /* the next batch to collate; batches being collated */
    int64_t given, released;   /* the next batch to return; batches whose slots are free again */
    bool stop;

    int64_t items_in_step, tokens, padded;
    double weight_in_step;
};

/* With two passes a step's batches come twice: which batch is at place `number`, and whether it is the first time. */
struct turn {
    int64_t own; /* the number of a rank's batch */
    bool collects;
};
static struct turn turn_of(const struct snug_loader *loader, int64_t number) {
    const int64_t share = snug_loader_share(&loader->options);
    if (!loader->options.two_passes) return (struct turn){number, false};
    const int64_t first = number / (2 * share) * share, left = loader->own - first, count = left < share ? left : share;
    const int64_t place = number % (2 * share);
    return (struct turn){first + place % count, place < count};
}

static void fill_slot(struct worker *worker, int64_t epoch, int64_t number, struct slot *slot) {
    snug_clear_error(slot->errors);
    const struct turn turn = turn_of(worker->loader, number);
    const int64_t in_epoch = epoch_number(&worker->loader->options, turn.own);
    slot->status = snug_collator_collate(slot->errors, &worker->collator, epoch, in_epoch, &slot->batch);
    slot->batch.collects = turn.collects;
    slot->batch.last_in_pass = slot->batch.last_in_step;
    slot->batch.last_in_step &= !turn.collects;
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
    RETURN_IF_ERROR(snug_alloc(loader->ctx, (size_t)collator_count(options), sizeof *loader->workers, &workers));
    loader->workers = workers;
    for (int64_t i = 0; i < loader->slot_count; i++) {
        place_batch_arrays(memory, &offset, limits, options, &loader->slots[i].batch);
        if (snug_context_create(&loader->slots[i].errors) != SNUG_OK)
            return snug_fail(loader->ctx, SNUG_E_MEMORY, "out of memory for the loader");
    }
    for (int64_t i = 0; i < collator_count(options); i++) {
        struct worker *worker = &loader->workers[i];
        worker->loader = loader;
        loader->worker_count++;
        RETURN_IF_ERROR(snug_collator_init(loader->ctx, loader->dataset, options, limits,
                                           place_array(memory, &offset, limits->tokens, 4), &worker->collator));
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
    for (int64_t i = 0; i < loader->worker_count; i++) snug_collator_free(&loader->workers[i].collator);
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
    loader->batches = 0; /* no new batch is started, and none is being collated */
    while (loader->busy) pthread_cond_wait(&loader->done, &loader->lock);
    loader->epoch = epoch;
    const int64_t passes = loader->options.two_passes ? 2 : 1;
    loader->own = own_batches(rows, &loader->options);
    loader->batches = passes * loader->own;
    int64_t first = passes * first_step * snug_loader_share(&loader->options);
    if (first > loader->batches) first = loader->batches;
    loader->taken = loader->given = loader->released = first;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    return SNUG_OK;
}

/* Waits until batch `number` is collated, or collates it if there are no workers. */
static void await_slot(struct snug_loader *loader, int64_t number, struct slot *slot) {
    if (!loader->started) {
        fill_slot(&loader->workers[0], loader->epoch, number, slot);
        return;
    }
    pthread_mutex_lock(&loader->lock);
    loader->released = number; /* the caller no longer uses earlier batches */
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
    if (slot->status != SNUG_OK) return snug_fail(loader->ctx, slot->status, "%s", snug_context_message(slot->errors));
    loader->given++;
    struct snug_batch *batch = &slot->batch;
    if (turn_of(loader, number).own % snug_loader_share(&loader->options) == 0) {
        loader->items_in_step = batch->items_in_step;
        loader->weight_in_step = batch->weight_in_step;
    }
    batch->items_in_step = loader->items_in_step;
    batch->weight_in_step = loader->weight_in_step;
    loader->tokens += batch->collects ? 0 : batch->tokens;
    loader->padded += batch->collects ? 0 : batch->sequences * batch->longest;
    *out = batch;
    return SNUG_OK;
}

void snug_loader_padding(const struct snug_loader *loader, int64_t *tokens, int64_t *padded) {
    *tokens = loader->tokens;
    *padded = loader->padded;
}
