/* SPDX-License-Identifier: Apache-2.0 */
/* --batch_sampler no_duplicates: steps in which no text is twice, epoch after epoch. */
#include "data/distinct.h"

#include "data/dataset_impl.h"
#include "data/loader.h"
#include "text_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum { ROWS = 1003, STEP = 16 };

static struct snug_dataset *open_texts(struct fixture *f, const char *name) {
    struct snug_dataset_options options = options_for(path_of(f, name));
    options.task = SNUG_TASK_EMBEDDING;
    options.need_labels = false;
    return open_with(f, options);
}

/* Anchors that many rows share, positives that are also other rows' anchors, rows of two like texts. */
static struct snug_dataset *open_rows(struct fixture *f, int anchors, int positives) {
    FILE *file = fopen(path_of(f, "rows.csv"), "w");
    assert_non_null(file);
    fputs("anchor,positive\n", file);
    for (int row = 0; row < ROWS; row++)
        fprintf(file, "w%d w%d,w%d w%d%s\n", row % anchors % WORDS, row % anchors / WORDS,
                (row + row / 7) % positives % WORDS, (row + row / 7) % positives / WORDS,
                positives > ROWS ? " w199" : "");
    assert_int_equal(fclose(file), 0);
    return open_texts(f, "rows.csv");
}

static struct snug_distinct *open_distinct(struct fixture *f, const struct snug_dataset *dataset, int64_t step,
                                           enum snug_sampling sampling, uint64_t seed) {
    struct snug_distinct *distinct;
    if (snug_distinct_open(f->ctx, dataset, step, sampling, seed, &distinct) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
    return distinct;
}

/* Whether two rows have a text in common. */
static bool share(struct fixture *f, const struct snug_dataset *dataset, int64_t a, int64_t b) {
    struct snug_row_buffer buffers[2] = {{0}, {0}};
    struct snug_dataset_row rows[2];
    bool found = false;
    assert_int_equal(snug_dataset_read(f->ctx, dataset, a, &buffers[0], &rows[0]), SNUG_OK);
    assert_int_equal(snug_dataset_read(f->ctx, dataset, b, &buffers[1], &rows[1]), SNUG_OK);
    const int32_t *x = rows[0].ids;
    for (int i = 0; i < 2; x += rows[0].labels[1 + i++]) {
        const int32_t *y = rows[1].ids;
        for (int k = 0; k < 2; y += rows[1].labels[1 + k++])
            found |= rows[0].labels[1 + i] == rows[1].labels[1 + k] && !memcmp(x, y, rows[0].labels[1 + i] * sizeof *x);
    }
    free(buffers[0].data);
    free(buffers[1].data);
    return found;
}

/* Reads an epoch, in which no step has a text twice; returns how many rows it has more than once. */
static int64_t read_epoch(struct fixture *f, const struct snug_dataset *dataset, struct snug_distinct *distinct,
                          int64_t step, int64_t epoch, int64_t *rows) {
    const int64_t used = snug_distinct_used(distinct);
    int64_t seen[ROWS] = {0}, again = 0;
    for (int64_t place = 0, part; place < used; place += part) {
        part = used - place < 7 ? used - place : 7;
        snug_distinct_rows(distinct, epoch, place, part, rows + place);
    }
    for (int64_t i = 0; i < used; i++) {
        assert_in_range(rows[i], 0, snug_distinct_all(distinct) - 1);
        again += seen[rows[i]]++ > 0;
        for (int64_t k = i / step * step; k < i; k++)
            if (share(f, dataset, rows[i], rows[k])) fail_msg("epoch %d: rows of a step share a text", (int)epoch);
    }
    return again;
}

FIXTURE_TEST(test_no_text_is_twice_in_a_step) {
    static const struct { int anchors, positives; } data[] = {{40, 61}, {3000, 3000}, {17, 900}, {700, 350}};
    int64_t rows[ROWS], others[ROWS];
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        struct snug_dataset *dataset = open_rows(f, data[i].anchors, data[i].positives);
        struct snug_distinct *distinct = open_distinct(f, dataset, STEP, SNUG_SAMPLING_RANDOM, 5);
        struct snug_distinct *other = open_distinct(f, dataset, STEP, SNUG_SAMPLING_RANDOM, 5);
        assert_int_equal(snug_distinct_all(distinct), ROWS);
        assert_int_equal(read_epoch(f, dataset, distinct, STEP, 0, rows), 0);
        assert_true((snug_distinct_put_off(distinct) > 0) == (data[i].anchors < 3000));
        for (int64_t epoch = 4; epoch > 0; epoch--) /* in another order of the epochs */
            read_epoch(f, dataset, other, STEP, epoch, others);
        read_epoch(f, dataset, other, STEP, 2, others);
        const int64_t again = read_epoch(f, dataset, distinct, STEP, 2, rows);
        assert_memory_equal(rows, others, (size_t)snug_distinct_used(distinct) * sizeof *rows);
        assert_true(again < STEP);
        snug_distinct_rows(distinct, 0, 0, ROWS < snug_distinct_used(distinct) ? ROWS : snug_distinct_used(distinct),
                           others);
        assert_memory_not_equal(rows, others, STEP * sizeof *rows);
        snug_distinct_close(other);
        snug_distinct_close(distinct);
        snug_dataset_close(dataset);
    }
}

FIXTURE_TEST(test_rows_of_a_file_in_order) {
    int64_t rows[ROWS], others[ROWS];
    struct snug_dataset *dataset = open_rows(f, 3000, 3000);
    struct snug_distinct *distinct = open_distinct(f, dataset, STEP, SNUG_SAMPLING_SEQUENTIAL, 5);
    read_epoch(f, dataset, distinct, STEP, 0, rows);
    read_epoch(f, dataset, distinct, STEP, 3, others);
    assert_memory_equal(rows, others, sizeof rows);
    for (int64_t i = 0; i < ROWS / 2; i++) assert_int_equal(rows[i], i);
    assert_int_equal(snug_distinct_used(distinct), ROWS);
    snug_distinct_close(distinct);
    snug_dataset_close(dataset);
}

/* One row shares a text with each of the two others: an epoch that begins with it has no full step. */
FIXTURE_TEST(test_an_epoch_without_full_steps_has_the_first_ones) {
    write_file(f, "rows.csv", "anchor,positive\nw1,w2\nw1,w3\nw2,w4\n");
    struct snug_dataset *dataset = open_texts(f, "rows.csv");
    struct snug_distinct *distinct;
    int64_t rows[ROWS];
    int opened = 0, refused = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        if (snug_distinct_open(f->ctx, dataset, 2, SNUG_SAMPLING_RANDOM, seed, &distinct) != SNUG_OK) {
            assert_failed(f, SNUG_E_INPUT, SNUG_E_INPUT,
                          "1 of its 3 rows have no text in common, too few for a step of 2");
            refused++;
            continue;
        }
        assert_int_equal(snug_distinct_used(distinct), 3);
        for (int64_t epoch = 0; epoch < 20; epoch++)
            assert_int_equal(read_epoch(f, dataset, distinct, 2, epoch, rows), 0);
        snug_distinct_close(distinct);
        opened++;
    }
    assert_true(opened > 0 && refused > 0);
    snug_dataset_close(dataset);
}

/* A plan of very many epochs includes rows that the first one leaves out. */
FIXTURE_TEST(test_limits_of_any_order) {
    FILE *file = fopen(path_of(f, "rows.csv"), "w");
    assert_non_null(file);
    fputs("anchor,positive\n", file);
    for (int row = 0; row < 200; row++)
        fprintf(file, row == 199 ? "w1 w2 w3 w4 w5 w6,w%d\n" : "w1,w%d\n", 2 + row % 90);
    fputs("w150,w151\n", file);
    assert_int_equal(fclose(file), 0);
    struct snug_dataset *dataset = open_texts(f, "rows.csv");
    struct snug_distinct *distinct = open_distinct(f, dataset, 2, SNUG_SAMPLING_SEQUENTIAL, 1);
    struct snug_loader_options options = {.sampling = SNUG_SAMPLING_RANDOM,
                                          .batch_size = 2,
                                          .accumulation = 1,
                                          .texts = 2,
                                          .task = SNUG_TASK_EMBEDDING,
                                          .distinct = distinct};
    struct snug_loader_limits limits;
    assert_true(snug_distinct_used(distinct) < 201);
    dataset->part = snug_distinct_used(distinct);
    assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, 1 << 24, 0, &limits), SNUG_OK);
    assert_true(limits.any_order);
    assert_int_equal(limits.tokens, 8 + 3 + 3 + 3);
    snug_distinct_close(distinct);
    snug_dataset_close(dataset);
}

static bool always(void *user) {
    (void)user;
    return true;
}

FIXTURE_TEST(test_interrupted) {
    struct snug_dataset *dataset = open_rows(f, 40, 61);
    struct snug_distinct *distinct;
    snug_set_stop(f->ctx, always, NULL);
    assert_failed(f, snug_distinct_open(f->ctx, dataset, STEP, SNUG_SAMPLING_RANDOM, 1, &distinct), SNUG_E_INTERRUPTED,
                  "texts were compared");
    snug_set_stop(f->ctx, NULL, NULL);
    snug_dataset_close(dataset);
}

TEST_MAIN(NULL, NULL)
