/* SPDX-License-Identifier: Apache-2.0 */
/* The limits over all batches of a run, from which memory is planned. */
#include "core/philox.h"
#include "loader_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

FIXTURE_TEST(test_limits_follow_the_run) {
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

/* Total length of the longest rows, count of them. */
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

/* Planning takes the same time for any number of steps. The plan is then an upper bound for every batch of every epoch:
   the batch of the longest rows. */
FIXTURE_TEST(test_limits_of_endless_runs) {
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

/* The batches of such a run are within its limits, also in a run that was begun with fewer steps and is planned again.
 */
FIXTURE_TEST(test_batches_of_endless_runs) {
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

/* Rows of equal length are not scanned: there are full batches and the epoch's last. */
FIXTURE_TEST(test_sizes) {
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
    /* Each number of tokens has the smallest size that is not below it; sizes grow by at most a 16th. */
    for (int64_t tokens = 1; tokens < 1 << 18; tokens++) {
        const int size = snug_size_of(tokens);
        assert_true(snug_size_tokens(size) >= tokens && snug_size_tokens(size - 1) < tokens);
        if (tokens > 1024) assert_true(snug_size_tokens(size) * 16 <= snug_size_tokens(size - 1) * 17);
    }
    assert_true(snug_size_of(INT32_MAX) < SNUG_SIZES && snug_size_tokens(snug_size_of(INT32_MAX)) >= INT32_MAX);
}

TEST_MAIN(NULL, NULL)
