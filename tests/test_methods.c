/* SPDX-License-Identifier: Apache-2.0 */
/* Every method that trades time for memory gives the run that it stands for: the same bits where it is exact. */
#include "io/safetensors.h"
#include "training_fixture.h"

static void ok(const struct fixture *f, snug_status status) {
    if (status != SNUG_OK) fail_msg("status %d: %s", status, snug_error_message(f->ctx));
}

static void assert_same_model(const struct fixture *f, const char *a, const char *b) {
    assert_same_file(f, path_of(f, "%s/model.safetensors", a), path_of(f, "%s/model.safetensors", b));
}

/* ---- recomputation -------------------------------------------------------------------------------------------- */

static void test_recomputation_changes_no_bit(void **state) {
    static const char *const ways[] = {
        "recompute=elementwise", "recompute=ffn",           "recompute=attention",         "recompute=layer",
        "recompute=none,layer",  "recompute=attention,ffn", "gradient_checkpointing=True", "recompute=layer,none",
        "recompute=ffn*2"};
    static const char *const tasks[] = {"", " bf16=True", " task=mlm line_by_line=True train_file=@train.txt",
                                        " dtype=bfloat16 task=mlm line_by_line=True train_file=@train.txt"};
    struct fixture *f = *state;
    for (size_t task = 0; task < sizeof tasks / sizeof *tasks; task++) {
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
        {"recompute=some", "not a list of levels"},
        {"recompute=ffn;layer", "not a list of levels"},
        {"recompute=layer,", "not a list of levels"},
        {"recompute=layer*0", "not a list of levels"},
        {"recompute=layer*x", "not a list of levels"},
        {"recompute=layer*3", "more levels than layers"},
        {"recompute=none,ffn,ffn", "more levels than layers"},
        {"recompute=layer*1,", "not a list of levels"},
        {"recompute=layer*1x", "not a list of levels"},
        {"recompute=ffn gradient_checkpointing=True", "not both"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_train_result result;
        assert_int_equal(try_train(f, "refused", cases[i][0], 0, &result), SNUG_E_USAGE);
        assert_contains(snug_error_message(f->ctx), cases[i][1]);
    }
}

static void test_tf32_needs_a_gpu(void **state) {
    struct fixture *f = *state;
    snug_train_result result;
    assert_int_equal(try_train(f, "refused", "tf32=True device=cpu", 0, &result), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--tf32 needs an NVIDIA GPU");
    train(f, "off", "tf32=False device=cpu max_steps=1");
}

/* ---- rows that wait ------------------------------------------------------------------------------------------- */

/* All tensors of two files have the same bits, those of a table in the rows that both have. */
static void assert_same_but_wider(const struct fixture *f, const char *narrow, const char *wide, size_t expected) {
    struct snug_safetensors a, b;
    ok(f, snug_safetensors_open(f->ctx, NULL, narrow, &a));
    ok(f, snug_safetensors_open(f->ctx, NULL, wide, &b));
    assert_true(a.count == b.count && a.count >= expected);
    for (size_t i = 0; i < a.count; i++) {
        const struct snug_stored_tensor *x = &a.tensors[i], *y = snug_safetensors_find(&b, x->name);
        assert_non_null(y);
        const size_t count = (size_t)x->count;
        float *values = calloc(2 * count, sizeof *values);
        assert_non_null(values);
        ok(f, snug_safetensors_read(f->ctx, &a, x, 0, x->count, values));
        ok(f, snug_safetensors_read(f->ctx, &b, y, 0, x->count, values + count));
        if (memcmp(values, values + count, count * sizeof *values) != 0) fail_msg("%s differs", x->name);
        free(values);
    }
    snug_safetensors_close(&a);
    snug_safetensors_close(&b);
}

/* The same training of the narrow model, whose rows do not wait, and of the wide one, whose rows do. */
static void test_waiting_changes_nothing(void **state) {
    static const char *const runs[] = {
        "",
        "weight_decay=0.1 gradient_accumulation_steps=2 num_train_epochs=6 warmup_steps=5",
        "validation_file=@dev.csv eval_strategy=steps eval_steps=3 num_train_epochs=30 learning_rate=3e-3 threads=3",
        "bf16=True max_grad_norm=0.1",
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[512];
        snprintf(words, sizeof words, "save_strategy=steps save_steps=5 save_total_limit=1 %s", runs[i]);
        const snug_train_result narrow = train(f, "narrow", words);
        snprintf(words, sizeof words, "save_strategy=steps save_steps=5 save_total_limit=1 %s config_name=@wide",
                 runs[i]);
        const snug_train_result wide = train(f, "wider", words);
        const int64_t more = (int64_t)(WIDE_VOCABULARY - VOCABULARY) * 32 * 4;
        /* Less what the narrow table is rounded up by. */
        assert_true(wide.ledger[SNUG_MEMORY_WEIGHTS].planned > narrow.ledger[SNUG_MEMORY_WEIGHTS].planned + more - 256);
        assert_true(wide.ledger[SNUG_MEMORY_GRADIENTS].planned <
                    narrow.ledger[SNUG_MEMORY_GRADIENTS].planned + more / 8);
        assert_true(narrow.train_loss == wide.train_loss);
        assert_int_equal(narrow.metrics.count, wide.metrics.count);
        if (narrow.metrics.count)
            assert_true(metric_of(&narrow.metrics, "eval_loss") == metric_of(&wide.metrics, "eval_loss"));
        assert_same_but_wider(f, path_of(f, "narrow/model.safetensors"), path_of(f, "wider/model.safetensors"), 30);
        const char *a = path_of(f, "narrow/checkpoint-%d/optimizer.safetensors", (int)narrow.steps);
        assert_same_but_wider(f, a, path_of(f, "wider/checkpoint-%d/optimizer.safetensors", (int)narrow.steps), 30);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "narrow")));
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "wider")));
    }
}

#define WORD_TABLE "bert.embeddings.word_embeddings.weight"

static void assert_same_table(const struct fixture *f, snug_session *sessions[2], bool gradients) {
    enum { NARROW = VOCABULARY * 32, WIDE = WIDE_VOCABULARY * 32 };
    static float values[2][WIDE];
    for (int i = 0; i < 2; i++)
        ok(f, gradients ? snug_get_gradient(sessions[i], WORD_TABLE, values[i], i ? WIDE : NARROW)
                        : snug_get_parameter(sessions[i], WORD_TABLE, values[i], i ? WIDE : NARROW));
    assert_memory_equal(values[0], values[1], NARROW * sizeof(float));
    for (int i = NARROW; gradients && i < WIDE; i++) assert_true(values[1][i] == 0);
}

/* One's own loop may forget gradients, and look at everything at any time. */
static void test_waiting_in_ones_own_loop(void **state) {
    struct fixture *f = *state;
    snug_session *sessions[2];
    snug_args *args[2];
    for (int i = 0; i < 2; i++) {
        args[i] =
            training_args(f, i ? "config_name=@wide gradient_accumulation_steps=2" : "gradient_accumulation_steps=2");
        ok(f, snug_session_create(args[i], &sessions[i]));
        ok(f, snug_session_begin_epoch(sessions[i], 0));
    }
    snug_batch_info batch;
    for (int number = 0; number < 10; number++) {
        for (int i = 0; i < 2; i++) {
            double loss;
            ok(f, snug_next_batch(sessions[i], &batch));
            ok(f, snug_forward(sessions[i]));
            ok(f, snug_loss(sessions[i], &loss));
            ok(f, snug_backward(sessions[i]));
            if (number % 4 == 2) ok(f, snug_zero_grad(sessions[i]));
            if (number % 4 == 3) ok(f, snug_clip_grad_norm(sessions[i], 0.1, NULL));
        }
        assert_same_table(f, sessions, true);
        for (int i = 0; i < 2 && batch.last_in_step; i++) {
            ok(f, snug_optimizer_step(sessions[i]));
            ok(f, snug_scheduler_step(sessions[i]));
            ok(f, snug_zero_grad(sessions[i]));
        }
        if (number % 4 == 1) assert_same_table(f, sessions, false);
    }
    assert_same_table(f, sessions, false);
    for (int i = 0; i < 2; i++) {
        snug_session_destroy(sessions[i]);
        snug_args_destroy(args[i]);
    }
}

/* ---- update inside backward ----------------------------------------------------------------------------------- */

static void test_update_in_backward_changes_no_bit(void **state) {
    static const char *const ways[] = {"recompute=none",  "recompute=elementwise",          "recompute=attention",
                                       "recompute=layer", "recompute=layer,none",           "recompute=ffn",
                                       "max_grad_norm=0", "max_grad_norm=0 recompute=layer"};
    static const char *const steps[] = {"", " gradient_accumulation_steps=2"};
    static const char *const tasks[] = {"", " bf16=True", " task=mlm line_by_line=True train_file=@train.txt",
                                        " dtype=bfloat16 task=mlm line_by_line=True train_file=@train.txt"};
    struct fixture *f = *state;
    for (size_t task = 0; task < sizeof tasks / sizeof *tasks; task++)
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

/* All that the arena holds: without the context, which is the process's own and grows with what ran before. */
static int64_t carved(const snug_train_result *result) {
    int64_t sum = 0;
    for (int i = 0; i < SNUG_MEMORY_CONTEXT; i++) sum += result->ledger[i].planned;
    return sum;
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
    assert_true(carved(&inside) < carved(&after));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_recomputation_changes_no_bit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_update_in_backward_changes_no_bit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_update_in_backward_frees_gradients, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_levels_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tf32_needs_a_gpu, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waiting_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waiting_in_ones_own_loop, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("methods", tests, NULL, NULL);
}
