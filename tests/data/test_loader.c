/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of batches and their order, for any number of workers and micro-batches; failures. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "data/sampler.h"
#include "loader_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

FIXTURE_TEST(test_classification_epoch) {
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
            assert_int_equal(batch->last_in_step, number % 4 == 3 || number == 125);
            assert_int_equal(batch->rows, batch->sequences);
            for (int64_t s = 0; s < batch->sequences; s++) {
                int64_t row = row_of(batch, s), place = number / 4 * 32 + batch->sample[batch->offsets[s]];
                assert_int_equal(row, snug_permutation(7, epoch, ROWS, place));
                assert_int_equal(seen[row]++, 0);
                assert_int_equal(batch->loss_positions[s], batch->offsets[s]);
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

FIXTURE_TEST(test_drop_last) {
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
    /* The planned sizes of batches where all rows have the same length: 240 tokens, 80 in the last batch. */
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

/* Sums of these are rounded. */
static const float weights[] = {0.1f, 0.7f, 1e-3f};

/* The same rows, at the same place of the step. */
static void assert_same_rows(const struct snug_batch *a, const struct snug_batch *b) {
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->items, b->items);
    assert_int_equal(a->first_sample, b->first_sample);
    assert_memory_equal(a->ids, b->ids, (size_t)a->tokens * sizeof *a->ids);
    assert_memory_equal(a->sample, b->sample, (size_t)a->tokens * sizeof *a->sample);
    assert_memory_equal(a->labels, b->labels, (size_t)a->rows * sizeof *a->labels);
}

/* The batches of a step, in the order of the ranks; an epoch's last step may have none for the last ranks. */
static void check_step(struct fixture *f, struct run *all, struct run *own, int64_t contributors, int64_t share) {
    int64_t items = -1;
    double weight = 0;
    for (int64_t r = 0; r < contributors; r++) {
        bool ended = false;
        for (int64_t micro = 0; !ended; micro++) {
            const struct snug_batch *a = next(f, all), *b = next(f, &own[r]);
            assert_true(a && b && micro < share);
            assert_same_rows(a, b);
            if (items < 0) items = a->items_in_step, weight = a->weight_in_step;
            assert_int_equal(b->items_in_step, items);
            assert_true(b->weight_in_step == weight); /* the same bits */
            ended = b->last_in_step;
            assert_int_equal(ended, micro == share - 1 || a->last_in_step);
        }
    }
}

/* The ranks' batches, step by step, are those of one rank that has them all; from step 2 on. */
static void check_ranks(struct fixture *f, const struct snug_dataset *dataset, int ranks, int64_t share) {
    struct snug_loader_options options = loader_options(f, 8, ranks * share);
    options.class_weights = weights;
    const int64_t steps = snug_loader_steps(ROWS, &options), batches = snug_loader_batches(ROWS, &options);
    struct run all = start(f, dataset, options, 1), own[8];
    assert_int_equal(snug_loader_begin_epoch(all.loader, 0, 2), SNUG_OK);
    options.ranks = ranks;
    for (int r = 0; r < ranks; r++) {
        options.rank = r;
        options.workers = r % 3;
        own[r] = start(f, dataset, options, 1);
        assert_int_equal(own[r].limits.tokens, all.limits.tokens);
        assert_int_equal(snug_loader_begin_epoch(own[r].loader, 0, 2), SNUG_OK);
    }
    for (int64_t step = 2; step < steps; step++) {
        const int64_t left = batches - step * ranks * share;
        const int64_t contributors = left < ranks * share ? (left + share - 1) / share : ranks;
        assert_int_equal(snug_loader_contributors(ROWS, &options, step, 0), contributors);
        assert_int_equal(snug_loader_contributors(ROWS, &options, step, share), 0);
        check_step(f, &all, own, contributors, share);
    }
    assert_null(next(f, &all));
    for (int r = 0; r < ranks; r++) {
        assert_null(next(f, &own[r]));
        stop(&own[r]);
    }
    stop(&all);
}

/* The same, for ranks that have a step's batches in turns. */
static void check_turns(struct fixture *f, const struct snug_dataset *dataset, int ranks, int64_t share) {
    struct snug_loader_options options = loader_options(f, 8, ranks * share);
    options.class_weights = weights;
    const int64_t batches = snug_loader_batches(ROWS, &options), a_step = ranks * share;
    struct run all = start(f, dataset, options, 1), own[8];
    assert_int_equal(snug_loader_begin_epoch(all.loader, 0, 1), SNUG_OK);
    options.ranks = ranks;
    options.in_turns = true;
    for (options.rank = 0; options.rank < ranks; options.rank++) {
        own[options.rank] = start(f, dataset, options, 1);
        assert_int_equal(snug_loader_begin_epoch(own[options.rank].loader, 0, 1), SNUG_OK);
    }
    int64_t items = -1;
    double weight = 0;
    for (int64_t number = a_step; number < batches; number++) {
        const int64_t micro = number % a_step, rank = micro % ranks;
        const struct snug_batch *a = next(f, &all), *b = next(f, &own[rank]);
        assert_non_null(a);
        assert_non_null(b);
        assert_same_rows(a, b);
        if (micro == 0) items = a->items_in_step, weight = a->weight_in_step;
        assert_int_equal(b->items_in_step, items);
        assert_true(b->weight_in_step == weight); /* the same bits */
        assert_int_equal(b->last_in_step, micro / ranks == share - 1 || number + ranks >= batches);
        assert_true(snug_loader_contributors(ROWS, &options, number / a_step, micro / ranks) > rank);
        if (number + 1 == batches)
            for (int64_t after = rank + 1; after < ranks; after++)
                assert_true(snug_loader_contributors(ROWS, &options, number / a_step, micro / ranks) <= after);
    }
    for (int r = 0; r < ranks; r++) {
        assert_null(next(f, &own[r]));
        stop(&own[r]);
    }
    stop(&all);
}

/* Ranks take turns with the batches of an evaluation, each of which is a step of its own. */
static void check_evaluation(struct fixture *f, const struct snug_dataset *dataset, int ranks, int64_t size) {
    struct snug_loader_options options = loader_options(f, size, 1);
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    options.independent = true;
    struct run all = start(f, dataset, options, 1), own[9];
    options.ranks = ranks;
    for (int r = 0; r < ranks; r++) {
        options.rank = r;
        options.workers = r % 3;
        own[r] = start(f, dataset, options, 1);
        assert_int_equal(snug_loader_begin_epoch(own[r].loader, 0, 0), SNUG_OK);
    }
    assert_int_equal(snug_loader_begin_epoch(all.loader, 0, 0), SNUG_OK);
    int turn = 0;
    for (const struct snug_batch *batch; (batch = next(f, &all)); turn = (turn + 1) % ranks) {
        const struct snug_batch *its = next(f, &own[turn]);
        assert_same_rows(batch, its);
        assert_int_equal(its->first_row, batch->first_row);
        assert_int_equal(its->first_sample, 0);
        assert_int_equal(its->items_in_step, batch->items);
    }
    for (int r = 0; r < ranks; r++) {
        assert_null(next(f, &own[r]));
        stop(&own[r]);
    }
    stop(&all);
}

FIXTURE_TEST(test_ranks) {
    struct snug_loader_options own = {.ranks = 2, .accumulation = 4};
    assert_int_equal(snug_loader_share(&own), 2);
    own.independent = true; /* each rank has micro-batches of its own */
    assert_int_equal(snug_loader_share(&own), 4);
    struct snug_dataset *dataset = open_rows(f, false);
    for (int ranks = 2; ranks <= 8; ranks += 1 + (ranks > 3))
        for (int64_t share = 1; share <= 3; share++) {
            check_ranks(f, dataset, ranks, share);
            check_turns(f, dataset, ranks, share);
        }
    for (int ranks = 1; ranks <= 8; ranks += 1 + (ranks > 3)) {
        check_evaluation(f, dataset, ranks, 8);
        check_evaluation(f, dataset, ranks, ROWS / 2); /* more ranks than batches */
    }
    snug_dataset_close(dataset);
}

/* Batches do not depend on the workers, nor on the step that is resumed, for both tasks and every sampling. */
static void compare_runs(struct fixture *f, const struct snug_dataset *dataset, struct snug_loader_options options,
                         int workers, int64_t first_step) {
    options.workers = 0;
    struct run plain = start(f, dataset, options, 2);
    options.workers = workers;
    struct run other = start(f, dataset, options, 2);
    const struct snug_batch *a, *b;
    assert_int_equal(snug_loader_begin_epoch(plain.loader, 1, 0), SNUG_OK);
    for (int64_t skip = first_step * options.accumulation; skip > 0; skip--) assert_non_null(next(f, &plain));
    if (first_step > 2) { /* prefetched batches of another epoch are dropped */
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

FIXTURE_TEST(test_same_batches_for_any_workers_and_start) {
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

/* Sequence s of a batch is in the whole step's batch at its place in the step, with the same mask. */
static void assert_is_in(const struct snug_batch *whole, const struct snug_batch *part, int64_t s) {
    const int64_t first = part->offsets[s], count = part->offsets[s + 1] - first, place = part->sample[first];
    assert_int_equal(whole->offsets[place + 1] - whole->offsets[place], count);
    assert_int_equal(whole->sample[whole->offsets[place]], place);
    assert_memory_equal(whole->ids + whole->offsets[place], part->ids + first, (size_t)count * 4);
}

/* Splitting a step's batch into micro-batches changes neither the rows nor their masks. */
FIXTURE_TEST(test_accumulation_changes_nothing) {
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
                bool seen[12] = {false};
                do {
                    assert_non_null(part = next(f, &b));
                    assert_int_equal(part->items_in_step, one->items_in_step);
                    for (int64_t s = 0; s < part->sequences; s++) {
                        const int32_t place = part->sample[part->offsets[s]];
                        assert_false(seen[place]);
                        seen[place] = true;
                        assert_is_in(one, part, s);
                    }
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

/* The mean over the steps of an epoch of how much more work than the mean the busiest rank has. */
static double excess_of(struct fixture *f, const struct snug_dataset *dataset, struct snug_loader_options options,
                        int64_t ranks) {
    struct run run = start(f, dataset, options, 1);
    double excess = 0, work[64] = {0};
    int64_t number = 0, steps = 0;
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    for (const struct snug_batch *batch; (batch = next(f, &run)); number++) {
        if (number % ranks == 0) memset(work, 0, sizeof work);
        for (int64_t s = 0; s < batch->sequences; s++) {
            const double length = batch->offsets[s + 1] - batch->offsets[s];
            work[number % ranks] += length * (6 * 768 + length);
        }
        if (number % ranks < ranks - 1) continue;
        double sum = 0, most = 0;
        for (int64_t r = 0; r < ranks; r++) sum += work[r];
        for (int64_t r = 0; r < ranks; r++) most = fmax(most, work[r]);
        excess += most * (double)ranks / sum - 1;
        steps++;
    }
    stop(&run);
    return excess / (double)steps;
}

/* Micro-batches of a step have the same work, the more rows they have the more exactly. Without dealing, the busiest of
   two with 32 rows has 5.5 % more than the mean. */
FIXTURE_TEST(test_even_work) {
    static const struct {
        const char *path;
        int64_t batch, ranks;
        double most;
    } cases[] = {{"dummy:6400x20-512", 32, 2, 0.001},  {"dummy:6400x20-512", 32, 8, 0.001},
                 {"dummy:6400x20-512", 4, 2, 0.04},    {"dummy:6400x20-512", 4, 8, 0.05},
                 {"dummy:6400x20-8192", 32, 4, 0.001}, {"dummy:640x100", 4, 8, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int sampling = SNUG_SAMPLING_RANDOM; sampling <= SNUG_SAMPLING_GROUP_BY_LENGTH; sampling += 2) {
            struct snug_dataset_options data = {.path = cases[i].path, .max_samples = -1, .vocab_size = 500};
            struct snug_loader_options options = loader_options(f, cases[i].batch, cases[i].ranks);
            struct snug_dataset *dataset;
            assert_int_equal(snug_dataset_open(f->ctx, NULL, &data, &dataset), SNUG_OK);
            options.sampling = (enum snug_sampling)sampling;
            const double excess = excess_of(f, dataset, options, cases[i].ranks);
            if (excess > cases[i].most)
                fail_msg("%s, %ld ranks x %ld: the busiest has %.2f %% more than the mean", cases[i].path,
                         (long)cases[i].ranks, (long)cases[i].batch, 100 * excess);
            snug_dataset_close(dataset);
        }
}

FIXTURE_TEST(test_group_by_length) {
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
                /* sorted within 50 batches of the permutation, longest first */
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

FIXTURE_TEST(test_dummy_rows) {
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

/* ---- failures -------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_bad_options) {
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

FIXTURE_TEST(test_begin_epoch_checks_the_step) {
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

/* Replaces the open token cache by /dev/null: reading its rows finds the end of the file. */
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

/* A failure in a worker, which reads ahead, reaches the caller with the batch that failed, including the message. */
FIXTURE_TEST(test_failure_in_a_worker) {
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

/* Destroying the loader at any time: before the first epoch, while workers wait for a free batch, while they collate.
 */
FIXTURE_TEST(test_stop_at_any_moment) {
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

TEST_MAIN(NULL, NULL)
