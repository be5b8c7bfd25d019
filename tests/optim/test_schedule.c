/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates against transformers' (tools/golden/schedule.py), and refused arguments. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "optim/schedule.h"
#include "test.h"

static int set_up(void **state) { return snug_context_create((snug_context **)state) != SNUG_OK; }

static int tear_down(void **state) {
    snug_context_destroy(*state);
    return 0;
}

TEST_IN(test_golden, void *fixture, set_up, tear_down) {
    json_t *cases = json_load_file(SNUG_SOURCE_DIR "/tests/golden/schedule.json", 0, NULL), *one;
    assert_true(json_array_size(cases) > 20);
    size_t i;
    json_array_foreach(cases, i, one) {
        const char *type, *kwargs;
        json_int_t warmup, total;
        double base;
        json_t *rates;
        assert_int_equal(json_unpack(one, "{s:s s:s s:F s:I s:I s:o}", "type", &type, "kwargs", &kwargs, "base", &base,
                                     "warmup", &warmup, "total", &total, "rates", &rates),
                         0);
        struct snug_schedule schedule;
        assert_int_equal(snug_schedule_init(fixture, type, kwargs, base, (double)warmup, (double)total, &schedule),
                         SNUG_OK);
        for (size_t step = 0; step < json_array_size(rates); step++) {
            double expected = json_number_value(json_array_get(rates, step));
            double rate = snug_schedule_rate(&schedule, (int64_t)step);
            /* Rounding of a few doubles at the scale of the base rate, and of libm's cosine. */
            if (fabs(rate - expected) > 1e-14 * base)
                fail_msg("%s %s step %zu: %.17g, not %.17g", type, kwargs, step, rate, expected);
        }
    }
    json_decref(cases);
}

TEST_IN(test_warmup_ratio_is_rounded_up, void *fixture, set_up, tear_down) {
    struct snug_schedule schedule;
    assert_int_equal(snug_schedule_init(fixture, "linear", NULL, 1, 0.06, 101, &schedule), SNUG_OK);
    assert_true(schedule.warmup_steps == 7);
    assert_int_equal(snug_schedule_init(fixture, "linear", NULL, 1, 1, 101, &schedule), SNUG_OK);
    assert_true(schedule.warmup_steps == 1);
}

TEST_IN(test_nothing_to_divide_by, void *fixture, set_up, tear_down) {
    struct snug_schedule schedule;
    assert_int_equal(snug_schedule_init(fixture, "polynomial", "{\"lr_end\": 0.25}", 1, 10, 10, &schedule), SNUG_OK);
    assert_true(snug_schedule_rate(&schedule, 10) == 0.25); /* all steps are warm-up */
    assert_int_equal(snug_schedule_init(fixture, "cosine_with_min_lr", "{\"min_lr\": 0.1}", 0, 0, 10, &schedule),
                     SNUG_OK);
    assert_true(snug_schedule_rate(&schedule, 5) == 0); /* with a learning rate of 0 */
}

TEST_IN(test_quoted_numbers, void *fixture, set_up, tear_down) {
    struct snug_schedule schedule;
    assert_int_equal(snug_schedule_init(fixture, "polynomial", "{\"power\": \"2.5\"}", 1, 0, 10, &schedule), SNUG_OK);
    assert_true(schedule.power == 2.5);
}

TEST_IN(test_refused, void *fixture, set_up, tear_down) {
    static const struct {
        const char *type, *kwargs, *says;
    } cases[] = {
        {"lineal", NULL, "lineal"},
        {"linear", "{\"power\": 2}", "does not take \"power\""},
        {"linear", "[1]", "JSON object"},
        {"linear", "{", "JSON object"},
        {"linear", "{\"\": 2}", "does not take"},
        {"polynomial", "{\"power\": \"x\"}", "power"},
        {"polynomial", "{\"power\": \"2x\"}", "power"},
        {"polynomial", "{\"power\": \"1e999\"}", "at least 0"},
        {"polynomial", "{\"power\": -1}", "at least 0"},
        {"polynomial", "{\"end\": 1}", "does not take \"end\""},
        {"polynomial", "{\"lr_end\": 1}", "lr_end"},
        {"polynomial", "{\"lr\": 1}", "does not take \"lr\""},
        {"cosine_with_min_lr", NULL, "min_lr"},
        {"cosine_with_min_lr", "{\"min_lr\": 1e-6, \"min_lr_rate\": 0.1}", "either"},
        {"warmup_stable_decay", NULL, "num_decay_steps"},
        {"warmup_stable_decay", "{\"num_decay_steps\": 1, \"decay_type\": \"x\"}", "1-sqrt"},
        {"warmup_stable_decay", "{\"num_decay_steps\": 1, \"decay_type\": 3}", "1-sqrt"},
        {"inverse_sqrt", "{\"timescale\": 0}", "timescale"},
    };
    struct snug_schedule schedule;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_clear_error(fixture);
        assert_int_equal(snug_schedule_init(fixture, cases[i].type, cases[i].kwargs, 5e-5, 0, 10, &schedule),
                         SNUG_E_USAGE);
        if (!strstr(snug_error_message(fixture), cases[i].says)) fail_msg("%s", snug_error_message(fixture));
    }
    assert_int_equal(snug_schedule_init(fixture, "linear", NULL, 5e-5, NAN, 10, &schedule), SNUG_E_USAGE);
    assert_int_equal(snug_schedule_init(fixture, "linear", NULL, 5e-5, 0, INFINITY, &schedule), SNUG_E_USAGE);
    assert_int_equal(snug_schedule_init(fixture, "linear", NULL, 5e-5, 0, NAN, &schedule), SNUG_E_USAGE);
}

TEST_MAIN(NULL, NULL)
