/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics against scikit-learn's and scipy's (tools/golden_metrics.py), undefined ones and misuse included. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/batch.h"
#include "train/metrics.h"

enum { most_values = 512 };

static int set_up(void **state) { return snug_context_create((snug_context **)state) != SNUG_OK; }

static int tear_down(void **state) {
    snug_context_destroy(*state);
    return 0;
}

static double result_of(const snug_metrics *metrics, const char *name) {
    for (size_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->items[i].name, name) == 0) return metrics->items[i].value;
    fail_msg("%s is missing", name);
    return 0;
}

/* A meter with memory of exactly the size it asks for, so that the sanitizer sees any step beyond it. */
static struct snug_meter *meter_of(snug_context *ctx, enum snug_task task, enum snug_problem problem, int64_t classes,
                                   int64_t rows, void **memory) {
    struct snug_meter *meter;
    *memory = malloc((size_t)snug_meter_bytes(task, problem, classes, rows));
    assert_int_equal(snug_meter_create(ctx, task, problem, classes, rows, *memory, &meter), SNUG_OK);
    return meter;
}

static size_t read_floats(const json_t *array, float *values) {
    size_t i;
    json_t *value;
    assert_true(json_array_size(array) <= most_values);
    json_array_foreach(array, i, value) values[i] = json_is_null(value) ? NAN : (float)json_number_value(value);
    return json_array_size(array);
}

static void check_metrics(const char *name, const json_t *expected, const snug_metrics *metrics) {
    const char *key;
    json_t *value;
    assert_int_equal(metrics->count, json_object_size(expected) + 1); /* and eval_loss */
    json_object_foreach((json_t *)expected, key, value) {
        double got = result_of(metrics, key), want = json_is_null(value) ? NAN : json_number_value(value);
        bool same = isnan(want) ? isnan(got) : fabs(got - want) <= 1e-12 * fmax(1, fabs(want));
        if (!same) fail_msg("%s: %s is %.17g, not %.17g", name, key, got, want);
    }
}

static void test_golden(void **state) {
    json_t *cases = json_load_file(SNUG_SOURCE_DIR "/tests/golden/metrics.json", 0, NULL), *one;
    assert_true(json_array_size(cases) > 15);
    size_t i;
    json_array_foreach(cases, i, one) {
        const char *name, *problem_name;
        int classes;
        json_t *logits_json, *targets_json, *expected;
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
        struct snug_meter *meter = meter_of(*state, SNUG_TASK_CLASSIFICATION, problem, classes, rows, &memory);
        for (int round = 0; round < 2; round++) { /* the second after a reset, in batches of 7 */
            int64_t batch = round ? 7 : rows;
            snug_metrics metrics;
            snug_meter_reset(meter);
            for (int64_t row = 0; row < rows; row += batch) {
                int64_t now = rows - row < batch ? rows - row : batch;
                snug_meter_add(meter, logits + row * classes, labels + row, targets + row * width, now);
            }
            for (int again = 0; again < 2; again++) { /* taking the result changes nothing */
                assert_int_equal(snug_meter_result(meter, &metrics), SNUG_OK);
                check_metrics(name, expected, &metrics);
            }
        }
        snug_meter_free(meter);
        free(memory);
    }
    json_decref(cases);
}

static void test_loss_is_a_mean_over_items(void **state) {
    void *memory;
    struct snug_meter *meter = meter_of(*state, SNUG_TASK_MLM, SNUG_PROBLEM_SINGLE_LABEL, 4, 0, &memory);
    const float logits[] = {0, 1, 0, 0, 9, 1, 0, 0, 0, 0, 0, 1};
    const int32_t labels[] = {1, SNUG_IGNORE_LABEL, 2};
    snug_metrics metrics;
    snug_meter_add(meter, logits, labels, NULL, 3);
    snug_meter_add_loss(meter, 3, 1);
    snug_meter_add_loss(meter, 1, 3);
    assert_int_equal(snug_meter_result(meter, &metrics), SNUG_OK);
    assert_true(result_of(&metrics, "eval_loss") == 1);
    assert_true(result_of(&metrics, "perplexity") == exp(1));
    assert_true(result_of(&metrics, "eval_accuracy") == 0.5);
    assert_int_equal(metrics.count, 3);
    snug_meter_free(meter);
    free(memory);
}

static void test_nothing_to_measure(void **state) {
    for (int problem = SNUG_PROBLEM_SINGLE_LABEL; problem <= SNUG_PROBLEM_REGRESSION; problem++) {
        void *memory;
        struct snug_meter *meter =
            meter_of(*state, SNUG_TASK_CLASSIFICATION, (enum snug_problem)problem, 2, 4, &memory);
        const float logits[] = {1, 2, 3, 4};
        const int32_t labels[] = {SNUG_IGNORE_LABEL, SNUG_IGNORE_LABEL};
        snug_metrics metrics;
        if (problem == SNUG_PROBLEM_SINGLE_LABEL) snug_meter_add(meter, logits, labels, NULL, 2);
        assert_int_equal(snug_meter_result(meter, &metrics), SNUG_OK);
        assert_true(metrics.count >= 3);
        for (size_t i = 0; i < metrics.count; i++)
            if (!isnan(metrics.items[i].value)) fail_msg("%s is defined", metrics.items[i].name);
        snug_meter_free(meter);
        free(memory);
    }
}

static void test_misuse_is_an_error(void **state) {
    void *memory;
    snug_metrics metrics;
    const float values[] = {1, 2, 3};
    struct snug_meter *none;
    assert_int_equal(
        snug_meter_create(*state, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, INT64_C(1) << 31, NULL, &none),
        SNUG_E_UNSUPPORTED);
    assert_non_null(strstr(snug_error_message(*state), "2147483648 rows to evaluate"));
    snug_clear_error(*state);
    struct snug_meter *meter = meter_of(*state, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, 2, &memory);
    snug_meter_add(meter, values, NULL, values, 3);
    assert_int_equal(snug_meter_result(meter, &metrics), SNUG_E_INTERNAL);
    assert_non_null(strstr(snug_error_message(*state), "more rows"));
    snug_clear_error(*state);
    snug_meter_reset(meter);
    snug_meter_add(meter, values, NULL, values, 1);
    assert_int_equal(snug_meter_result(meter, &metrics), SNUG_OK);
    snug_meter_add(meter, values, NULL, values, 1);
    assert_int_equal(snug_meter_result(meter, &metrics), SNUG_E_INTERNAL);
    assert_non_null(strstr(snug_error_message(*state), "after the result"));
    snug_clear_error(*state);
    snug_meter_free(meter);
    free(memory);

    meter = meter_of(*state, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_SINGLE_LABEL, 3, 2, &memory);
    for (int32_t bad = -1; bad <= 3; bad += 4) {
        snug_meter_reset(meter);
        snug_meter_add(meter, values, &bad, NULL, 1);
        assert_int_equal(snug_meter_result(meter, &metrics), SNUG_E_INTERNAL);
    }
    snug_meter_free(meter);
    free(memory);
}

/* A rounded quotient is no correlation beyond 1; of what does not vary there is none. */
static void test_correlation_is_bounded(void **state) {
    enum { ROWS = 7, SETS = 64 };
    uint32_t random = 1;
    snug_metrics metrics;
    for (int set = 0; set < SETS; set++) {
        void *memory;
        struct snug_meter *meter =
            meter_of(*state, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, ROWS, &memory);
        const float slope = set % 2 ? 3.0f : -3.0f;
        for (int i = 0; i < ROWS; i++) {
            random = random * 1664525u + 1013904223u;
            const float x = (float)(random >> 16) / 1024, y = slope * x;
            snug_meter_add(meter, &x, NULL, &y, 1);
        }
        assert_int_equal(snug_meter_result(meter, &metrics), SNUG_OK);
        const double r = result_of(&metrics, "eval_pearson");
        assert_true(fabs(r) <= 1 && fabs(r - (set % 2 ? 1 : -1)) < 1e-7);
        snug_meter_free(meter);
        free(memory);
    }
    void *memory;
    struct snug_meter *meter = meter_of(*state, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, 2, &memory);
    snug_meter_add(meter, (const float[]){1, 2}, NULL, (const float[]){5, 5}, 2);
    assert_int_equal(snug_meter_result(meter, &metrics), SNUG_OK);
    assert_true(isnan(result_of(&metrics, "eval_pearson")));
    snug_meter_free(meter);
    free(memory);
}

/* One table says the names: results have them, and a choice is looked up in them. */
static void test_names(void **state) {
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
        snug_metrics metrics;
        struct snug_meter *meter = meter_of(*state, cases[i].task, cases[i].problem, 3, 2, &memory);
        const int64_t place = snug_metric_find(cases[i].task, cases[i].problem, cases[i].name);
        assert_int_equal(place, cases[i].place);
        assert_int_equal(snug_meter_result(meter, &metrics), SNUG_OK);
        if (place >= 0) assert_non_null(strstr(metrics.items[place].name, cases[i].name));
        snug_meter_free(meter);
        free(memory);
    }
}

/* Ranks of many rows against their closed form: without ties rho = 1 - 6 sum d^2 / (n^3 - n). */
static void test_spearman_of_many_rows(void **state) {
    enum { rows = 20000 };
    void *memory;
    struct snug_meter *meter = meter_of(*state, SNUG_TASK_CLASSIFICATION, SNUG_PROBLEM_REGRESSION, 1, rows, &memory);
    double squares = 0;
    for (int64_t i = 0; i < rows; i++) { /* 7919 is prime to 20000: a permutation */
        int64_t other = i * 7919 % rows;
        float x = (float)i - 10000, y = (float)other - 10000;
        squares += (double)((i - other) * (i - other));
        snug_meter_add(meter, &x, NULL, &y, 1);
    }
    snug_metrics metrics;
    assert_int_equal(snug_meter_result(meter, &metrics), SNUG_OK);
    double n = rows, expected = 1 - 6 * squares / (n * n * n - n);
    assert_true(fabs(result_of(&metrics, "eval_spearmanr") - expected) < 1e-12);
    snug_meter_free(meter);
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_loss_is_a_mean_over_items, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_to_measure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_misuse_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_correlation_is_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_spearman_of_many_rows, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
