/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a data set takes in memory does not grow with its rows: not while it is tokenized, not while its cache is opened
 * and checked, not while the order of epochs is gone through, not while batches are made. All that this library asks
 * the C library for is counted (by the linker's --wrap, see CMakeLists.txt), files that it maps included.
 * tools/long/large-data does the same with 20 GB and the whole program.
 */
#include <malloc.h>
#include <omp.h>
#include <sys/mman.h>

#include "data/classes.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "sanitized.h"
#include "text_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static int64_t held, most; /* bytes allocated now, and the peak since start_counting() */

static void count(int64_t bytes) {
    const int64_t now = __atomic_add_fetch(&held, bytes, __ATOMIC_SEQ_CST);
    for (int64_t seen = most;
         now > seen && !__atomic_compare_exchange_n(&most, &seen, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);)
        continue;
}

static int64_t size_of(void *memory) { return memory ? (int64_t)malloc_usable_size(memory) : 0; }

#define WRAP(type, name, parameters)                                                                                   \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters

WRAP(void *, malloc, (size_t size)) {
    void *memory = __real_malloc(size);
    count(size_of(memory));
    return memory;
}
WRAP(void *, calloc, (size_t number, size_t size)) {
    void *memory = __real_calloc(number, size);
    count(size_of(memory));
    return memory;
}
WRAP(void *, realloc, (void *old, size_t size)) {
    const int64_t before = size_of(old);
    count((int64_t)size); /* both exist while the data is copied */
    void *memory = __real_realloc(old, size);
    count((memory ? size_of(memory) - before : 0) - (int64_t)size);
    return memory;
}
WRAP(void, free, (void *memory)) {
    count(-size_of(memory));
    __real_free(memory);
}
WRAP(void *, mmap, (void *at, size_t size, int protection, int flags, int fd, off_t offset)) {
    void *memory = __real_mmap(at, size, protection, flags, fd, offset);
    if (memory != MAP_FAILED) count((int64_t)size);
    return memory;
}
WRAP(int, munmap, (void *at, size_t size)) {
    count(-(int64_t)size);
    return __real_munmap(at, size);
}

static int64_t start_counting(void) {
    most = held;
    return held;
}

/* The peak memory of each part of a run. */
struct use {
    int64_t tokenizing, opening, order, grouped, batches, kept;
};

/* Short and long rows of three classes, repeated, with the same number of bytes in each thousand. */
static const char *write_rows(struct fixture *f, const char *name, int64_t rows) {
    FILE *file = fopen(path_of(f, name), "w");
    assert_non_null(file);
    fprintf(file, "text,label\n");
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k <= (i % 64 ? i % 8 : 40); k++) fprintf(file, "w%d ", 100 + (int)((i + k) % 100));
        fprintf(file, ",l%d\n", (int)(i % 3));
    }
    assert_int_equal(fclose(file), 0);
    return path_of(f, name);
}

static int64_t scan(struct fixture *f, const struct snug_dataset *dataset, enum snug_sampling sampling,
                    struct snug_loader_limits *limits) {
    const struct snug_loader_options options = {
        .sampling = sampling, .seed = 3, .batch_size = 8, .accumulation = 2, .labels = 3};
    const int64_t before = start_counting();
    assert_int_equal(snug_loader_limits(f->ctx, dataset, &options, 2, 0, limits), SNUG_OK);
    /* The lookup table of the order grows with the square root of the rows. */
    return most - before - 4 * snug_permutation_words(snug_dataset_rows(dataset));
}

static int64_t make_batches(struct fixture *f, const struct snug_dataset *dataset, struct snug_loader_limits *limits) {
    const struct snug_loader_options options = {.sampling = SNUG_SAMPLING_GROUP_BY_LENGTH,
                                                .seed = 3,
                                                .batch_size = 8,
                                                .accumulation = 2,
                                                .workers = 2,
                                                .prefetch = 2,
                                                .labels = 3};
    struct snug_loader *loader;
    const struct snug_batch *batch;
    limits->tokens = limits->sequences * limits->longest; /* the same for any file */
    const int64_t before = start_counting();
    void *memory = aligned_alloc(64, (size_t)snug_loader_bytes(limits, &options));
    assert_non_null(memory);
    assert_int_equal(snug_loader_create(f->ctx, dataset, &options, limits, memory, &loader), SNUG_OK);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(snug_loader_begin_epoch(loader, epoch, 5), SNUG_OK);
        for (int i = 0; i < 300; i++) assert_int_equal(snug_loader_next(loader, &batch), SNUG_OK);
    }
    snug_loader_destroy(loader);
    __real_free(memory);
    return most - before;
}

static struct use use_of(struct fixture *f, int64_t rows) {
    struct use use;
    char path[256];
    struct snug_loader_limits limits;
    snprintf(path, sizeof path, "%s", write_rows(f, rows % 2 ? "a.csv" : "b.csv", rows));
    struct snug_dataset_options options = options_for(path);
    options.max_length = 30;
    options.threads = 1; /* with several, the peak depends on scheduling */
    int64_t before = start_counting();
    struct snug_dataset *dataset = open_with(f, options);
    use.tokenizing = most - before;
    snug_dataset_close(dataset);
    before = start_counting();
    dataset = open_with(f, options);
    use.opening = most - before;
    use.kept = held - before;
    assert_contains(f->log, "read from");
    assert_int_equal(snug_dataset_rows(dataset), rows);
    use.order = scan(f, dataset, SNUG_SAMPLING_RANDOM, &limits);
    use.grouped = scan(f, dataset, SNUG_SAMPLING_GROUP_BY_LENGTH, &limits);
    struct snug_labels labels;
    assert_int_equal(snug_labels_of(f->ctx, dataset, false, &labels), SNUG_OK);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    use.batches = make_batches(f, dataset, &limits);
    snug_dataset_close(dataset);
    f->log[0] = '\0';
    return use;
}

/* Except for what a process allocates once, and the allocator's rounding: an eighth of a byte for each of 40000 rows.
 */
static void assert_same_bytes(int64_t large, int64_t small, const char *what) {
    if (llabs(large - small) > 5000)
        fail_msg("%s takes %lld bytes, with fewer rows %lld", what, (long long)large, (long long)small);
}
#define ASSERT_SAME(large, small) assert_same_bytes(large, small, #large)

FIXTURE_TEST(test_nothing_grows_with_the_rows) {
    omp_set_num_threads(1); /* however many rows, each has its part of an epoch */
    const struct use small = use_of(f, 20000), large = use_of(f, 60001);
    print_message(
        "20000 rows: tokenizing %lld, opening %lld, order %lld, grouped %lld, batches %lld, kept %lld bytes\n",
        (long long)small.tokenizing, (long long)small.opening, (long long)small.order, (long long)small.grouped,
        (long long)small.batches, (long long)small.kept);
    ASSERT_SAME(large.tokenizing, small.tokenizing);
    ASSERT_SAME(large.opening, small.opening);
    ASSERT_SAME(large.order, small.order);
    ASSERT_SAME(large.grouped, small.grouped);
    ASSERT_SAME(large.batches, small.batches);
    ASSERT_SAME(large.kept, small.kept);
    assert_true(large.kept < 4096);
}

/* Each row has its own number as label: beyond a limit none is kept in memory. */
static int64_t use_of_numbers(struct fixture *f, int64_t rows) {
    FILE *file = fopen(path_of(f, "numbers.csv"), "w");
    assert_non_null(file);
    fprintf(file, "text,label\n");
    for (int64_t i = 0; i < rows; i++) fprintf(file, "w1,%lld.5\n", 1000000 + (long long)i);
    assert_int_equal(fclose(file), 0);
    struct snug_dataset_options options = options_for(path_of(f, "numbers.csv"));
    options.threads = 1;
    const int64_t before = start_counting();
    snug_dataset_close(open_with(f, options));
    return most - before;
}

FIXTURE_TEST(test_as_many_numbers_as_rows) {
    const int64_t small = use_of_numbers(f, 80000), large = use_of_numbers(f, 160000);
    print_message("80000 numbers: %lld bytes\n", (long long)small);
    ASSERT_SAME(large, small);
}

/* The parts in which an epoch is ordered grow with small data sets, up to a limit. */
FIXTURE_TEST(test_order_of_many_rows) {
    static const char *const names[] = {"dummy:5000000x8-200", "dummy:6000000x8-200"};
    int64_t use[2][2];
    if (SANITIZED) skip(); /* it orders 22 million rows, as the other tests order few */
    for (int i = 0; i < 2; i++) {
        struct snug_dataset_options options = options_for(names[i]);
        struct snug_dataset *dataset;
        struct snug_loader_limits limits;
        assert_int_equal(snug_dataset_open(f->ctx, NULL, &options, &dataset), SNUG_OK);
        use[i][0] = scan(f, dataset, SNUG_SAMPLING_RANDOM, &limits);
        use[i][1] = scan(f, dataset, SNUG_SAMPLING_GROUP_BY_LENGTH, &limits);
        snug_dataset_close(dataset);
    }
    print_message("5000000 rows: order %lld, grouped %lld bytes\n", (long long)use[0][0], (long long)use[0][1]);
    for (int k = 0; k < 2; k++) {
        ASSERT_SAME(use[1][k], use[0][k]);
        assert_true(use[0][k] < 40 << 20);
    }
}

int main(void) {
    mallopt(M_MMAP_THRESHOLD,
            1 << 30); /* otherwise allocations above a threshold that varies would be rounded to pages */
    return run_registered(NULL, NULL);
}
