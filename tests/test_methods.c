/* SPDX-License-Identifier: Apache-2.0 */
/* Every method that trades time for memory gives the run that it stands for: the same bits where it is exact. */
#include "training_fixture.h"

static void assert_same_model(const struct fixture *f, const char *a, const char *b) {
    assert_same_file(f, path_of(f, "%s/model.safetensors", a), path_of(f, "%s/model.safetensors", b));
}

/* ---- recomputation -------------------------------------------------------------------------------------------- */

static void test_recomputation_changes_no_bit(void **state) {
    static const char *const ways[] = {
        "recompute=elementwise", "recompute=ffn",           "recompute=attention",         "recompute=layer",
        "recompute=none,layer",  "recompute=attention,ffn", "gradient_checkpointing=True", "recompute=layer,none",
        "recompute=ffn*2"};
    static const char *const tasks[] = {"", " task=mlm line_by_line=True train_file=@train.txt"};
    struct fixture *f = *state;
    for (size_t task = 0; task < 2; task++) {
        char words[256];
        snprintf(words, sizeof words, "recompute=none gradient_accumulation_steps=2%s", tasks[task]);
        train(f, "stored", words);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            snprintf(words, sizeof words, "%s gradient_accumulation_steps=2%s", ways[i], tasks[task]);
            train(f, "again", words);
            assert_same_model(f, "stored", "again");
        }
    }
}

static void test_wrong_levels_are_refused(void **state) {
    static const char *const cases[][2] = {
        {"recompute=some", "not a list of levels"},       {"recompute=layer,", "not a list of levels"},
        {"recompute=layer*0", "not a list of levels"},    {"recompute=layer*x", "not a list of levels"},
        {"recompute=layer*3", "more levels than layers"}, {"recompute=none,ffn,ffn", "more levels than layers"},
        {"recompute=layer*1,", "not a list of levels"},   {"recompute=ffn gradient_checkpointing=True", "not both"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_train_result result;
        assert_int_equal(try_train(f, "refused", cases[i][0], 0, &result), SNUG_E_USAGE);
        assert_contains(snug_error_message(f->ctx), cases[i][1]);
    }
}

/* ---- update inside backward ----------------------------------------------------------------------------------- */

static void test_update_in_backward_changes_no_bit(void **state) {
    static const char *const ways[] = {"recompute=none",  "recompute=elementwise",          "recompute=attention",
                                       "recompute=layer", "recompute=layer,none",           "recompute=ffn",
                                       "max_grad_norm=0", "max_grad_norm=0 recompute=layer"};
    static const char *const steps[] = {"", " gradient_accumulation_steps=2"};
    static const char *const tasks[] = {"", " task=mlm line_by_line=True train_file=@train.txt"};
    struct fixture *f = *state;
    for (size_t task = 0; task < 2; task++)
        for (size_t step = 0; step < 2; step++)
            for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
                char words[256];
                /* A norm that most steps pass, so that clipping is seen. */
                const char *norm = strstr(ways[i], "max_grad_norm") ? "" : "max_grad_norm=0.5 ";
                snprintf(words, sizeof words, "%s%s%s%s", norm, ways[i], steps[step], tasks[task]);
                train(f, "after", words);
                snprintf(words, sizeof words, "%s%s%s%s update_in_backward=True", norm, ways[i], steps[step],
                         tasks[task]);
                train(f, "inside", words);
                assert_same_model(f, "after", "inside");
            }
}

/* Gradients never stand all at once. */
static void test_update_in_backward_frees_gradients(void **state) {
    struct fixture *f = *state;
    const snug_train_result after = train(f, "after", "task=mlm line_by_line=True train_file=@train.txt"),
                            inside = train(f, "inside",
                                           "task=mlm line_by_line=True train_file=@train.txt "
                                           "update_in_backward=True");
    const int64_t weights = after.ledger[SNUG_MEMORY_WEIGHTS].planned;
    assert_int_equal(after.ledger[SNUG_MEMORY_GRADIENTS].planned, weights);
    assert_true(inside.ledger[SNUG_MEMORY_GRADIENTS].planned < weights / 2);
    assert_true(inside.total.planned < after.total.planned);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_recomputation_changes_no_bit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_update_in_backward_changes_no_bit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_update_in_backward_frees_gradients, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_levels_are_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("methods", tests, NULL, NULL);
}
