/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics against scikit-learn's and scipy's (tools/golden/metrics.py), undefined metrics and misuse. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/batch.h"
#include "metrics/metrics_impl.h"
#include "test.h"

enum { most_values = 512 };

static int set_up(void **state) { return snug_context_create((snug_context **)state) != SNUG_OK; }

static int tear_down(void **state) {
    snug_context_destroy(*state);
    return 0;
}

static double result_of(const struct snug_metric_list *metrics, const char *name) {
    for (size_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->items[i].name, name) == 0) return metrics->items[i].value;
    fail_msg("%s is missing", name);
    return 0;
}

/* An accumulator with memory of exactly the size it asks for: the sanitizer reports any access beyond it. */
static struct snug_metric_accumulator *
accumulator_with(snug_context *ctx, const struct snug_metric_accumulator_options *options, void **memory) {
    struct snug_metric_accumulator *accumulator;
    *memory = malloc((size_t)snug_metric_accumulator_bytes(options));
    assert_int_equal(snug_metric_accumulator_create(ctx, options, *memory, &accumulator), SNUG_OK);
    return accumulator;
}

/* Labels without names, which the metrics of classes do not use. */
static const struct snug_labels *problems(enum snug_problem problem) {
    static const struct snug_labels labels[] = {{.problem = SNUG_PROBLEM_SINGLE_LABEL},
                                                {.problem = SNUG_PROBLEM_MULTI_LABEL},
                                                {.problem = SNUG_PROBLEM_REGRESSION}};
    return &labels[problem];
}

static struct snug_metric_accumulator *accumulator_of(snug_context *ctx, enum snug_task task, enum snug_problem problem,
                                                      int64_t classes, int64_t rows, void **memory) {
    const struct snug_metric_accumulator_options options = {
        .task = task, .labels = problems(problem), .classes = classes, .rows = rows};
    return accumulator_with(ctx, &options, memory);
}

/* Adds rows of a batch as an evaluation does: with their best classes, and with logits only where they are needed. */
static void add_logits(struct snug_metric_accumulator *accumulator, const float *logits, const struct snug_batch *batch,
                       int64_t first, int64_t rows) {
    const int64_t classes = accumulator->options.classes;
    const bool needed = snug_metrics_need_logits(&accumulator->options);
    int32_t *best = calloc((size_t)rows + 1, sizeof *best);
    assert_non_null(best);
    for (int64_t i = 0; i < rows * classes; i++)
        if (logits[i] > logits[i / classes * classes + best[i / classes]]) best[i / classes] = (int32_t)(i % classes);
    const struct snug_chunk chunk = {first, rows, best, needed ? logits : NULL};
    snug_metric_accumulator_add(accumulator, &chunk, batch);
    free(best);
}

/* Adds rows as a batch. */
static void add(struct snug_metric_accumulator *accumulator, const float *logits, const int32_t *labels,
                const float *targets, int64_t rows) {
    const struct snug_batch batch = {
        .rows = rows, .labels = (int32_t *)(uintptr_t)labels, .targets = (float *)(uintptr_t)targets};
    add_logits(accumulator, logits, &batch, 0, rows);
}

static size_t read_floats(const json_t *array, float *values) {
    size_t i;
    json_t *value;
    assert_true(json_array_size(array) <= most_values);
    json_array_foreach(array, i, value) values[i] = json_is_null(value) ? NAN : (float)json_number_value(value);
    return json_array_size(array);
}

static void check_metrics(const char *name, const json_t *expected, const struct snug_metric_list *metrics) {
    const char *key;
    json_t *value;
    assert_int_equal(metrics->count, json_object_size(expected) + 1); /* and eval_loss */
    json_object_foreach((json_t *)expected, key, value) {
        double got = result_of(metrics, key), want = json_is_null(value) ? NAN : json_number_value(value);
        bool same = isnan(want) ? isnan(got) : fabs(got - want) <= 1e-12 * fmax(1, fabs(want));
        if (!same) fail_msg("%s: %s is %.17g, not %.17g", name, key, got, want);
    }
}

TEST_IN(test_golden, void *fixture, set_up, tear_down) {
    json_t *cases = json_load_file(SNUG_SOURCE_DIR "/tests/golden/metrics.json", 0, NULL), *one;
    assert_true(json_array_size(cases) > 15);
    size_t i;
    json_array_foreach(cases, i, one) {
        const char *name, *problem_name;
        int classes;
        json_t *logits_json, *targets_json, *expected;
        if (json_object_get(one, "names")) continue; /* tags: below */
        assert_int_equal(json_unpack(one, "{s:s s:s s:i s:o s:o s:o}", "name", &name, "problem", &problem_name,
                                     "classes", &classes, "logits", &logits_json, "targets", &targets_json, "metrics",
                                     &expected),
                         0);
        enum snug_problem problem = strcmp(problem_name, "single") == 0  ? SNUG_PROBLEM_SINGLE_LABEL
                                    : strcmp(problem_name, "multi") == 0 ? SNUG_PROBLEM_MULTI_LABEL
                                                                         : SNUG_PROBLEM_REGRESSION;
        float logits[most_values], targets[most_values];
        int32_t labels[most_values];
        int64_t rows = (int64_t)read_floats(logits_json, logits) / classes;
        size_t count = read_floats(targets_json, targets);
        for (size_t k = 0; k < count; k++) labels[k] = problem == SNUG_PROBLEM_SINGLE_LABEL ? (int32_t)targets[k] : -1;
        int64_t width = problem == SNUG_PROBLEM_MULTI_LABEL ? classes : 1;
        void *memory;
        struct snug_metric_accumulator *accumulator =
            accumulator_of(fixture, SNUG_TASK_CLASSIFICATION, problem, classes, rows, &memory);
        for (int round = 0; round < 2; round++) { /* the second after a reset, in batches of 7 */
            int64_t batch = round ? 7 : rows;
            struct snug_metric_list metrics;
            snug_metric_accumulator_reset(accumulator);
            for (int64_t row = 0; row < rows; row += batch) {
                int64_t now = rows - row < batch ? rows - row : batch;
                add(accumulator, logits + row * classes, labels + row, targets + row * width, now);
            }
            for (int again = 0; again < 2; again++) { /* reading the result changes nothing */
                assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
                check_metrics(name, expected, &metrics);
            }
        }
        snug_metric_accumulator_free(accumulator);
        free(memory);
    }
    json_decref(cases);
}

/* Of each class, and from all scores: in batches of 7, twice, and read twice. */
static void check_classes(snug_context *ctx, const json_t *one) {
    const char *name, *problem, *names[8];
    double threshold;
    float logits[most_values], targets[most_values];
    int32_t numbers[most_values];
    json_t *logits_json, *targets_json, *expected, *names_json, *confusion, *value;
    size_t i;
    assert_int_equal(json_unpack((json_t *)(uintptr_t)one, "{s:s s:s s:F s:o s:o s:o s:o s:o}", "name", &name,
                                 "problem", &problem, "threshold", &threshold, "logits", &logits_json, "targets",
                                 &targets_json, "metrics", &expected, "names", &names_json, "confusion", &confusion),
                     0);
    json_array_foreach(names_json, i, value) names[i] = json_string_value(value);
    const bool multi = strcmp(problem, "multi") == 0;
    const int64_t classes = (int64_t)json_array_size(names_json), width = multi ? classes : 1;
    const int64_t rows = (int64_t)read_floats(logits_json, logits) / classes;
    const size_t count = read_floats(targets_json, targets);
    for (i = 0; i < count; i++) numbers[i] = multi ? -1 : (int32_t)targets[i];
    const struct snug_labels labels = {multi ? SNUG_PROBLEM_MULTI_LABEL : SNUG_PROBLEM_SINGLE_LABEL, classes,
                                       (char **)(uintptr_t)names};
    const struct snug_metric_accumulator_options options = {.task = SNUG_TASK_CLASSIFICATION,
                                                            .labels = &labels,
                                                            .classes = classes,
                                                            .rows = rows,
                                                            .each_class = true,
                                                            .threshold = threshold};
    void *memory;
    struct snug_metric_accumulator *accumulator = accumulator_with(ctx, &options, &memory);
    for (int round = 0; round < 2; round++) {
        struct snug_metric_list metrics;
        snug_metric_accumulator_reset(accumulator);
        for (int64_t row = 0; row < rows; row += 7)
            add(accumulator, logits + row * classes, numbers + row, targets + row * width,
                rows - row < 7 ? rows - row : 7);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
            check_metrics(name, expected, &metrics);
        }
        const int64_t *entries = snug_metric_accumulator_confusion(accumulator);
        assert_int_equal(entries == NULL, multi);
        for (int64_t k = 0; entries && k < classes * classes; k++)
            assert_int_equal(entries[k], json_integer_value(json_array_get(
                                             json_array_get(confusion, (size_t)(k / classes)), (size_t)(k % classes))));
    }
    snug_metric_accumulator_free(accumulator);
    free(memory);
}

TEST_IN(test_classes, void *fixture, set_up, tear_down) {
    json_t *cases = json_load_file(SNUG_SOURCE_DIR "/tests/golden/class_metrics.json", 0, NULL), *one;
    size_t i;
    assert_int_equal(json_array_size(cases), 10);
    json_array_foreach(cases, i, one) check_classes(fixture, one);
    json_decref(cases);
}

/* More classes than metrics, and than a confusion matrix has; more rows than announced. */
TEST_IN(test_many_classes, void *fixture, set_up, tear_down) {
    enum { classes = 1100 };
    static char *names[classes];
    static float logits[2 * classes];
    const int32_t numbers[] = {3, 4};
    for (int i = 0; i < classes; i++) names[i] = "x";
    logits[3] = logits[classes + 5] = 2;
    const struct snug_labels labels = {SNUG_PROBLEM_SINGLE_LABEL, classes, names};
    const struct snug_metric_accumulator_options options = {
        .task = SNUG_TASK_CLASSIFICATION, .labels = &labels, .classes = classes, .rows = 2, .each_class = true};
    void *memory;
    struct snug_metric_list metrics;
    struct snug_metric_accumulator *accumulator = accumulator_with(fixture, &options, &memory);
    add(accumulator, logits, numbers, NULL, 2);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
    assert_true(metrics.count <= SNUG_METRICS_MOST - 8 && metrics.count > SNUG_METRICS_MOST - 16);
    assert_null(snug_metric_accumulator_confusion(accumulator));
    add(accumulator, logits, numbers, NULL, 1);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_E_INTERNAL);
    snug_metric_accumulator_free(accumulator);
    free(memory);
}

/* Without metrics of each class the matrix is there, too, if it is small; a reset empties it. */
TEST_IN(test_confusion_of_few_classes, void *fixture, set_up, tear_down) {
    enum { classes = 51, rows = 3 };
    static char *names[classes];
    static const int32_t numbers[rows] = {0, 1, 1};
    static const struct {
        enum snug_problem problem;
        int64_t classes;
        bool has;
    } cases[] = {
        {SNUG_PROBLEM_SINGLE_LABEL, 2, true},  {SNUG_PROBLEM_SINGLE_LABEL, 3, true},
        {SNUG_PROBLEM_SINGLE_LABEL, 50, true}, {SNUG_PROBLEM_SINGLE_LABEL, classes, false},
        {SNUG_PROBLEM_MULTI_LABEL, 3, false},
    };
    for (int i = 0; i < classes; i++) names[i] = "x";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t width = cases[i].classes;
        const struct snug_labels labels = {cases[i].problem, width, names};
        const struct snug_metric_accumulator_options options = {
            .task = SNUG_TASK_CLASSIFICATION, .labels = &labels, .classes = width, .rows = rows};
        float logits[rows * classes] = {0}, targets[rows * classes] = {0};
        void *memory;
        struct snug_metric_accumulator *accumulator = accumulator_with(fixture, &options, &memory);
        for (int64_t row = 0; row < rows; row++) logits[row * width + (row == 2)] = 2; /* predicted: 0, 0, 1 */
        for (int round = 0; round < 2; round++) {
            snug_metric_accumulator_reset(accumulator);
            add(accumulator, logits, numbers, targets, rows);
            const int64_t *counts = snug_metric_accumulator_confusion(accumulator);
            assert_int_equal(counts != NULL, cases[i].has);
            for (int64_t k = 0; counts && k < width * width; k++)
                assert_int_equal(counts[k], k == 0 || k == width || k == width + 1);
        }
        snug_metric_accumulator_free(accumulator);
        free(memory);
    }
}

enum { most_classes = 16, most_sentences = 16 };

/* A batch of sentences whose tokens are all loss positions. */
struct sentences {
    struct snug_batch batch;
    int32_t offsets[most_sentences + 1], positions[most_values], labels[most_values];
};

static void read_sentences(const json_t *lengths, const json_t *targets, struct sentences *out) {
    size_t i;
    json_t *value;
    *out = (struct sentences){.batch = {.sequences = (int64_t)json_array_size(lengths),
                                        .rows = (int64_t)json_array_size(targets),
                                        .offsets = out->offsets,
                                        .loss_positions = out->positions,
                                        .labels = out->labels}};
    assert_true(json_array_size(lengths) <= most_sentences && json_array_size(targets) <= most_values);
    json_array_foreach(lengths, i, value) out->offsets[i + 1] = out->offsets[i] + (int32_t)json_integer_value(value);
    json_array_foreach(targets, i, value) {
        out->labels[i] = (int32_t)json_number_value(value);
        out->positions[i] = (int32_t)i;
    }
}

/* A batch of the sentences first … end - 1 of another batch. */
static struct snug_batch part_of(const struct sentences *whole, int64_t first, int64_t end, int32_t *offsets) {
    const int32_t begin = whole->offsets[first];
    struct snug_batch part = whole->batch;
    for (int64_t i = first; i <= end; i++) offsets[i - first] = whole->offsets[i] - begin;
    part.first_row = first;
    part.sequences = end - first;
    part.rows = whole->offsets[end] - begin;
    part.offsets = offsets;
    part.labels += begin;
    return part;
}

/* Whole; in batches of two sentences; in batches, each in chunks of three positions. */
static void add_sentences(struct snug_metric_accumulator *accumulator, const float *logits, int64_t classes,
                          const struct sentences *sentences, int round) {
    const int64_t all = sentences->batch.sequences, step = round ? 2 : all;
    for (int64_t first = 0; first < all; first += step) {
        int32_t offsets[most_sentences + 1];
        const struct snug_batch batch = part_of(sentences, first, first + step < all ? first + step : all, offsets);
        const int64_t chunk = round == 2 ? 3 : batch.rows;
        const float *its = logits + sentences->offsets[first] * classes;
        for (int64_t row = 0; row < batch.rows; row += chunk)
            add_logits(accumulator, its + row * classes, &batch, row,
                       batch.rows - row < chunk ? batch.rows - row : chunk);
    }
}

static void check_tags(snug_context *ctx, const json_t *one) {
    const char *name;
    json_t *logits_json = NULL, *targets = NULL, *expected = NULL, *names_json = NULL, *lengths = NULL;
    float logits[most_values * most_classes];
    char *names[most_classes];
    struct snug_labels labels = {.names = names};
    struct sentences sentences;
    size_t i;
    json_t *value;
    assert_int_equal(json_unpack((json_t *)(uintptr_t)one, "{s:s s:i s:o s:o s:o s:o s:o}", "name", &name, "classes",
                                 &(int){0}, "logits", &logits_json, "targets", &targets, "metrics", &expected, "names",
                                 &names_json, "lengths", &lengths),
                     0);
    labels.count = (int64_t)json_array_size(names_json);
    assert_true(labels.count <= most_classes);
    json_array_foreach(names_json, i, value) names[i] = (char *)(uintptr_t)json_string_value(value);
    assert_true(json_array_size(logits_json) <= sizeof logits / sizeof *logits);
    json_array_foreach(logits_json, i, value) logits[i] = (float)json_number_value(value);
    read_sentences(lengths, targets, &sentences);
    const struct snug_metric_accumulator_options options = {
        .task = SNUG_TASK_TOKEN_CLASSIFICATION, .labels = &labels, .classes = labels.count, .entities = true};
    void *memory;
    struct snug_metric_accumulator *accumulator = accumulator_with(ctx, &options, &memory);
    struct snug_metric_list nothing;
    snug_metric_accumulator_reset(accumulator);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &nothing), SNUG_OK);
    for (i = 0; i < nothing.count; i++) assert_true(isnan(nothing.items[i].value));
    for (int round = 0; round < 3; round++) {
        struct snug_metric_list metrics;
        snug_metric_accumulator_reset(accumulator);
        add_sentences(accumulator, logits, labels.count, &sentences, round);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
            check_metrics(name, expected, &metrics);
        }
    }
    snug_metric_accumulator_free(accumulator);
    free(memory);
}

TEST_IN(test_tags, void *fixture, set_up, tear_down) {
    json_t *cases = json_load_file(SNUG_SOURCE_DIR "/tests/golden/metrics.json", 0, NULL), *one;
    size_t i;
    int checked = 0;
    json_array_foreach(cases, i, one) {
        if (!json_object_get(one, "names")) continue;
        check_tags(fixture, one);
        checked++;
    }
    assert_int_equal(checked, 6);
    json_decref(cases);
}

/* Where there are more types than the result has room for, the first in sorted order are shown, and the number of the
   others is reported. */
TEST_IN(test_many_types, void *fixture, set_up, tear_down) {
    enum { TYPES = 100 };
    char texts[TYPES][8], *names[TYPES];
    int32_t positions[TYPES], chosen[TYPES], offsets[2] = {0, TYPES};
    float *logits = calloc(TYPES * TYPES, sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < TYPES; i++) {
        snprintf(texts[i], sizeof texts[i], "B-%03d", (i * 37 + 5) % TYPES);
        names[i] = texts[i];
        positions[i] = chosen[i] = i;
        logits[i * TYPES + i] = 1;
    }
    const struct snug_labels labels = {.count = TYPES, .names = names};
    const struct snug_batch batch = {
        .sequences = 1, .rows = TYPES, .offsets = offsets, .loss_positions = positions, .labels = chosen};
    const struct snug_metric_accumulator_options options = {
        .task = SNUG_TASK_TOKEN_CLASSIFICATION, .labels = &labels, .classes = TYPES, .entities = true};
    void *memory;
    struct snug_metric_accumulator *accumulator = accumulator_with(fixture, &options, &memory);
    struct snug_metric_list metrics;
    add_logits(accumulator, logits, &batch, 0, TYPES);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
    assert_true(metrics.count <= SNUG_METRICS_MOST - 4);
    assert_true(metrics.count > SNUG_METRICS_MOST - 16);
    assert_string_equal(metrics.items[5].name, "eval_000_precision");
    assert_string_equal(metrics.items[9].name, "eval_001_precision");
    assert_true(result_of(&metrics, "eval_f1") == 1);
    snug_metric_accumulator_free(accumulator);
    free(memory);
    free(logits);
}

TEST_IN(test_loss_is_a_mean_over_items, void *fixture, set_up, tear_down) {
    void *memory;
    struct snug_metric_accumulator *accumulator =
        accumulator_of(fixture, SNUG_TASK_MLM, SNUG_PROBLEM_SINGLE_LABEL, 4, 0, &memory);
    const float logits[] = {0, 1, 0, 0, 9, 1, 0, 0, 0, 0, 0, 1};
    const int32_t labels[] = {1, SNUG_IGNORE_LABEL, 2};
    struct snug_metric_list metrics;
    add(accumulator, logits, labels, NULL, 3);
    snug_metric_accumulator_add_loss(accumulator, 3, 1);
    snug_metric_accumulator_add_loss(accumulator, 1, 3);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
    assert_true(result_of(&metrics, "eval_loss") == 1);
    assert_true(result_of(&metrics, "perplexity") == exp(1));
    assert_true(result_of(&metrics, "eval_accuracy") == 0.5);
    assert_int_equal(metrics.count, 3);
    snug_metric_accumulator_free(accumulator);
    free(memory);
}

TEST_IN(test_nothing_to_measure, void *fixture, set_up, tear_down) {
    for (int problem = SNUG_PROBLEM_SINGLE_LABEL; problem <= SNUG_PROBLEM_REGRESSION; problem++) {
        void *memory;
        struct snug_metric_accumulator *accumulator =
            accumulator_of(fixture, SNUG_TASK_CLASSIFICATION, (enum snug_problem)problem, 2, 4, &memory);
        const float logits[] = {1, 2, 3, 4};
        const int32_t labels[] = {SNUG_IGNORE_LABEL, SNUG_IGNORE_LABEL};
        struct snug_metric_list metrics;
        if (problem == SNUG_PROBLEM_SINGLE_LABEL) add(accumulator, logits, labels, NULL, 2);
        assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
        assert_true(metrics.count >= 3);
        for (size_t i = 0; i < metrics.count; i++)
            if (!isnan(metrics.items[i].value)) fail_msg("%s is defined", metrics.items[i].name);
        snug_metric_accumulator_free(accumulator);
        free(memory);
    }
}

TEST_IN(test_misuse_is_an_error, void *fixture, set_up, tear_down) {
    void *memory;
    struct snug_metric_list metrics;
    const float values[] = {1, 2, 3};
    struct snug_metric_accumulator *none;
    const struct snug_metric_accumulator_options many = {
        .labels = problems(SNUG_PROBLEM_REGRESSION), .classes = 1, .rows = INT64_C(1) << 31};
    assert_int_equal(snug_metric_accumulator_create(fixture, &many, NULL, &none), SNUG_E_UNSUPPORTED);
    assert_non_null(strstr(snug_error_message(fixture), "2147483648 rows to evaluate"));
    snug_clear_error(fixture);
    struct snug_metric_accumulator *accumulator =
        accumulator_of(fixture, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, 2, &memory);
    add(accumulator, values, NULL, values, 3);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_E_INTERNAL);
    assert_non_null(strstr(snug_error_message(fixture), "more rows"));
    snug_clear_error(fixture);
    snug_metric_accumulator_reset(accumulator);
    add(accumulator, values, NULL, values, 1);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
    add(accumulator, values, NULL, values, 1);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_E_INTERNAL);
    assert_non_null(strstr(snug_error_message(fixture), "after the result"));
    snug_clear_error(fixture);
    snug_metric_accumulator_free(accumulator);
    free(memory);

    accumulator = accumulator_of(fixture, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_SINGLE_LABEL, 3, 2, &memory);
    for (int32_t bad = -1; bad <= 3; bad += 4) {
        snug_metric_accumulator_reset(accumulator);
        add(accumulator, values, &bad, NULL, 1);
        assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_E_INTERNAL);
    }
    snug_metric_accumulator_free(accumulator);
    free(memory);
}

/* Rounding does not give a correlation above 1; constant values have none. */
TEST_IN(test_correlation_is_bounded, void *fixture, set_up, tear_down) {
    enum { ROWS = 7, SETS = 64 };
    uint32_t random = 1;
    struct snug_metric_list metrics;
    for (int set = 0; set < SETS; set++) {
        void *memory;
        struct snug_metric_accumulator *accumulator =
            accumulator_of(fixture, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, ROWS, &memory);
        const float slope = set % 2 ? 3.0f : -3.0f;
        for (int i = 0; i < ROWS; i++) {
            random = random * 1664525u + 1013904223u;
            const float x = (float)(random >> 16) / 1024, y = slope * x;
            add(accumulator, &x, NULL, &y, 1);
        }
        assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
        const double r = result_of(&metrics, "eval_pearson");
        assert_true(fabs(r) <= 1 && fabs(r - (set % 2 ? 1 : -1)) < 1e-7);
        snug_metric_accumulator_free(accumulator);
        free(memory);
    }
    void *memory;
    struct snug_metric_accumulator *accumulator =
        accumulator_of(fixture, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, 2, &memory);
    add(accumulator, (const float[]){1, 2}, NULL, (const float[]){5, 5}, 2);
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
    assert_true(isnan(result_of(&metrics, "eval_pearson")));
    snug_metric_accumulator_free(accumulator);
    free(memory);
}

/* Names come from one table: results have them, and the choice of a metric is looked up in it. */
TEST_IN(test_names, void *fixture, set_up, tear_down) {
    static const struct {
        enum snug_task task;
        enum snug_problem problem;
        const char *name;
        int64_t place;
    } cases[] = {
        {SNUG_TASK_MLM, SNUG_PROBLEM_SINGLE_LABEL, "perplexity", 2},
        {SNUG_TASK_MLM, SNUG_PROBLEM_SINGLE_LABEL, "eval_perplexity", -1},
        {SNUG_TASK_MLM, SNUG_PROBLEM_SINGLE_LABEL, "f1", -1},
        {SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_SINGLE_LABEL, "loss", 0},
        {SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_SINGLE_LABEL, "eval_f1", 2},
        {SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_SINGLE_LABEL, "matthews_correlation", 3},
        {SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_MULTI_LABEL, "matthews_correlation", -1},
        {SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, "pearson", 2},
        {SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, "", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *memory;
        struct snug_metric_list metrics;
        struct snug_metric_accumulator *accumulator =
            accumulator_of(fixture, cases[i].task, cases[i].problem, 3, 2, &memory);
        const struct snug_metric_form form = {.task = cases[i].task, .problem = cases[i].problem};
        const int64_t place = snug_metric_find(&form, cases[i].name);
        assert_int_equal(place, cases[i].place);
        assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
        if (place >= 0) assert_non_null(strstr(metrics.items[place].name, cases[i].name));
        snug_metric_accumulator_free(accumulator);
        free(memory);
    }
}

/* Ranks of many rows against their closed form: without ties rho = 1 - 6 sum d^2 / (n^3 - n). */
TEST_IN(test_spearman_of_many_rows, void *fixture, set_up, tear_down) {
    enum { rows = 20000 };
    void *memory;
    struct snug_metric_accumulator *accumulator =
        accumulator_of(fixture, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, rows, &memory);
    double squares = 0;
    for (int64_t i = 0; i < rows; i++) { /* 7919 and 20000 are coprime: a permutation */
        int64_t other = i * 7919 % rows;
        float x = (float)i - 10000, y = (float)other - 10000;
        squares += (double)((i - other) * (i - other));
        add(accumulator, &x, NULL, &y, 1);
    }
    struct snug_metric_list metrics;
    assert_int_equal(snug_metric_accumulator_result(accumulator, &metrics), SNUG_OK);
    double n = rows, expected = 1 - 6 * squares / (n * n * n - n);
    assert_true(fabs(result_of(&metrics, "eval_spearmanr") - expected) < 1e-12);
    snug_metric_accumulator_free(accumulator);
    free(memory);
}

TEST_MAIN(NULL, NULL)
