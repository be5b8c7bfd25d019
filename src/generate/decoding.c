/* SPDX-License-Identifier: Apache-2.0 */
#include "generate/decoding.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static int64_t pages_of(int64_t tokens) { return (tokens + SNUG_CACHE_PAGE - 1) / SNUG_CACHE_PAGE; }

/* The next `count` numbers of a block, whose end is *at; no base: only counts. */
static int32_t *carve(int32_t *base, int64_t *at, int64_t count) {
    int32_t *const here = base ? base + *at : NULL;
    *at += (count + 15) / 16 * 16;
    return here;
}

/* Sets the arrays of a batch, and the pages of all sequences; returns the numbers that they take. */
static int64_t place(const struct snug_program *program, int32_t *base, struct snug_batch *batch, int32_t **pages) {
    const int64_t tokens = program->capacity[SNUG_EXTENT_TOKENS], rows = program->capacity[SNUG_EXTENT_SEQUENCES];
    int64_t at = 0;
    batch->pages_each = pages_of(program->longest);
    batch->offsets = carve(base, &at, rows + 1);
    batch->ids = carve(base, &at, tokens);
    batch->types = carve(base, &at, tokens);
    batch->positions = carve(base, &at, tokens);
    batch->position_ids = carve(base, &at, tokens);
    batch->sample = carve(base, &at, tokens);
    batch->loss_positions = carve(base, &at, rows);
    batch->pages = carve(base, &at, rows * batch->pages_each);
    batch->copied_pages = carve(base, &at, 3 * rows);
    *pages = carve(base, &at, 2 * rows * batch->pages_each);
    return at;
}

/* The results of a step on a device: logits, or the ids and log-probabilities of the most probable tokens. */
static int64_t result_bytes(const struct snug_program *program, const struct snug_backend *backend) {
    const int64_t rows = program->capacity[SNUG_EXTENT_SEQUENCES], classes = program->tensors[program->logits].cols;
    if (!snug_backend_is_device(backend)) return 0;
    return rows * (int64_t)sizeof(int32_t) * (program->top_count ? 2 * program->top_count : classes);
}

/* A step's results are read while the next one runs. A host has them in the arena. */
static bool runs_ahead(const struct snug_program *program, const struct snug_backend *backend) {
    return program->top_count == 1 && snug_backend_is_device(backend) && (backend->follows || !backend->asynchronous);
}

int64_t snug_decoding_bytes(const struct snug_program *program, const struct snug_backend *backend) {
    struct snug_batch batch;
    int32_t *pages;
    return place(program, NULL, &batch, &pages) * (int64_t)sizeof(int32_t) +
           result_bytes(program, backend) * (runs_ahead(program, backend) ? 2 : 1);
}

snug_status snug_decoding_open(snug_context *ctx, const struct snug_backend *backend, struct snug_run *run,
                               const struct snug_block *arena, void *memory, int32_t first_position,
                               struct snug_token_steps *out) {
    const struct snug_program *program = run->program;
    int32_t *pages;
    *out = (struct snug_token_steps){.ctx = ctx,
                                     .backend = backend,
                                     .run = run,
                                     .rows = program->capacity[SNUG_EXTENT_SEQUENCES],
                                     .tokens = program->capacity[SNUG_EXTENT_TOKENS],
                                     .longest = program->longest,
                                     .first_position = first_position,
                                     .arena = arena,
                                     .classes = program->tensors[program->logits].cols};
    out->results[0] = (uint8_t *)((int32_t *)memory + place(program, memory, &out->batch, &pages));
    out->results[1] = out->results[0] + (runs_ahead(program, backend) ? result_bytes(program, backend) : 0);
    out->pages_each = out->batch.pages_each;
    RETURN_IF_ERROR(snug_pages_open(ctx, program->cache_pages, &out->pages));
    RETURN_IF_ERROR(snug_alloc(ctx, 2 * (size_t)out->rows, sizeof *out->sequences, (void **)&out->sequences));
    for (int64_t i = 0; i < 2 * out->rows; i++) out->sequences[i].pages = pages + i * out->pages_each;
    run->batch = &out->batch;
    run->loss_scale = 1;
    return SNUG_OK;
}

void snug_decoding_close(struct snug_token_steps *d) {
    for (int i = 0; i < 2; i++)
        if (d->copied[i]) d->backend->free_timestamps(d->copied[i]);
    snug_pages_close(&d->pages);
    free(d->sequences);
    *d = (struct snug_token_steps){0};
}

/* ---- sequences ------------------------------------------------------------------------------------------------- */

int64_t snug_decoding_begin(struct snug_token_steps *d) {
    for (int64_t i = 0; i < 2 * d->rows; i++)
        if (!d->sequences[i].used) {
            d->sequences[i].used = true;
            d->sequences[i].logits[0] = d->sequences[i].logits[1] = -1;
            return i;
        }
    return -1;
}

void snug_decoding_cut(struct snug_token_steps *d, int64_t sequence, int64_t length) {
    struct snug_decoded *s = &d->sequences[sequence];
    while (s->count > pages_of(length)) snug_pages_leave(&d->pages, s->pages[--s->count]);
    s->length = length;
}

void snug_decoding_end(struct snug_token_steps *d, int64_t sequence) {
    snug_decoding_cut(d, sequence, 0);
    d->sequences[sequence].used = false;
}

void snug_decoding_copy(struct snug_token_steps *d, int64_t to, int64_t from) {
    struct snug_decoded *s = &d->sequences[to];
    const struct snug_decoded *like = &d->sequences[from];
    for (int64_t i = 0; i < like->count; i++) snug_pages_share(&d->pages, like->pages[i]);
    snug_decoding_cut(d, to, 0);
    memcpy(s->pages, like->pages, (size_t)like->count * sizeof *s->pages);
    s->count = like->count;
    s->length = like->length;
    memcpy(s->logits, like->logits, sizeof s->logits);
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

int64_t snug_decoding_independent(const struct snug_token_steps *d) {
    const int64_t low = d->backend->independent_low_rows;
    return d->run->program->compute != SNUG_F32 && d->rows <= low ? low : d->backend->independent_rows;
}

/* In a step of few rows, a row's results do not depend on the others. A longer part of a prompt is a step of its own,
   whose length depends on this prompt alone: nothing was added to it. */
int64_t snug_decoding_room(const struct snug_token_steps *d, int64_t left) {
    const int64_t used = d->batch.tokens, few = snug_decoding_independent(d);
    const int64_t part = left < d->tokens ? left : d->tokens, most = few && few < d->tokens ? few : d->tokens;
    return part > most || part <= most - used ? part : 0;
}

/* The pages for tokens up to `length`: the last one, if it is shared, becomes a copy. */
static snug_status extend(struct snug_token_steps *d, struct snug_decoded *s, int64_t length) {
    const int64_t last = s->length / SNUG_CACHE_PAGE;
    const bool shared = last < s->count && d->pages.users[s->pages[last]] > 1;
    if (shared) {
        const int32_t page = snug_pages_take(&d->pages), from = s->pages[last];
        if (page < 0) return snug_fail(d->ctx, SNUG_E_MEMORY, "the cache of keys and values is full");
        int32_t *const copied = d->batch.copied_pages + 3 * d->batch.page_copies++;
        copied[0] = from;
        copied[1] = page;
        copied[2] = (int32_t)(s->length % SNUG_CACHE_PAGE);
        snug_pages_leave(&d->pages, from);
        s->pages[last] = page;
    }
    for (; s->count < pages_of(length); s->count++) {
        s->pages[s->count] = snug_pages_take(&d->pages);
        if (s->pages[s->count] < 0) return snug_fail(d->ctx, SNUG_E_MEMORY, "the cache of keys and values is full");
    }
    return SNUG_OK;
}

snug_status snug_decoding_add(struct snug_token_steps *d, int64_t sequence, const int32_t *ids, int64_t count,
                              bool wants) {
    struct snug_decoded *s = &d->sequences[sequence];
    struct snug_batch *b = &d->batch;
    RETURN_IF_ERROR(extend(d, s, s->length + count));
    for (int64_t i = 0; i < count; i++) {
        const int64_t t = b->tokens + i;
        b->ids[t] = ids[i];
        b->types[t] = 0;
        b->positions[t] = (int32_t)(s->length + i);
        b->position_ids[t] = b->positions[t] + d->first_position;
        b->sample[t] = (int32_t)sequence;
    }
    memcpy(b->pages + b->sequences * b->pages_each, s->pages, (size_t)s->count * sizeof *s->pages);
    b->tokens += count;
    b->offsets[++b->sequences] = (int32_t)b->tokens;
    s->length += count;
    if (s->length > b->longest) b->longest = s->length;
    s->logits[d->started % 2] = wants ? b->rows : -1;
    if (wants) b->loss_positions[b->rows++] = (int32_t)b->tokens - 1;
    return SNUG_OK;
}

bool snug_decoding_runs_ahead(const struct snug_token_steps *d) { return runs_ahead(d->run->program, d->backend); }

snug_status snug_decoding_follow(struct snug_token_steps *d, int64_t sequence) {
    const int32_t id = (int32_t)(-1 - d->sequences[sequence].logits[(d->started + 1) % 2]);
    d->batch.follows = true;
    return snug_decoding_add(d, sequence, &id, 1, true);
}

/* Where the arena is on a device, starts copying the first `bytes` of a tensor to to. */
static snug_status fetch(const struct snug_token_steps *d, int32_t tensor, int64_t bytes, void *to) {
    if (!d->arena->copy) return SNUG_OK;
    return snug_block_copy_later(d->ctx, d->arena, to, snug_run_data(d->run, tensor), bytes);
}

static int64_t bytes_of(int64_t rows, int64_t columns) { return rows * columns * (int64_t)sizeof(float); }

/* Starts copying the results of step number d->started, whose rows are known. */
static snug_status fetch_results(struct snug_token_steps *d) {
    const struct snug_program *program = d->run->program;
    const int64_t parity = d->started % 2, rows = d->rows_of[parity], count = program->top_count;
    uint8_t *const to = d->results[parity];
    if (count) {
        RETURN_IF_ERROR(fetch(d, program->top_ids, bytes_of(rows, count), to));
        RETURN_IF_ERROR(fetch(d, program->top_log_probabilities, bytes_of(rows, count), to + bytes_of(rows, count)));
    } else {
        RETURN_IF_ERROR(fetch(d, program->logits, bytes_of(rows, d->classes), to));
    }
    return d->backend->asynchronous ? d->backend->record_timestamp(d->run, &d->copied[parity], 0) : SNUG_OK;
}

/* In ascending order of ids. */
static void sort(int32_t *ids, float *values, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        const int32_t id = ids[i];
        const float value = values[i];
        int64_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--) {
            ids[at] = ids[at - 1];
            values[at] = values[at - 1];
        }
        ids[at] = id;
        values[at] = value;
    }
}

/* The results of step number d->done, which are complete. */
static void read_results(struct snug_token_steps *d) {
    const struct snug_program *program = d->run->program;
    const int64_t rows = d->rows_of[d->done % 2], count = program->top_count;
    uint8_t *const copied = d->arena->copy ? d->results[d->done % 2] : NULL;
    d->next = (struct snug_next_tokens){.count = count};
    if (!count) {
        d->next.logits = copied ? (float *)copied : snug_run_data(d->run, program->logits);
        return;
    }
    int32_t *ids = copied ? (int32_t *)copied : snug_run_data(d->run, program->top_ids);
    float *values =
        copied ? (float *)(copied + bytes_of(rows, count)) : snug_run_data(d->run, program->top_log_probabilities);
    d->next.ids = ids;
    d->next.log_probabilities = values;
    for (int64_t row = 0; row < rows; row++) sort(ids + row * count, values + row * count, count);
}

/* A backend that does not read ids of the last step has done that step. */
static void read_ids(const struct snug_token_steps *d) {
    const int32_t *chosen = (const int32_t *)d->results[(d->started + 1) % 2];
    for (int64_t t = 0; t < d->batch.tokens && !d->backend->follows; t++)
        d->batch.ids[t] = chosen[-1 - d->batch.ids[t]];
}

static void clear(struct snug_batch *b) {
    b->tokens = b->sequences = b->rows = b->longest = b->page_copies = 0;
    b->follows = false;
}

snug_status snug_decoding_start(struct snug_token_steps *d) {
    struct snug_batch *b = &d->batch;
    if (b->follows) read_ids(d);
    snug_status status = b->tokens ? d->backend->load(d->run) : SNUG_OK;
    if (b->tokens && status == SNUG_OK) status = snug_run_phase(d->run, d->backend, SNUG_PHASE_FORWARD, NULL);
    if (b->rows && status == SNUG_OK) status = snug_run_phase(d->run, d->backend, SNUG_PHASE_HEAD, NULL);
    d->rows_of[d->started % 2] = b->rows;
    if (b->rows && status == SNUG_OK) status = fetch_results(d);
    if (status == SNUG_OK) d->started++;
    clear(b);
    return status;
}

snug_status snug_decoding_finish(struct snug_token_steps *d) {
    const int64_t parity = d->done % 2;
    double seconds;
    if (d->rows_of[parity] && d->backend->asynchronous)
        RETURN_IF_ERROR(d->backend->read_timestamps(d->run, d->copied[parity], &seconds, 1));
    if (d->rows_of[parity]) read_results(d);
    d->done++;
    return SNUG_OK;
}

snug_status snug_decoding_step(struct snug_token_steps *d) {
    RETURN_IF_ERROR(snug_decoding_start(d));
    return snug_decoding_finish(d);
}

void snug_decoding_drop(struct snug_token_steps *d) {
    clear(&d->batch);
    while (d->done < d->started && snug_decoding_finish(d) == SNUG_OK)
        ;
    d->done = d->started;
}

struct snug_next_tokens snug_decoding_next(const struct snug_token_steps *d, int64_t sequence) {
    const int64_t row = d->sequences[sequence].logits[(d->done + 1) % 2], count = d->next.count;
    if (d->next.logits) return (struct snug_next_tokens){.logits = d->next.logits + row * d->classes};
    return (struct snug_next_tokens){
        .ids = d->next.ids + row * count, .log_probabilities = d->next.log_probabilities + row * count, .count = count};
}
