/* SPDX-License-Identifier: Apache-2.0 */
/* The extremes of every numeric argument: each is refused by name, or a plan and two steps of training accept it
   without a finding of UndefinedBehaviorSanitizer (make sanitize). */
#include "args/table.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* libomp 14 leaks some of its memory of threads once it has created many. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libomp.so"; }

static const char *const values[] = {"0",
                                     "-1",
                                     "1",
                                     "1e30",
                                     "1e300",
                                     "1.7976931348623157e308",
                                     "4.9406564584124654e-324",
                                     "-1e300",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "1e9999",
                                     "nan",
                                     "inf",
                                     "-inf"};
enum { VALUES = sizeof values / sizeof *values };

/* A bound of the argument's range: "[1,65536]" has "1" and "65536", "[0,)" has no upper one. */
static bool bound_of(const struct snug_argument *argument, bool upper, char *out, size_t size) {
    if (!argument->range) return false;
    const char *begin = argument->range + 1, *comma = strchr(begin, ',');
    const size_t length = upper ? strcspn(comma + 1, ")]") : (size_t)(comma - begin);
    if (length == 0) return false;
    double value = strtod(upper ? comma + 1 : begin, NULL);
    if (strcmp(argument->info.name, "threads") == 0 && upper) value = 16; /* 4096 threads take a second for each loop */
    if (argument->type == SNUG_ARG_INT)
        snprintf(out, size, "%lld", (long long)value);
    else
        snprintf(out, size, "%.17g", value);
    return true;
}

static void must_say(const struct fixture *f, const char *what, const char *name, const char *value) {
    if (!*snug_error_message(f->ctx)) fail_msg("%s with --%s %s fails without a message", what, name, value);
}

static void try_value(struct fixture *f, const struct snug_argument *argument, const char *value, const char *words) {
    const char *name = argument->info.name;
    struct stopper stopper = {2, 0};
    const snug_callbacks callbacks = {.user = &stopper, .on_event = count_step, .should_stop = stop_after};
    snug_args *args = training_args(f, words);
    snug_plan *plan;
    f->log[0] = '\0';
    if (snug_args_set(args, name, value) != SNUG_OK) {
        assert_contains(snug_error_message(f->ctx), name);
        snug_args_destroy(args);
        return;
    }
    const bool finite = argument->type != SNUG_ARG_REAL || !strpbrk(value, "nN"); /* nan, inf */
    if (!finite) fail_msg("--%s %s is accepted", name, value);
    if (snug_plan_create(args, &plan) != SNUG_OK) must_say(f, "plan", name, value);
    snug_plan_destroy(plan);
    if (snug_train(args, &callbacks, NULL) != SNUG_OK) must_say(f, "train", name, value);
    snug_args_destroy(args);
}

/* With evaluations and checkpoints by steps, so that everything that counts steps runs. */
FIXTURE_TEST(test_every_number) {
    static const char *const ways[] = {
        "validation_file=@dev.csv eval_strategy=steps eval_steps=1 save_strategy=steps save_steps=1 save_total_limit=1 "
        "output_dir=@out overwrite_output_dir=True load_best_model_at_end=True early_stopping_patience=2 threads=1",
        "validation_file=@dev.csv eval_strategy=epoch save_strategy=no output_dir=@out logging_strategy=epoch "
        "threads=1",
    };
    for (size_t i = 0; i < snug_argument_count; i++) {
        const struct snug_argument *argument = &snug_arguments[i];
        char bound[64];
        if (argument->type != SNUG_ARG_INT && argument->type != SNUG_ARG_REAL && argument->type != SNUG_ARG_BYTES)
            continue;
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            for (int upper = 0; upper < 2; upper++)
                if (bound_of(argument, upper, bound, sizeof bound)) try_value(f, argument, bound, ways[way]);
            for (size_t value = 0; value < VALUES; value++) /* each in one of the ways, in make check in the other */
                if (is_long() || (value + i + SANITIZED) % 2 == way) try_value(f, argument, values[value], ways[way]);
        }
    }
}

/* A huge interval is never reached: the run equals one that logs, evaluates and saves only at its end. */
FIXTURE_TEST(test_huge_means_never) {
    static const char *const huge[] = {"1e12", "1e30", "1e300", "1.7976931348623157e308"};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        char words[256];
        snprintf(words, sizeof words,
                 "max_steps=4 logging_steps=%s eval_strategy=steps eval_steps=%s validation_file=@dev.csv "
                 "save_strategy=steps save_steps=%s save_total_limit=9223372036854775807",
                 huge[i], huge[i], huge[i]);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        train(f, "out", words);
        assert_true(exists(path_of(f, "out/checkpoint-4"))); /* Trainer's last checkpoint, with --save_strategy steps */
        json_t *history = history_of(f, "out");
        assert_int_equal(json_array_size(history), 2); /* the evaluation at the end, and the totals */
        json_decref(history);
        for (int step = 1; step < 4; step++) assert_false(exists(path_of(f, "out/checkpoint-%d", step)));
        snprintf(words, sizeof words, "max_steps=2 warmup_steps=%s save_strategy=no", huge[i]);
        train(f, "warm", words);
    }
}

TEST_MAIN(NULL, NULL)
