/* SPDX-License-Identifier: Apache-2.0 */
/* Micro-batches by tokens: every row is in one pack of at most so many tokens, and packs are the same in every epoch,
   for any workers, ranks and start. */
#include "data/dataset_impl.h"
#include "data/packs.h"
#include "loader_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void open_packs(struct fixture *f, const struct snug_dataset *dataset, int64_t tokens,
                       enum snug_sampling sampling, struct snug_packs *out) {
    if (snug_packs_open(f->ctx, dataset, tokens, sampling, 7, out) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
}

static struct snug_loader_options packed_options(const struct fixture *f, const struct snug_packs *packs,
                                                 int64_t accumulation) {
    struct snug_loader_options options = loader_options(f, 1, accumulation);
    options.packs = packs;
    options.pack_count = snug_packs_count(packs);
    options.sampling = packs->order.sampling;
    return options;
}

/* Each row once in every epoch, in as many batches, none of which has more tokens than planned; in another order. */
static void check_epochs(struct fixture *f, const struct snug_dataset *dataset, const struct snug_packs *packs,
                         double least_fill) {
    static int seen[ROWS];
    struct run run = start(f, dataset, packed_options(f, packs, 2), 3);
    int64_t batches[3] = {0}, first[3] = {0}, most = 0;
    const struct snug_batch *batch;
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        memset(seen, 0, sizeof seen);
        assert_int_equal(snug_loader_begin_epoch(run.loader, epoch, 0), SNUG_OK);
        while ((batch = next(f, &run))) {
            assert_consistent(batch);
            assert_true(batch->tokens <= packs->tokens && batch->sequences <= packs->most_rows);
            assert_true(snug_sizes_has(&run.limits.sizes, snug_size_of(batch->tokens)));
            if (batch->tokens > most) most = batch->tokens;
            if (!batches[epoch]++) first[epoch] = row_of(batch, 0);
            for (int64_t s = 0; s < batch->sequences; s++) seen[row_of(batch, s)]++;
        }
        for (int row = 0; row < ROWS; row++) assert_int_equal(seen[row], 1);
        assert_int_equal(batches[epoch], snug_packs_count(packs));
    }
    assert_int_equal(most, run.limits.tokens);
    if (packs->order.sampling == SNUG_SAMPLING_RANDOM && batches[0] > 10)
        assert_true(first[0] != first[1] || first[1] != first[2]);
    const double fill = (double)snug_dataset_tokens(dataset) / (double)(batches[0] * packs->tokens);
    if (fill < least_fill) fail_msg("packs of %lld tokens are %.3f full", (long long)packs->tokens, fill);
    stop(&run);
}

FIXTURE_TEST(test_every_row_is_in_one_pack) {
    static const struct {
        int64_t tokens;
        double random, sequential; /* how full packs are at least */
    } cases[] = {{20, 0.85, 0.5}, {64, 0.97, 0.75}, {500, 0.96, 0.95}, {6000, 0.5, 0.5}, {2000000, 0, 0}};
    struct snug_dataset *dataset = open_rows(f, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int s = 0; s < 2; s++) {
            struct snug_packs packs;
            open_packs(f, dataset, cases[i].tokens, s ? SNUG_SAMPLING_SEQUENTIAL : SNUG_SAMPLING_RANDOM, &packs);
            check_epochs(f, dataset, &packs, s ? cases[i].sequential : cases[i].random);
            snug_packs_close(&packs);
        }
    snug_dataset_close(dataset);
}

/* Of several windows, in any order of the packs. */
FIXTURE_TEST(test_windows) {
    enum { MANY = 5000 };
    static int seen[MANY];
    const struct snug_dataset_options data = {
        .path = "dummy:5000x5-40", .task = SNUG_TASK_MLM, .max_samples = -1, .vocab_size = 30522, .seed = 3};
    struct snug_dataset *dataset;
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &data, &dataset), SNUG_OK);
    for (int s = 0; s < 2; s++) {
        struct snug_packs packs;
        struct snug_packer packer;
        open_packs(f, dataset, 200, s ? SNUG_SAMPLING_SEQUENTIAL : SNUG_SAMPLING_RANDOM, &packs);
        assert_true(packs.windows > 3);
        assert_int_equal(snug_packer_init(f->ctx, &packs, &packer), SNUG_OK);
        memset(seen, 0, sizeof seen);
        const int64_t count = snug_packs_count(&packs);
        for (int64_t i = 0; i < count; i++) {
            const int64_t *rows;
            int64_t number, tokens = 0;
            assert_int_equal(snug_packer_rows(f->ctx, &packer, i * 7919 % count, &rows, &number), SNUG_OK);
            assert_true(number > 0 && number <= packs.most_rows);
            for (int64_t k = 0; k < number; k++) {
                seen[rows[k]]++;
                tokens += snug_dataset_dummy_length(dataset, rows[k]);
            }
            assert_true(tokens <= packs.most_tokens);
        }
        for (int row = 0; row < MANY; row++) assert_int_equal(seen[row], 1);
        snug_packer_free(&packer);
        snug_packs_close(&packs);
    }
    snug_dataset_close(dataset);
}

/* With sequential sampling rows stay in their order. */
FIXTURE_TEST(test_order_is_kept) {
    struct snug_dataset *dataset = open_rows(f, false);
    struct snug_packs packs;
    open_packs(f, dataset, 100, SNUG_SAMPLING_SEQUENTIAL, &packs);
    struct run run = start(f, dataset, packed_options(f, &packs, 1), 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    int64_t row = 0;
    for (const struct snug_batch *batch; (batch = next(f, &run));) {
        const int64_t end = row + batch->sequences;
        for (int64_t s = 0; s < batch->sequences; s++) assert_int_equal(row_of(batch, s), row++);
        if (end < ROWS) assert_true(batch->tokens > 100 - 20);
    }
    stop(&run);
    snug_packs_close(&packs);
    snug_dataset_close(dataset);
}

/* A row of 20 tokens and one of 8,192 are in one batch, which has their tokens. */
FIXTURE_TEST(test_short_beside_long_rows) {
    FILE *file = fopen(path_of(f, "rows.jsonl"), "w");
    assert_non_null(file);
    for (int row = 0; row < 60; row++) {
        fprintf(file, "{\"text\":\"w0 w%d", row);
        for (int k = 0; k < (row % 10 ? 16 : 8188); k++) fprintf(file, " w%d", k % WORDS);
        fprintf(file, "\",\"label\":%d}\n", row % 3);
    }
    fclose(file);
    struct snug_dataset_options data = options_for(path_of(f, "rows.jsonl"));
    data.task = SNUG_TASK_CLASSIFICATION;
    data.max_length = 8192;
    struct snug_dataset *dataset = open_with(f, data);
    bind_own_labels(f, dataset);
    struct snug_packs packs;
    open_packs(f, dataset, 8192 + 9 * 20, SNUG_SAMPLING_RANDOM, &packs);
    assert_int_equal(snug_packs_count(&packs), 6);
    assert_int_equal(packs.most_tokens, 8192 + 9 * 20);
    assert_int_equal(packs.most_rows, 10);
    assert_int_equal(packs.longest, 8192);
    snug_packs_close(&packs);
    assert_int_equal(snug_packs_open(f->ctx, dataset, 8191, SNUG_SAMPLING_RANDOM, 7, &packs), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--per_device_train_tokens 8191: ");
    assert_contains(snug_error_message(f->ctx), "rows.jsonl has a row of 8192 tokens");
    snug_packs_close(&packs);
    snug_dataset_close(dataset);
}

/* Workers, the start, and ranks: each rank has its micro-batches of the step, with the indices of one rank's. */
FIXTURE_TEST(test_ranks_workers_and_starts) {
    struct snug_dataset *dataset = open_rows(f, false);
    struct snug_packs packs;
    open_packs(f, dataset, 300, SNUG_SAMPLING_RANDOM, &packs);
    struct snug_loader_options alone = packed_options(f, &packs, 4);
    for (int turns = 0; turns < 2; turns++)
        for (int rank = 0; rank < 2; rank++)
            for (int64_t from = 0; from < 3; from += 2) {
                struct snug_loader_options options = alone;
                options.ranks = 2;
                options.rank = rank;
                options.in_turns = turns;
                options.workers = 2;
                struct run whole = start(f, dataset, alone, 2), part = start(f, dataset, options, 2);
                assert_int_equal(snug_loader_begin_epoch(whole.loader, 1, 0), SNUG_OK);
                assert_int_equal(snug_loader_begin_epoch(part.loader, 1, from), SNUG_OK);
                const struct snug_batch *a, *b;
                for (int64_t number = 0; (a = next(f, &whole)); number++) {
                    if (number / 4 < from || (turns ? number % 2 : number % 4 / 2) != rank) continue;
                    b = next(f, &part);
                    assert_non_null(b);
                    assert_int_equal(a->tokens, b->tokens);
                    assert_int_equal(a->items_in_step, b->items_in_step);
                    assert_memory_equal(a->ids, b->ids, (size_t)a->tokens * 4);
                    assert_memory_equal(a->sample, b->sample, (size_t)a->tokens * 4);
                }
                assert_null(next(f, &part));
                stop(&whole);
                stop(&part);
            }
    snug_packs_close(&packs);
    snug_dataset_close(dataset);
}

static bool stop_now(void *user) {
    (void)user;
    return true;
}

FIXTURE_TEST(test_refused) {
    struct snug_dataset *dataset = open_rows(f, false);
    struct snug_packs packs;
    struct snug_loader_limits limits;
    open_packs(f, dataset, 2000000, SNUG_SAMPLING_RANDOM, &packs);
    struct snug_loader_options options = packed_options(f, &packs, INT32_MAX / 2);
    assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--per_device_train_tokens or --gradient_accumulation_steps smaller");
    snug_packs_close(&packs);
    snug_set_stop(f->ctx, stop_now, NULL);
    assert_int_equal(snug_packs_open(f->ctx, dataset, 100, SNUG_SAMPLING_RANDOM, 7, &packs), SNUG_E_INTERRUPTED);
    snug_set_stop(f->ctx, NULL, NULL);
    snug_packs_close(&packs);
    snug_dataset_close(dataset);
}

TEST_MAIN(NULL, NULL)
