/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "core/philox.h"
#include "text/labels.h"
#include "text/loader.h"
#include "text/sampler.h"
#include "text_fixture.h"

/* ---- batches --------------------------------------------------------------------------------------------------- */

enum { ROWS = 1003 };

/* Row r is "w(r/100) w(r%100)" and 0 to 20 words more, so that a batch tells its rows; every tenth has no label. */
static struct snug_dataset *open_rows(struct fixture *f, bool mlm) {
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
    struct snug_labels labels;
    if (mlm) return dataset;
    assert_int_equal(snug_labels_of(f->ctx, dataset, false, &labels), SNUG_OK);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    return dataset;
}

static struct snug_loader_options loader_options(const struct fixture *f, int64_t batch_size, int64_t accumulation) {
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

static struct run start(struct fixture *f, const struct snug_dataset *dataset, struct snug_loader_options options,
                        int64_t epochs) {
    struct run run;
    assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, epochs, 0, &run.limits), SNUG_OK);
    size_t bytes = (size_t)snug_loader_bytes(&run.limits, &options);
    run.memory = aligned_alloc(64, bytes);
    assert_non_null(run.memory);
    memset(run.memory, 0xab, bytes);
    assert_int_equal(snug_loader_create(f->ctx, dataset, &options, &run.limits, run.memory, &run.loader), SNUG_OK);
    return run;
}

static void stop(struct run *run) {
    snug_loader_destroy(run->loader);
    free(run->memory);
}

static const struct snug_batch *next(struct fixture *f, struct run *run) {
    const struct snug_batch *batch;
    snug_status status = snug_loader_next(run->loader, &batch);
    if (status != SNUG_OK && status != SNUG_END) fail_msg("%s", snug_error_message(f->ctx));
    return status == SNUG_OK ? batch : NULL;
}

static int64_t row_of(const struct snug_batch *batch, int64_t sequence) {
    const int32_t *ids = batch->ids + batch->offsets[sequence];
    return (ids[1] - W0) * 100 + ids[2] - W0;
}

/* Everything that a batch says about itself agrees with its ids and offsets. */
static void assert_consistent(const struct snug_batch *batch) {
    int64_t longest = 0;
    assert_int_equal(batch->offsets[0], 0);
    assert_int_equal(batch->offsets[batch->sequences], batch->tokens);
    for (int64_t s = 0; s < batch->sequences; s++) {
        int64_t first = batch->offsets[s], end = batch->offsets[s + 1];
        if (longest < end - first) longest = end - first;
        for (int64_t i = first; i < end; i++) {
            assert_int_equal(batch->positions[i], i - first);
            assert_int_equal(batch->sample[i], batch->first_sample + s);
            assert_int_equal(batch->types[i], 0);
        }
    }
    assert_int_equal(batch->longest, longest);
    for (int64_t i = 1; i < batch->tokens; i++) {
        int32_t a = batch->by_id[i - 1], b = batch->by_id[i];
        assert_true(batch->ids[a] < batch->ids[b] || (a < b && batch->ids[a] == batch->ids[b]));
    }
}

static void assert_same(const struct snug_batch *a, const struct snug_batch *b) {
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
        assert_memory_equal(a->head_rows, b->head_rows, (size_t)a->rows * 4);
        assert_memory_equal(a->labels, b->labels, (size_t)a->rows * 4);
    }
}

static void test_classification_epoch(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, false);
    struct snug_loader_options options = loader_options(f, 8, 4);
    assert_int_equal(snug_loader_batches(ROWS, &options), 126);
    assert_int_equal(snug_loader_steps(ROWS, &options), 32);
    options.workers = 2;
    struct run run = start(f, dataset, options, 2);
    struct snug_loader_limits most = {0};
    int64_t all_tokens = 0, all_padded = 0, truncated = 0;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        int64_t seen[ROWS] = {0}, number = 0, left_in_step = 0;
        const struct snug_batch *batch;
        assert_int_equal(snug_loader_begin_epoch(run.loader, epoch, 0), SNUG_OK);
        for (; (batch = next(f, &run)); number++) {
            int64_t labelled = 0;
            assert_consistent(batch);
            assert_int_equal(batch->sequences, number == 125 ? 3 : 8);
            assert_int_equal(batch->first_sample, number % 4 * 8);
            assert_int_equal(batch->last_in_step, number % 4 == 3 || number == 125);
            assert_int_equal(batch->rows, batch->sequences);
            for (int64_t s = 0; s < batch->sequences; s++) {
                int64_t row = row_of(batch, s);
                assert_int_equal(row, snug_permutation(7, epoch, ROWS, number * 8 + s));
                assert_int_equal(seen[row]++, 0);
                assert_int_equal(batch->head_rows[s], batch->offsets[s]);
                assert_int_equal(batch->labels[s], row % 10 ? row % 3 : SNUG_IGNORE_LABEL);
                labelled += row % 10 != 0;
            }
            assert_int_equal(batch->items, labelled);
            if (number % 4 == 0) left_in_step = batch->items_in_step;
            left_in_step -= batch->items;
            if (batch->last_in_step) assert_int_equal(left_in_step, 0);
            if (most.tokens < batch->tokens) most.tokens = batch->tokens;
            if (most.longest < batch->longest) most.longest = batch->longest;
            all_tokens += batch->tokens;
            all_padded += batch->sequences * batch->longest;
            truncated += batch->truncated;
        }
        assert_int_equal(number, 126);
        assert_null(next(f, &run));
    }
    assert_int_equal(run.limits.tokens, most.tokens);
    assert_int_equal(run.limits.longest, most.longest);
    assert_int_equal(run.limits.sequences, 8);
    assert_int_equal(run.limits.rows, 8);
    assert_int_equal(truncated, 2 * snug_dataset_truncated(dataset));
    assert_true(truncated > 0);
    int64_t tokens, padded;
    snug_loader_padding(run.loader, &tokens, &padded);
    assert_int_equal(tokens, all_tokens);
    assert_int_equal(padded, all_padded);
    assert_int_equal(tokens, 2 * snug_dataset_tokens(dataset));
    stop(&run);
    snug_dataset_close(dataset);
}

static void test_limits_follow_the_run(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, false);
    static const enum snug_sampling samplings[] = {SNUG_SAMPLING_RANDOM, SNUG_SAMPLING_SEQUENTIAL,
                                                   SNUG_SAMPLING_GROUP_BY_LENGTH};
    for (int i = 0; i < 3; i++) {
        struct snug_loader_options options = loader_options(f, 3, 2);
        struct snug_loader_limits limits;
        struct snug_sizes sizes = {{0}};
        int64_t tokens = 0, longest = 0, max_steps = 170; /* an epoch has 168 */
        options.sampling = samplings[i];
        assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, 100, max_steps, &limits), SNUG_OK);
        struct run run = start(f, dataset, options, 2);
        for (int64_t epoch = 0, steps = 0; steps < max_steps; epoch++) {
            const struct snug_batch *batch;
            assert_int_equal(snug_loader_begin_epoch(run.loader, epoch, 0), SNUG_OK);
            while (steps < max_steps && (batch = next(f, &run))) {
                if (tokens < batch->tokens) tokens = batch->tokens;
                if (longest < batch->longest) longest = batch->longest;
                snug_sizes_add(&sizes, batch->tokens);
                steps += batch->last_in_step;
            }
        }
        assert_int_equal(limits.tokens, tokens);
        assert_int_equal(limits.longest, longest);
        assert_int_equal(limits.sequences, 3);
        assert_memory_equal(&limits.sizes, &sizes, sizeof sizes);
        stop(&run);
    }
    snug_dataset_close(dataset);
}

static int compare_lengths(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x < y) - (x > y);
}

/* Tokens of the longest rows, count of them. */
static int64_t tokens_of_longest(struct fixture *f, const struct snug_dataset *dataset, int64_t count) {
    const int64_t rows = snug_dataset_rows(dataset);
    int32_t lengths[256] = {0};
    int64_t tokens = 0;
    for (int64_t row = 0; row < rows; row++) lengths[row] = (int32_t)length_of(f, dataset, row);
    qsort(lengths, (size_t)rows, sizeof *lengths, compare_lengths);
    for (int64_t i = 0; i < count && i < rows; i++) tokens += lengths[i];
    return tokens;
}

static void assert_bounds(const struct snug_loader_limits *bound, const struct snug_loader_limits *exact) {
    assert_true(bound->tokens >= exact->tokens && bound->rows >= exact->rows);
    assert_true(bound->sequences >= exact->sequences && bound->longest >= exact->longest);
    for (int i = 0; i < SNUG_SIZES / 64; i++) assert_int_equal(exact->sizes.bits[i] & ~bound->sizes.bits[i], 0);
}

/* A run of any number of steps is planned in the same time. What is planned then is an upper bound for every batch of
   every epoch, and the one that the longest rows make. */
static void test_limits_of_endless_runs(void **state) {
    struct fixture *f = *state;
    static const enum snug_sampling samplings[] = {SNUG_SAMPLING_RANDOM, SNUG_SAMPLING_SEQUENTIAL,
                                                   SNUG_SAMPLING_GROUP_BY_LENGTH};
    const int64_t endless = INT64_C(1000000000000);
    for (uint32_t trial = 0; trial < 300; trial++) {
        const struct snug_philox_block random = snug_philox(trial, 0, 0, 0, 5, 5);
        const int64_t rows = 2 + random.word[0] % 200, least = 3 + random.word[1] % 40;
        char name[64];
        snprintf(name, sizeof name, "dummy:%lldx%lld-%lld", (long long)rows, (long long)least,
                 (long long)(least + 1 + random.word[2] % 500));
        struct snug_dataset_options data = options_for(name);
        data.seed = trial;
        struct snug_dataset *dataset = open_with(f, data);
        struct snug_loader_options options = loader_options(f, 1 + random.word[3] % 40, 1 + trial % 3);
        struct snug_loader_limits bound, exact;
        options.sampling = samplings[trial / 3 % 3];
        options.drop_last = trial % 2 && options.batch_size <= rows;
        assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, endless, endless, &bound), SNUG_OK);
        assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, 60, 0, &exact), SNUG_OK);
        assert_bounds(&bound, &exact);
        assert_false(exact.any_order);
        assert_int_equal(bound.any_order, options.sampling != SNUG_SAMPLING_SEQUENTIAL);
        if (bound.any_order) {
            assert_int_equal(bound.tokens, tokens_of_longest(f, dataset, options.batch_size));
            assert_in_range(bound.first_epoch_tokens, 1, exact.tokens);
        }
        snug_dataset_close(dataset);
    }
}

/* The real batches of such a run lie in the plan: of a run that was begun with fewer steps too, which plans again. */
static void test_batches_of_endless_runs(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, false);
    for (int grouped = 0; grouped < 2; grouped++) {
        struct snug_loader_options options = loader_options(f, 16, 2);
        options.sampling = grouped ? SNUG_SAMPLING_GROUP_BY_LENGTH : SNUG_SAMPLING_RANDOM;
        struct run begun = start(f, dataset, options, 2), resumed = start(f, dataset, options, INT64_C(10000000000));
        assert_false(begun.limits.any_order);
        assert_true(resumed.limits.any_order);
        assert_bounds(&resumed.limits, &begun.limits);
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            assert_int_equal(snug_loader_begin_epoch(resumed.loader, epoch, 0), SNUG_OK);
            if (epoch < 2) assert_int_equal(snug_loader_begin_epoch(begun.loader, epoch, 0), SNUG_OK);
            for (const struct snug_batch *batch; (batch = next(f, &resumed));) {
                assert_true(batch->tokens <= resumed.limits.tokens && batch->longest <= resumed.limits.longest);
                assert_true(snug_sizes_has(&resumed.limits.sizes, snug_size_of(batch->tokens)));
                if (epoch < 2) assert_same(next(f, &begun), batch);
            }
        }
        stop(&begun);
        stop(&resumed);
    }
    snug_dataset_close(dataset);
}

/* Batches of one length are not scanned: full ones and the epoch's last. */
static void test_sizes(void **state) {
    struct fixture *f = *state;
    struct snug_dataset_options dummy = options_for("dummy:10x100");
    dummy.vocab_size = VOCAB;
    struct snug_dataset *dataset = open_with(f, dummy);
    struct snug_loader_options options = loader_options(f, 4, 1);
    struct snug_loader_limits limits;
    struct snug_sizes sizes = {{0}};
    assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_OK);
    snug_sizes_add(&sizes, 400);
    snug_sizes_add(&sizes, 200);
    assert_memory_equal(&limits.sizes, &sizes, sizeof sizes);
    snug_dataset_close(dataset);
    /* Every number of tokens has the smallest size that holds it; the step from one to the next is at most a 16th. */
    for (int64_t tokens = 1; tokens < 1 << 18; tokens++) {
        const int size = snug_size_of(tokens);
        assert_true(snug_size_tokens(size) >= tokens && snug_size_tokens(size - 1) < tokens);
        if (tokens > 1024) assert_true(snug_size_tokens(size) * 16 <= snug_size_tokens(size - 1) * 17);
    }
    assert_true(snug_size_of(INT32_MAX) < SNUG_SIZES && snug_size_tokens(snug_size_of(INT32_MAX)) >= INT32_MAX);
}

static void test_drop_last(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, false);
    struct snug_loader_options options = loader_options(f, 8, 4);
    int64_t count = 0;
    options.drop_last = true;
    assert_int_equal(snug_loader_batches(ROWS, &options), 125);
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    for (const struct snug_batch *batch; (batch = next(f, &run)); count++) {
        assert_int_equal(batch->sequences, 8);
        assert_int_equal(batch->last_in_step, count % 4 == 3 || count == 124);
    }
    assert_int_equal(count, 125);
    stop(&run);
    snug_dataset_close(dataset);
    /* The sizes of batches that the plan knows of, where all rows are of one length: 240 tokens, 80 in the last one. */
    struct snug_dataset_options alike = {.path = "dummy:100x8", .max_samples = -1, .vocab_size = 500};
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &alike, &dataset), SNUG_OK);
    options = loader_options(f, 30, 1);
    for (int drop = 0; drop < 2; drop++) {
        struct snug_loader_limits limits;
        options.drop_last = drop;
        assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_OK);
        assert_int_equal(limits.tokens, 240);
        assert_int_equal(limits.sizes.bits[0], drop ? 1 << 4 : 1 << 4 | 1 << 2);
    }
    snug_dataset_close(dataset);
}

/* Whatever the workers, whatever the place to go on from, for both tasks and every sampling: the same batches. */
static void compare_runs(struct fixture *f, const struct snug_dataset *dataset, struct snug_loader_options options,
                         int workers, int64_t first_step) {
    options.workers = 0;
    struct run plain = start(f, dataset, options, 2);
    options.workers = workers;
    struct run other = start(f, dataset, options, 2);
    const struct snug_batch *a, *b;
    assert_int_equal(snug_loader_begin_epoch(plain.loader, 1, 0), SNUG_OK);
    for (int64_t skip = first_step * options.accumulation; skip > 0; skip--) assert_non_null(next(f, &plain));
    if (first_step > 2) { /* what was under way in another epoch is dropped */
        assert_int_equal(snug_loader_begin_epoch(other.loader, 0, first_step / 2), SNUG_OK);
        assert_non_null(next(f, &other));
    }
    assert_int_equal(snug_loader_begin_epoch(other.loader, 1, first_step), SNUG_OK);
    while ((a = next(f, &plain))) {
        assert_non_null(b = next(f, &other));
        assert_same(a, b);
    }
    assert_null(next(f, &other));
    stop(&plain);
    stop(&other);
}

static void test_same_batches_for_any_workers_and_start(void **state) {
    struct fixture *f = *state;
    for (int mlm = 0; mlm < 2; mlm++) {
        struct snug_dataset *dataset = open_rows(f, mlm);
        for (int sampling = SNUG_SAMPLING_RANDOM; sampling <= SNUG_SAMPLING_GROUP_BY_LENGTH; sampling++)
            for (int workers = 0; workers <= 5; workers++) {
                struct snug_loader_options options = loader_options(f, 4, 3);
                options.task = mlm ? SNUG_TASK_MLM : SNUG_TASK_CLASSIFICATION;
                options.sampling = (enum snug_sampling)sampling;
                options.prefetch = workers % 3;
                compare_runs(f, dataset, options, workers, workers * 16); /* 84 steps an epoch */
            }
        snug_dataset_close(dataset);
    }
}

/* Splitting a step's batch into micro-batches changes neither the rows nor their masks. */
static void test_accumulation_changes_nothing(void **state) {
    struct fixture *f = *state;
    for (int mlm = 0; mlm < 2; mlm++) {
        struct snug_dataset *dataset = open_rows(f, mlm);
        for (int sampling = SNUG_SAMPLING_RANDOM; sampling <= SNUG_SAMPLING_GROUP_BY_LENGTH; sampling++) {
            struct snug_loader_options whole = loader_options(f, 12, 1), split = loader_options(f, 3, 4);
            whole.sampling = split.sampling = (enum snug_sampling)sampling;
            whole.task = split.task = mlm ? SNUG_TASK_MLM : SNUG_TASK_CLASSIFICATION;
            struct run a = start(f, dataset, whole, 1), b = start(f, dataset, split, 1);
            assert_int_equal(snug_loader_begin_epoch(a.loader, 0, 0), SNUG_OK);
            assert_int_equal(snug_loader_begin_epoch(b.loader, 0, 0), SNUG_OK);
            for (const struct snug_batch *one, *part; (one = next(f, &a));) {
                int64_t done = 0, items = 0;
                do {
                    assert_non_null(part = next(f, &b));
                    assert_int_equal(part->items_in_step, one->items_in_step);
                    assert_memory_equal(one->ids + done, part->ids, (size_t)part->tokens * 4);
                    assert_memory_equal(one->sample + done, part->sample, (size_t)part->tokens * 4);
                    done += part->tokens;
                    items += part->items;
                } while (!part->last_in_step);
                assert_int_equal(done, one->tokens);
                assert_int_equal(items, one->items);
            }
            stop(&a);
            stop(&b);
        }
        snug_dataset_close(dataset);
    }
}

static void test_group_by_length(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, false);
    int64_t tokens[2], padded[2];
    for (int grouped = 0; grouped < 2; grouped++) {
        struct snug_loader_options options = loader_options(f, 4, 1);
        options.sampling = grouped ? SNUG_SAMPLING_GROUP_BY_LENGTH : SNUG_SAMPLING_RANDOM;
        struct run run = start(f, dataset, options, 1);
        int64_t seen[ROWS] = {0}, place = 0, last = 0;
        assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
        for (const struct snug_batch *batch; (batch = next(f, &run));)
            for (int64_t s = 0; s < batch->sequences; s++, place++) {
                int64_t row = row_of(batch, s), length = length_of(f, dataset, row);
                assert_int_equal(seen[row]++, 0);
                /* windows of 50 batches of the permutation, longest first */
                if (grouped && place % 200) assert_true(length <= last);
                last = length;
            }
        assert_int_equal(place, ROWS);
        snug_loader_padding(run.loader, &tokens[grouped], &padded[grouped]);
        stop(&run);
    }
    assert_int_equal(tokens[0], tokens[1]);
    assert_true(padded[1] - tokens[1] < (padded[0] - tokens[0]) / 4);
    snug_dataset_close(dataset);
}

/* ---- masked LM ------------------------------------------------------------------------------------------------- */

/* count is within 5 sigma of a binomial's mean. */
static void assert_binomial(int64_t count, int64_t draws, double p) {
    double mean = (double)draws * p;
    if (fabs((double)count - mean) > 5 * sqrt(mean * (1 - p)))
        fail_msg("%lld of %lld, where %g are expected", (long long)count, (long long)draws, mean);
}

static void test_masks(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, true);
    struct snug_loader_options options = loader_options(f, 16, 2);
    int64_t words = 0, chosen = 0, masks = 0, kept = 0, random = 0, same_as_before = 0;
    static uint8_t before[ROWS][32];
    options.task = SNUG_TASK_MLM;
    struct run run = start(f, dataset, options, 20);
    assert_int_equal(run.limits.rows, run.limits.tokens);
    memset(before, 0, sizeof before);
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        assert_int_equal(snug_loader_begin_epoch(run.loader, epoch, 0), SNUG_OK);
        int64_t place = 0;
        for (const struct snug_batch *batch; (batch = next(f, &run)); place += batch->sequences) {
            struct snug_row_buffer buffer = {0};
            struct snug_dataset_row row;
            int64_t head = 0;
            assert_consistent(batch);
            assert_int_equal(batch->items, batch->rows);
            for (int64_t s = 0; s < batch->sequences; s++) {
                int64_t number = snug_permutation(7, epoch, ROWS, place + s);
                assert_int_equal(snug_dataset_read(f->ctx, dataset, number, &buffer, &row), SNUG_OK);
                words += row.count - 2;
                for (int64_t i = 0; i < row.count; i++) {
                    int64_t token = batch->offsets[s] + i;
                    int32_t now = batch->ids[token];
                    bool here = head < batch->rows && batch->head_rows[head] == token;
                    same_as_before += here && before[number][i];
                    before[number][i] = here;
                    if (!here) {
                        assert_int_equal(now, row.ids[i]);
                        continue;
                    }
                    assert_true(row.ids[i] >= W0);
                    assert_int_equal(batch->labels[head++], row.ids[i]);
                    chosen++;
                    masks += now == MASK;
                    kept += now == row.ids[i];
                    random += now != MASK && now != row.ids[i];
                    assert_in_range(now, 0, VOCAB - 1);
                }
            }
            assert_int_equal(head, batch->rows);
            free(buffer.data);
        }
    }
    assert_binomial(chosen, words, 0.15);
    assert_binomial(masks, chosen, 0.8 + 0.1 / VOCAB); /* a random token may be [MASK] or the token itself */
    assert_binomial(kept, chosen, 0.1 + 0.1 / VOCAB);
    assert_binomial(random, chosen, 0.1 * (1 - 2.0 / VOCAB));
    assert_binomial(same_as_before, words * 19 / 20, 0.15 * 0.15); /* each epoch draws anew */
    stop(&run);

    options.sampling = SNUG_SAMPLING_SEQUENTIAL; /* evaluation: every time epoch 0, the same masks */
    struct run a = start(f, dataset, options, 1), b = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(a.loader, 0, 0), SNUG_OK);
    assert_int_equal(snug_loader_begin_epoch(b.loader, 0, 0), SNUG_OK);
    int64_t place = 0;
    for (const struct snug_batch *batch; (batch = next(f, &a)); place += batch->sequences) {
        assert_int_equal(batch->first_row, place);
        assert_same(batch, next(f, &b));
    }
    stop(&a);
    stop(&b);
    snug_dataset_close(dataset);
}

/* Prediction: the text's own [MASK] tokens are the head rows, and nothing else is touched. */
static void test_fill_mask(void **state) {
    struct fixture *f = *state;
    struct snug_dataset_options data = options_for(write_file(f, "fill.txt", "w1 [MASK] w2 [MASK]\nw3\n[MASK]\n"));
    data.task = SNUG_TASK_MLM;
    data.line_by_line = true;
    struct snug_dataset *dataset = open_with(f, data);
    struct snug_loader_options options = loader_options(f, 2, 2);
    options.task = SNUG_TASK_MLM;
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    options.fill_mask = true;
    options.mlm_probability = 0;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    static const int32_t ids[] = {CLS, W0 + 1, MASK, W0 + 2, MASK, SEP, CLS, W0 + 3, SEP}, heads[] = {2, 4};
    const struct snug_batch *batch = next(f, &run);
    assert_int_equal(batch->tokens, 9);
    assert_memory_equal(batch->ids, ids, sizeof ids);
    assert_int_equal(batch->rows, 2);
    assert_memory_equal(batch->head_rows, heads, sizeof heads);
    assert_int_equal(batch->labels[1], SNUG_IGNORE_LABEL);
    assert_int_equal(batch->items_in_step, 0);
    batch = next(f, &run);
    assert_int_equal(batch->rows, 1);
    assert_int_equal(batch->head_rows[0], 1);
    stop(&run);
    snug_dataset_close(dataset);
}

/* Dummy data needs no tokenizer, and so many rows no memory. */
static void test_dummy_rows(void **state) {
    struct fixture *f = *state;
    struct snug_dataset_options data = {
        .path = "dummy:1000000000x8", .task = SNUG_TASK_MLM, .max_samples = -1, .vocab_size = 30522};
    struct snug_dataset *dataset;
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &data, &dataset), SNUG_OK);
    struct snug_loader_options options = loader_options(f, 64, 2);
    options.task = SNUG_TASK_MLM;
    options.tokenizer = NULL;
    options.vocab_size = 30522;
    options.workers = 1;
    options.sampling = SNUG_SAMPLING_GROUP_BY_LENGTH;
    struct run run = start(f, dataset, options, 3);
    assert_int_equal(run.limits.tokens, 64 * 8);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 2, snug_loader_steps(1000000000, &options) - 1), SNUG_OK);
    int64_t count = 0;
    for (const struct snug_batch *batch; (batch = next(f, &run)); count++) {
        assert_consistent(batch);
        for (int64_t i = 0; i < batch->rows; i++) assert_in_range(batch->labels[i], 100, 29999);
    }
    assert_int_equal(count, 1000000000 / 64 % 2 ? 1 : 2);
    stop(&run);
    snug_dataset_close(dataset);
}

/* ---- other heads ----------------------------------------------------------------------------------------------- */

static void test_targets(void **state) {
    struct fixture *f = *state;
    struct snug_labels labels;
    struct snug_loader_options options = loader_options(f, 4, 1);
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    struct snug_dataset *dataset = open_with(f, options_for(write_file(f, "m.csv", "text,label\nw1,c|a\nw2,\nw3,b\n")));
    assert_int_equal(snug_labels_of(f->ctx, dataset, false, &labels), SNUG_OK);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    options.problem = SNUG_PROBLEM_MULTI_LABEL;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    const struct snug_batch *batch = next(f, &run);
    assert_int_equal(batch->items_in_step, 9);
    static const float expected[9] = {1, 0, 1, 0, 0, 0, 0, 1, 0};
    assert_memory_equal(batch->targets, expected, sizeof expected);
    stop(&run);
    snug_dataset_close(dataset);

    struct snug_dataset_options some = options_for(write_file(
        f, "r.jsonl", "{\"text\":\"w1\",\"label\":0.5}\n{\"text\":\"w2\"}\n{\"text\":\"w3\",\"label\":-2}\n"));
    some.need_labels = false;
    dataset = open_with(f, some);
    options.problem = SNUG_PROBLEM_REGRESSION;
    options.labels = 1;
    run = start(f, dataset, options, 1); /* labels that are not bound are not looked at */
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    batch = next(f, &run);
    assert_int_equal(batch->items_in_step, 0);
    assert_int_equal(batch->labels[0], SNUG_IGNORE_LABEL);
    stop(&run);
    assert_int_equal(snug_labels_of(f->ctx, dataset, false, &labels), SNUG_OK);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    batch = next(f, &run);
    assert_int_equal(batch->items_in_step, 2);
    assert_float_equal(batch->targets[0], 0.5, 0);
    assert_float_equal(batch->targets[2], -2, 0);
    assert_int_equal(batch->labels[1], SNUG_IGNORE_LABEL);
    stop(&run);
    snug_dataset_close(dataset);
}

/* Numbers beyond those that are numbered stand with their rows, and mean the same. */
static void test_many_numbers(void **state) {
    struct fixture *f = *state;
    enum { ROWS_HERE = SNUG_LABELS_NUMBERED + 50 };
    struct snug_labels labels;
    FILE *file = fopen(path_of(f, "n.csv"), "w");
    assert_non_null(file);
    fprintf(file, "text,label\n");
    for (int i = 0; i < ROWS_HERE; i++) fprintf(file, i == ROWS_HERE - 1 ? "w1 w2,7\n" : "w1,%d.25\n", i);
    fclose(file);
    char *text;
    size_t size;
    assert_int_equal(snug_file_read(f->ctx, NULL, path_of(f, "n.csv"), &text, &size), SNUG_OK);
    file = fopen(path_of(f, "o.csv"), "w"); /* the same, and one that no float can hold */
    assert_non_null(file);
    fprintf(file, "%sw1,1e99\n", text);
    fclose(file);
    free(text);
    const struct snug_labels one = {.problem = SNUG_PROBLEM_REGRESSION, .count = 1};
    struct snug_dataset *large = open_with(f, options_for(path_of(f, "o.csv")));
    assert_failed(f, snug_dataset_bind_labels(f->ctx, large, &one), SNUG_E_INPUT, "the label 1e99 is too large");
    snug_dataset_close(large);
    struct snug_dataset *dataset = open_with(f, options_for(path_of(f, "n.csv")));
    assert_int_equal(snug_dataset_raw_labels(dataset), SNUG_LABELS_NUMBERED);
    assert_int_equal(snug_labels_of(f->ctx, dataset, false, &labels), SNUG_OK);
    assert_int_equal(labels.problem, SNUG_PROBLEM_REGRESSION);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    struct snug_loader_options options = loader_options(f, 64, 1);
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    options.problem = SNUG_PROBLEM_REGRESSION;
    options.labels = 1;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    int row = 0;
    for (const struct snug_batch *batch; (batch = next(f, &run));)
        for (int64_t s = 0; s < batch->rows; s++, row++)
            assert_float_equal(batch->targets[s], row == ROWS_HERE - 1 ? 7 : row + 0.25, 0);
    assert_int_equal(row, ROWS_HERE);
    stop(&run);
    char *names[] = {"no", "yes"};
    labels = (struct snug_labels){.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2, .names = names};
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_E_INPUT, "its labels are no classes");
    snug_dataset_close(dataset);
}

static void test_pairs_have_types(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset =
        open_with(f, options_for(write_file(f, "p.csv", "sentence1,sentence2,label\nw1,w2,0\nw3 w4,w5,1\n")));
    struct snug_loader_options options = loader_options(f, 2, 1);
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    static const int32_t types[] = {0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1}, positions[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5};
    const struct snug_batch *batch = next(f, &run);
    assert_int_equal(batch->tokens, 11);
    assert_memory_equal(batch->types, types, sizeof types);
    assert_memory_equal(batch->positions, positions, sizeof positions);
    stop(&run);
    snug_dataset_close(dataset);
}

/* Without a tokenizer and with too few ids for BERT's [MASK], the last one masks. */
static void test_mask_of_a_small_vocabulary(void **state) {
    struct fixture *f = *state;
    const struct snug_dataset_options small = {
        .path = "dummy:8x16", .task = SNUG_TASK_MLM, .max_samples = -1, .vocab_size = 50};
    struct snug_dataset *dataset;
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &small, &dataset), SNUG_OK);
    struct snug_loader_options options = loader_options(f, 8, 1);
    options.task = SNUG_TASK_MLM;
    options.mlm_probability = 1;
    options.tokenizer = NULL;
    options.vocab_size = 50;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    const struct snug_batch *batch = next(f, &run);
    int masks = 0;
    for (int64_t i = 0; i < batch->tokens; i++) masks += batch->ids[i] == 49;
    assert_in_range(masks, 64, 128); /* of 128, about 80 % */
    stop(&run);
    snug_dataset_close(dataset);
}

/* ---- failures -------------------------------------------------------------------------------------------------- */

static void test_bad_options(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, false);
    struct snug_loader_limits limits;
    struct snug_loader *loader;
    struct snug_loader_options options = loader_options(f, 0, 1);
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_USAGE, "a batch of 0");
    options = loader_options(f, 8, 0);
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_USAGE, "0 accumulation");
    options = loader_options(f, INT64_C(1) << 31, 1);
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_USAGE,
                  "2147483648 sequences");
    options = loader_options(f, 1, INT64_C(1) << 31);
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_USAGE, "2147483648 accumul");
    options = loader_options(f, INT32_MAX, 2);
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_USAGE, "2 accumulation");
    options = loader_options(f, 2000, 1);
    options.drop_last = true;
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_USAGE,
                  "1003 rows do not fill");
    options = loader_options(f, 8, 1);
    static const int threads[][2] = {{-1, 2}, {1025, 2}, {1, -1}, {1, 1025}};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        options.workers = threads[i][0];
        options.prefetch = threads[i][1];
        assert_failed(f, snug_loader_create(f->ctx, dataset, &options, &limits, NULL, &loader), SNUG_E_USAGE,
                      "--dataloader_num_workers");
    }
    options = loader_options(f, 8, 1);
    options.task = SNUG_TASK_MLM;
    static const struct {
        double probability;
        int64_t vocabulary;
    } masks[] = {{0, VOCAB}, {1.5, VOCAB}, {0.15, 0}, {0.15, INT64_C(1) << 31}};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        options.mlm_probability = masks[i].probability;
        options.vocab_size = masks[i].vocabulary;
        assert_failed(f, snug_loader_create(f->ctx, dataset, &options, &limits, NULL, &loader), SNUG_E_USAGE,
                      "--mlm_probability");
    }
    options = loader_options(f, INT32_MAX, 1);
    options.sampling = SNUG_SAMPLING_GROUP_BY_LENGTH;
    assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_OK);
    assert_int_equal(limits.sequences, ROWS);
    snug_dataset_close(dataset);
    struct snug_dataset_options wide = {.path = "dummy:100000x100000", .max_samples = -1, .vocab_size = 500};
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &wide, &dataset), SNUG_OK);
    options = loader_options(f, 50000, 1);
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_USAGE, "tokens is too large");
    snug_dataset_close(dataset);
    wide.path = "dummy:1000000000000x8";
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &wide, &dataset), SNUG_OK);
    options = loader_options(f, 1 << 30, 1);
    options.sampling = SNUG_SAMPLING_GROUP_BY_LENGTH;
    struct snug_order order;
    assert_failed(f, snug_order_init(f->ctx, dataset, &options, &order), SNUG_E_USAGE, "grouping by length sorts");
    snug_dataset_close(dataset);
}

static void test_tokenizer_without_mask(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, true);
    struct snug_loader_options options = loader_options(f, 8, 1);
    struct snug_loader_limits limits;
    load_tokenizer(f, "{\"do_lower_case\": true, \"mask_token\": null}");
    options.task = SNUG_TASK_MLM;
    options.tokenizer = f->tokenizer;
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_INPUT, "no [MASK] token");
    snug_dataset_close(dataset);
}

static void test_begin_epoch_checks_the_step(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, false);
    struct run run = start(f, dataset, loader_options(f, 8, 4), 1);
    assert_null(next(f, &run)); /* no epoch yet */
    assert_failed(f, snug_loader_begin_epoch(run.loader, 0, 33), SNUG_E_USAGE, "an epoch has 32 steps");
    assert_failed(f, snug_loader_begin_epoch(run.loader, 0, -1), SNUG_E_USAGE, "step -1 of epoch 0");
    assert_failed(f, snug_loader_begin_epoch(run.loader, -1, 0), SNUG_E_USAGE, "of epoch -1");
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 32), SNUG_OK); /* resuming at an epoch's very end */
    assert_null(next(f, &run));
    stop(&run);
    snug_dataset_close(dataset);
}

/* Puts /dev/null in the place of the open token cache: its rows end at once. */
static void lose_cache(void) {
    DIR *folder = opendir("/proc/self/fd");
    int lost = 0, null = open("/dev/null", O_RDONLY);
    assert_non_null(folder);
    assert_true(null >= 0);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char target[256];
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strstr(target, ".tokens")) lost += dup2(null, atoi(entry->d_name)) >= 0;
    }
    close(null);
    closedir(folder);
    assert_int_equal(lost, 1);
}

/* What fails in a worker, ahead of time, reaches the caller with the batch, words and all. */
static void test_failure_in_a_worker(void **state) {
    struct fixture *f = *state;
    for (int workers = 0; workers < 3; workers++) {
        struct snug_dataset *dataset = open_rows(f, workers == 2);
        struct snug_loader_options options = loader_options(f, 8, 4);
        const struct snug_batch *batch;
        options.workers = workers;
        options.task = workers == 2 ? SNUG_TASK_MLM : SNUG_TASK_CLASSIFICATION;
        struct run run = start(f, dataset, options, 1);
        assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
        assert_non_null(next(f, &run));
        lose_cache();
        assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
        usleep(1000);
        snug_clear_error(f->ctx);
        assert_failed(f, snug_loader_next(run.loader, &batch), SNUG_E_IO, "of the token cache cannot be read");
        assert_null(batch);
        stop(&run);
        snug_dataset_close(dataset);
    }
}

/* Stopping at any moment: before the first epoch, while workers wait for room, in the middle of filling. */
static void test_stop_at_any_moment(void **state) {
    struct fixture *f = *state;
    struct snug_dataset *dataset = open_rows(f, false);
    struct snug_loader_options options = loader_options(f, 32, 1);
    options.workers = 3;
    for (int taken = -1; taken < 40; taken++) {
        struct run run = start(f, dataset, options, 1);
        if (taken >= 0) assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
        for (int i = 0; i < taken; i++) next(f, &run);
        if (taken % 4 == 3) usleep(2000); /* until the ring is full */
        stop(&run);
    }
    snug_dataset_close(dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_classification_epoch),
        TEST(test_limits_follow_the_run),
        TEST(test_limits_of_endless_runs),
        TEST(test_batches_of_endless_runs),
        TEST(test_sizes),
        TEST(test_drop_last),
        TEST(test_same_batches_for_any_workers_and_start),
        TEST(test_accumulation_changes_nothing),
        TEST(test_group_by_length),
        TEST(test_masks),
        TEST(test_fill_mask),
        TEST(test_dummy_rows),
        TEST(test_targets),
        TEST(test_many_numbers),
        TEST(test_pairs_have_types),
        TEST(test_mask_of_a_small_vocabulary),
        TEST(test_bad_options),
        TEST(test_tokenizer_without_mask),
        TEST(test_begin_epoch_checks_the_step),
        TEST(test_failure_in_a_worker),
        TEST(test_stop_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
