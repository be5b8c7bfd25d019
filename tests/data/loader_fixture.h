/* SPDX-License-Identifier: Apache-2.0 */
/* A data set whose rows can be recognised in batches, and a loader over it. */
#ifndef SNUG_TESTS_LOADER_FIXTURE_H
#define SNUG_TESTS_LOADER_FIXTURE_H

#include "data/classes.h"
#include "data/labels.h"
#include "data/loader.h"
#include "text_fixture.h"

enum { ROWS = 1003 };

/* Reads the labels from the data set's own rows. */
static inline void bind_own_labels(struct fixture *f, struct snug_dataset *dataset) {
    struct snug_labels labels;
    assert_int_equal(snug_labels_of(f->ctx, dataset, false, &labels), SNUG_OK);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
}

/* Row r is "w(r/100) w(r%100)" and 0 to 20 words more, so that its number can be read from a batch; every tenth has no
   label. */
static inline struct snug_dataset *open_rows(struct fixture *f, bool mlm) {
    FILE *file = fopen(path_of(f, "rows.jsonl"), "w");
    assert_non_null(file);
    for (int row = 0; row < ROWS; row++) {
        fprintf(file, "{\"text\":\"w%d w%d", row / 100, row % 100);
        for (int k = 0; k < row * 8 % 21; k++) fprintf(file, " w%d", (row * 3 + k) % WORDS);
        fprintf(file, row % 10 ? "\",\"label\":%d}\n" : "\",\"label\":null}\n", row % 3);
    }
    fclose(file);
    struct snug_dataset_options options = options_for(path_of(f, "rows.jsonl"));
    options.task = mlm ? SNUG_TASK_MLM : SNUG_TASK_CLASSIFICATION;
    options.line_by_line = mlm;
    options.need_labels = false;
    options.max_length = 20;
    struct snug_dataset *dataset = open_with(f, options);
    if (!mlm) bind_own_labels(f, dataset);
    return dataset;
}

static inline struct snug_loader_options loader_options(const struct fixture *f, int64_t batch_size,
                                                        int64_t accumulation) {
    return (struct snug_loader_options){.sampling = SNUG_SAMPLING_RANDOM,
                                        .seed = 7,
                                        .batch_size = batch_size,
                                        .accumulation = accumulation,
                                        .prefetch = 2,
                                        .labels = 3,
                                        .mlm_probability = 0.15,
                                        .tokenizer = f->tokenizer,
                                        .vocab_size = VOCAB};
}

struct run {
    struct snug_loader *loader;
    struct snug_loader_limits limits;
    void *memory;
};

static inline struct run start(struct fixture *f, const struct snug_dataset *dataset,
                               struct snug_loader_options options, int64_t epochs) {
    struct run run;
    assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, epochs, 0, &run.limits), SNUG_OK);
    size_t bytes = (size_t)snug_loader_bytes(&run.limits, &options);
    run.memory = aligned_alloc(64, bytes);
    assert_non_null(run.memory);
    memset(run.memory, 0xab, bytes);
    assert_int_equal(snug_loader_create(f->ctx, dataset, &options, &run.limits, run.memory, &run.loader), SNUG_OK);
    return run;
}

static inline void stop(struct run *run) {
    snug_loader_destroy(run->loader);
    free(run->memory);
}

static inline const struct snug_batch *next(struct fixture *f, struct run *run) {
    const struct snug_batch *batch;
    snug_status status = snug_loader_next(run->loader, &batch);
    if (status != SNUG_OK && status != SNUG_END) fail_msg("%s", snug_error_message(f->ctx));
    return status == SNUG_OK ? batch : NULL;
}

static inline int64_t row_of(const struct snug_batch *batch, int64_t sequence) {
    const int32_t *ids = batch->ids + batch->offsets[sequence];
    return (ids[1] - W0) * 100 + ids[2] - W0;
}

/* The arrays of a batch agree with its ids and offsets. */
static inline void assert_consistent(const struct snug_batch *batch) {
    int64_t longest = 0;
    assert_int_equal(batch->offsets[0], 0);
    assert_int_equal(batch->offsets[batch->sequences], batch->tokens);
    for (int64_t s = 0; s < batch->sequences; s++) {
        int64_t first = batch->offsets[s], end = batch->offsets[s + 1];
        if (longest < end - first) longest = end - first;
        for (int64_t i = first; i < end; i++) {
            assert_int_equal(batch->positions[i], i - first);
            assert_int_equal(batch->position_ids[i], i - first);
            assert_int_equal(batch->sample[i], batch->sample[first]);
            assert_true(s == 0 ? batch->sample[i] == batch->first_sample : batch->sample[i] > batch->sample[first - 1]);
            assert_int_equal(batch->types[i], 0);
        }
    }
    assert_int_equal(batch->longest, longest);
    for (int64_t i = 1; i < batch->tokens; i++) {
        int32_t a = batch->by_id[i - 1], b = batch->by_id[i];
        assert_true(batch->ids[a] < batch->ids[b] || (a < b && batch->ids[a] == batch->ids[b]));
    }
}

static inline void assert_same(const struct snug_batch *a, const struct snug_batch *b) {
    assert_int_equal(a->sequences, b->sequences);
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->items, b->items);
    assert_int_equal(a->items_in_step, b->items_in_step);
    assert_int_equal(a->first_sample, b->first_sample);
    assert_int_equal(a->first_row, b->first_row);
    assert_int_equal(a->truncated, b->truncated);
    assert_int_equal(a->last_in_step, b->last_in_step);
    assert_memory_equal(a->offsets, b->offsets, (size_t)(a->sequences + 1) * 4);
    assert_memory_equal(a->ids, b->ids, (size_t)a->tokens * 4);
    assert_memory_equal(a->by_id, b->by_id, (size_t)a->tokens * 4);
    if (a->rows) {
        assert_memory_equal(a->loss_positions, b->loss_positions, (size_t)a->rows * 4);
        assert_memory_equal(a->labels, b->labels, (size_t)a->rows * 4);
    }
}

#endif
