/* SPDX-License-Identifier: Apache-2.0 */
/* The order of an epoch: a permutation with random access. */
#include <math.h>

#include "data/radix.h"
#include "data/sampler.h"
#include "text_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void assert_bijective(uint64_t seed, int64_t epoch, int64_t rows) {
    uint8_t *seen = calloc((size_t)rows, 1);
    assert_non_null(seen);
    for (int64_t place = 0; place < rows; place++) {
        int64_t row = snug_permutation(seed, epoch, rows, place);
        assert_in_range(row, 0, rows - 1);
        assert_int_equal(seen[row]++, 0);
    }
    free(seen);
}

TEST(test_permutation_is_bijective) {
    for (int64_t rows = 1; rows <= 300; rows++) assert_bijective((uint64_t)rows * 7, rows % 5, rows);
    static const int64_t sizes[] = {511, 512, 513, 1000, 4095, 4096, 4097, 65537, 200001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) assert_bijective(UINT64_C(1) << 40 | i, 3, sizes[i]);
    static const int64_t huge[] = {INT64_C(1000000007) * 1000, INT64_MAX};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++)
        for (int64_t place = 0; place < 1000; place++)
            assert_true((uint64_t)snug_permutation(1, 0, huge[i], huge[i] - 1 - place) < (uint64_t)huge[i]);
}

TEST(test_permutation_depends_on_seed_and_epoch) {
    int64_t rows = 1000, epochs = 0, seeds = 0, high = 0, places = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = snug_permutation(42, 0, rows, i);
        places += row == i;
        epochs += row == snug_permutation(42, 1, rows, i);
        seeds += row == snug_permutation(43, 0, rows, i);
        high += row == snug_permutation(42 + (UINT64_C(1) << 32), 0, rows, i);
    }
    assert_true(places < 12 && epochs < 12 && seeds < 12 && high < 12); /* one each is expected */
}

/* Where two neighbours are mapped to: each ordered pair of rows equally often. 6 sigma of the chi-square. */
TEST(test_permutation_is_uniform) {
    enum { ROWS = 12, DRAWS = 20000 };
    static int64_t count[ROWS][ROWS];
    double chi = 0, expected = (double)DRAWS / (ROWS * (ROWS - 1)), freedom = ROWS * (ROWS - 1) - 1;
    memset(count, 0, sizeof count);
    for (uint64_t i = 0; i < DRAWS; i++)
        count[snug_permutation(i % 100, (int64_t)(i / 100), ROWS, 4)]
             [snug_permutation(i % 100, (int64_t)(i / 100), ROWS, 5)]++;
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < ROWS; k++)
            if (i != k) chi += ((double)count[i][k] - expected) * ((double)count[i][k] - expected) / expected;
    assert_true(fabs(chi - freedom) < 6 * sqrt(2 * freedom));
}

/* Look-ups give Philox's order, whatever the ranges. */
FIXTURE_TEST(test_permutation_by_lookup) {
    static const int64_t sizes[] = {1, 2, 255, 256, 257, 512, 513, 1000, 65536, 65537, 200001};
    struct snug_loader_options options = {
        .sampling = SNUG_SAMPLING_RANDOM, .seed = 11, .batch_size = 8, .accumulation = 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[64];
        struct snug_dataset *dataset;
        struct snug_order order;
        int64_t rows[200];
        snprintf(name, sizeof name, "dummy:%lldx3", (long long)sizes[i]);
        struct snug_dataset_options data = {.path = name, .max_samples = -1, .vocab_size = 500};
        assert_int_equal(snug_dataset_open(f->ctx, NULL, &data, &dataset), SNUG_OK);
        assert_int_equal(snug_order_init(f->ctx, dataset, &options, &order), SNUG_OK);
        uint32_t *words = malloc((size_t)snug_permutation_words(sizes[i]) * sizeof *words);
        assert_non_null(words);
        order.words = words;
        for (int64_t epoch = 0; epoch < 3; epoch += 2) {
            snug_permutation_tabulate(options.seed, epoch, sizes[i], words);
            for (int64_t place = 0, count = 1; place < sizes[i]; place += count, count = 1 + place * 7 % 200) {
                if (count > sizes[i] - place) count = sizes[i] - place;
                snug_order_unsorted(&order, epoch, place, count, rows);
                for (int64_t k = 0; k < count; k++)
                    assert_int_equal(rows[k], snug_permutation(options.seed, epoch, sizes[i], place + k));
            }
        }
        free(words);
        snug_order_free(&order);
        snug_dataset_close(dataset);
    }
}

/* Stable, and for keys of any size: keys of up to 22 bits take two passes, larger ones three. */
TEST(test_radix_order) {
    static const int32_t bits[] = {1, 11, 12, 22, 23, 31};
    enum { COUNT = 3000 };
    static int32_t order[COUNT], scratch[COUNT], keys[COUNT];
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        for (uint32_t k = 0; k < COUNT; k++) keys[k] = (int32_t)(k * 2654435761u >> (32 - bits[i]));
        snug_radix_order(order, scratch, keys, COUNT);
        for (int k = 1; k < COUNT; k++) {
            const int32_t before = order[k - 1], after = order[k], low = keys[before], high = keys[after];
            assert_true(low < high || (low == high && before < after));
        }
    }
}

TEST_MAIN(NULL, NULL)
