/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings with losses and gradients that are not finite, and with damaged checkpoints. */
#include <math.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* ---- values that are not finite ------------------------------------------------------------------------------- */

/* Labels of which every one whose index is a multiple of every is so large that loss and gradient overflow. */
static void write_overflowing(const struct fixture *f, const char *name, int every) {
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    fprintf(file, "sentence,label\n");
    for (uint32_t row = 0; row < TRAIN_ROWS; row++)
        fprintf(file, "w%u good w%u,%s\n", row, 2 * row, (row + 1) % (uint32_t)every ? "0.25" : "3e38");
    assert_int_equal(fclose(file), 0);
}

static json_t *logged(const struct fixture *f, const char *output, size_t index, const char *key) {
    json_t *history = history_of(f, output);
    json_t *value = json_incref(json_object_get(json_array_get(history, index), key));
    json_decref(history);
    return value;
}

#define OVERFLOWING "train_file=@over.csv logging_steps=1 "

static const char *const ways[] = {
    "",
    "config_name=@wide tokenizer_name=@wide",
    "config_name=@wide tokenizer_name=@wide dtype=bfloat16",
    "offload=optimizer,gradients,weights optim=adamw_8bit",
    "update_in_backward=True",
    "gradient_accumulation_steps=2",
};

/* Steps with that row are counted, logged and skipped: the run ends with finite weights. */
FIXTURE_TEST(test_overflowing_steps_are_skipped) {
    write_overflowing(f, "over.csv", TRAIN_ROWS);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char words[512], name[32];
        snprintf(words, sizeof words, OVERFLOWING "%s", ways[i]);
        f->log[0] = '\0';
        const snug_train_result result = train(f, "out", words);
        assert_int_equal(result.infinite_losses, 2); /* one each epoch */
        assert_int_equal(result.infinite_gradients, 2);
        assert_contains(f->log, "the gradient of classifier.");
        assert_contains(f->log, "this step changes no weight");
        assert_true(isfinite(result.train_loss));
        for (size_t step = 0; step < (size_t)result.steps; step++) {
            json_t *loss = logged(f, "out", step, "loss");
            assert_true(json_is_number(loss));
            json_decref(loss);
        }
        char *text;
        ok(f, snug_train_result_text(&result, &text));
        assert_contains(text, "Not finite the loss of 2 steps, the gradients of 2");
        free(text);
        /* Weights that are not finite are refused: these are accepted. */
        train(f, "next", OVERFLOWING "model_name_or_path=@out config_name=@out max_steps=1");
        /* Interrupted before and after such a step, it ends with the same bits and the same count. */
        for (int stop = 4; stop <= 8; stop += 4) {
            snprintf(name, sizeof name, "cut%d", stop);
            snug_train_result resumed;
            assert_int_equal(try_train(f, name, words, stop, NULL), SNUG_E_INTERRUPTED);
            char more[600];
            snprintf(more, sizeof more, "%s resume_from_checkpoint=True", words);
            ok(f, try_train(f, name, more, 0, &resumed));
            assert_same_run(f, "out", name);
            assert_int_equal(resumed.infinite_gradients, 2);
            ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "%s", name)));
        }
    }
}

/* A skipped step changes neither weights nor states, and a run of only skipped steps saves nothing. */
FIXTURE_TEST(test_skipped_step_changes_no_weight) {
    write_overflowing(f, "over.csv", 1);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char words[512];
        snprintf(words, sizeof words, "%s max_steps=3 save_strategy=steps save_steps=1 train_file=@over.csv", ways[i]);
        assert_int_equal(try_train(f, "out", words, 0, NULL), SNUG_E_NUMERIC);
        assert_contains(snug_error_message(f->ctx), "the last 3 steps had no finite loss");
        assert_contains(snug_error_message(f->ctx), "this run has saved no checkpoint");
        assert_false(exists(path_of(f, "out/checkpoint-1")) || exists(path_of(f, "out/model.safetensors")));
    }
}

/* During a streak of skipped steps nothing is saved, and the last checkpoint before it is kept. */
FIXTURE_TEST(test_streak_keeps_last_good) {
    FILE *file = fopen(path_of(f, "late.csv"), "w");
    assert_non_null(file);
    fprintf(file, "sentence,label\n");
    for (uint32_t row = 0; row < 160; row++)
        fprintf(file, "w%u good w%u,%s\n", row % 50, row % 49, row < 32 ? "0.25" : "3e38");
    assert_int_equal(fclose(file), 0);
    static const char words[] = "train_file=@late.csv train_sampling_strategy=sequential num_train_epochs=1 "
                                "save_strategy=steps save_steps=1 save_total_limit=1";
    assert_int_equal(try_train(f, "out", words, 0, NULL), SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "its last checkpoint is ");
    assert_contains(snug_error_message(f->ctx), "out/checkpoint-4");
    assert_true(exists(path_of(f, "out/checkpoint-4")));
    assert_false(exists(path_of(f, "out/checkpoint-5")));
    ok(f, folder_verify(f->ctx, path_of(f, "out/checkpoint-4")));
    /* A run that is interrupted during a streak stops at the end of the streak. */
    assert_int_equal(try_train(f, "cut", words, 6, NULL), SNUG_E_NUMERIC);
    assert_true(exists(path_of(f, "cut/checkpoint-4")));
}

FIXTURE_TEST(test_logging_filter) {
    write_overflowing(f, "over.csv", TRAIN_ROWS);
    const snug_train_result result = train(f, "out", OVERFLOWING "logging_nan_inf_filter=False");
    int64_t nulls = 0;
    for (size_t step = 0; step < (size_t)result.steps; step++) {
        json_t *loss = logged(f, "out", step, "loss");
        nulls += json_is_null(loss);
        json_decref(loss);
    }
    assert_int_equal(nulls, 2);
    assert_false(isfinite(result.train_loss));
    /* Over several steps a filtered loss counts as the mean of those before it. */
    write_overflowing(f, "over.csv", TRAIN_ROWS);
    train(f, "steps", OVERFLOWING "train_sampling_strategy=sequential num_train_epochs=1");
    train(f, "all", OVERFLOWING "train_sampling_strategy=sequential num_train_epochs=1 logging_steps=10");
    double mean = 0;
    for (size_t step = 0; step < 9; step++) {
        json_t *loss = logged(f, "steps", step, "loss");
        mean += json_number_value(loss) / 9;
        json_decref(loss);
    }
    json_t *loss = logged(f, "all", 0, "loss");
    assert_true(fabs(json_number_value(loss) - (9 * mean + 9 * mean / 10) / 10) < 1e-9);
    json_decref(loss);
}

FIXTURE_TEST(test_runs_without_finite_steps_end) {
    write_overflowing(f, "over.csv", 1);
    assert_int_equal(try_train(f, "out", OVERFLOWING, 0, NULL), SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "step 10: the loss is infinite and the gradient");
    assert_contains(snug_error_message(f->ctx), "the gradient of classifier.");
    assert_contains(snug_error_message(f->ctx), "--learning_rate");
    assert_int_equal(try_train(f, "out", OVERFLOWING "update_in_backward=True max_grad_norm=0", 0, NULL),
                     SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "step 1: ");
    assert_contains(snug_error_message(f->ctx), "has changed weights already");
    assert_int_equal(try_train(f, "out", "learning_rate=1e39", 0, NULL), SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "step 2: the loss is NaN, and the weight");
    assert_contains(snug_error_message(f->ctx), "the weight bert.");
}

/* An evaluation with outputs that are not finite ends the run, also where early stopping would end it at that step. */
FIXTURE_TEST(test_nan_evaluations_end_the_run) {
#define JUDGED                                                                                                         \
    "validation_file=@dev.csv eval_strategy=steps eval_steps=1 save_strategy=steps save_steps=1 max_steps=4 "          \
    "load_best_model_at_end=True early_stopping_patience=1 lr_scheduler_type=constant "
    assert_int_equal(try_train(f, "out", JUDGED "learning_rate=1e39", 0, NULL), SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "dev.csv: row 0: the model's outputs are NaN");
    assert_contains(snug_error_message(f->ctx), "this is the evaluation after step 1: a smaller --learning_rate");
    assert_int_equal(try_train(f, "late", JUDGED "early_stopping_patience=9", 2, NULL), SNUG_E_INTERRUPTED);
    assert_int_equal(try_train(f, "late",
                               JUDGED "early_stopping_patience=9 learning_rate=1e39 resume_from_checkpoint=True", 0,
                               NULL),
                     SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "the evaluation after step 3; they were finite after step 2");
    assert_int_equal(try_train(f, "mlm",
                               "task=mlm train_file=@train.txt validation_file=@dev.txt line_by_line=True "
                               "learning_rate=1e39 max_steps=1",
                               0, NULL),
                     SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "dev.txt: row 0: the model's outputs are NaN");
}

/* One product a row, of either sign, so that a class of each row overflows, and nothing is NaN. */
FIXTURE_TEST(test_infinite_outputs) {
    snug_args *args = training_args(f, "validation_file=@dev.csv");
    snug_session *session;
    snug_metrics *metrics;
    float weight[2][32] = {{3.3e38f}, {-3.3e38f}};
    const float bias[2] = {3.3e38f, 3.3e38f};
    assert_int_equal(snug_session_create(args, &session), SNUG_OK);
    assert_int_equal(snug_set_parameter(session, "classifier.weight", weight[0], 64), SNUG_OK);
    assert_int_equal(snug_set_parameter(session, "classifier.bias", bias, 2), SNUG_OK);
    assert_int_equal(snug_session_evaluate(session, &metrics), SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), ": the model's outputs are infinite: its values are too large for F32");
    snug_session_destroy(session);
    snug_args_destroy(args);
}

/* A label far from every output has an infinite loss, which is not the model's fault. */
FIXTURE_TEST(test_infinite_losses_of_finite_outputs) {
    write_overflowing(f, "over.csv", TRAIN_ROWS);
    const snug_train_result result = train(f, "out", OVERFLOWING "validation_file=@over.csv max_steps=2");
    assert_true(isinf(metric_of(result.metrics, "eval_loss")));
}

/* ---- damaged checkpoints -------------------------------------------------------------------------------------- */

#define SAVING "save_strategy=steps save_steps=5"

/* Every file of the last checkpoint is changed, truncated and removed in turn: it is named, and the checkpoint before
   it is used. */
FIXTURE_TEST(test_damaged_checkpoints_are_passed_over) {
    static const char *const files[] = {"model.safetensors",  "optimizer.safetensors",
                                        "trainer_state.json", "config.json",
                                        "vocab.txt",          "manifest.json"};
    static const char *const damages[] = {"changed", "cut", "removed"};
    train(f, "whole", SAVING);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (int damage = 0; damage < 3; damage++) {
            char *bytes, name[64];
            size_t size;
            assert_int_equal(try_train(f, "cut", SAVING, 12, NULL), SNUG_E_INTERRUPTED);
            snprintf(name, sizeof name, "cut/checkpoint-12/%s", files[i]);
            bytes = read_text(f, path_of(f, "%s", name), &size);
            bytes[size / 2] ^= 0x20;
            if (damage == 2)
                assert_int_equal(unlink(path_of(f, "%s", name)), 0);
            else
                write_bytes(path_of(f, "%s", name), bytes, damage ? size / 2 : size);
            free(bytes);
            f->log[0] = '\0';
            if (strcmp(files[i], "manifest.json") == 0) { /* the folder can no longer be identified as snug's */
                assert_int_equal(try_train(f, "cut", SAVING " resume_from_checkpoint=True", 0, NULL), SNUG_E_IO);
                assert_contains(snug_error_message(f->ctx), "cut/checkpoint-12 was not made by snug");
                ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "cut/checkpoint-12")));
                f->log[0] = '\0';
                train(f, "cut", SAVING " resume_from_checkpoint=True");
                assert_same_run(f, "whole", "cut");
                ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "cut")));
                continue;
            }
            train(f, "cut", SAVING " resume_from_checkpoint=True");
            if (!strstr(f->log, "checkpoint-12 is skipped") || !strstr(f->log, files[i]) ||
                !strstr(f->log, "checkpoint-10, step 10 of 20"))
                fail_msg("%s %s: %s", files[i], damages[damage], f->log);
            assert_same_run(f, "whole", "cut");
            ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "cut")));
        }
}

/* A flipped bit in any byte of the manifest: it is detected, or has no effect. */
FIXTURE_TEST(test_any_byte_of_a_manifest) {
    size_t size;
    train(f, "out", SAVING);
    char path[512], *bytes;
    snprintf(path, sizeof path, "%s", path_of(f, "out/checkpoint-20/manifest.json"));
    bytes = read_text(f, path, &size);
    json_t *whole = json_loads(bytes, 0, NULL);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= (char)(1 << i % 7);
        write_bytes(path, bytes, size);
        snug_clear_error(f->ctx);
        if (folder_verify(f->ctx, path_of(f, "out/checkpoint-20")) == SNUG_OK) {
            json_t *changed = json_loadb(bytes, size, 0, NULL);
            if (!json_equal(whole, changed)) fail_msg("byte %zu of the manifest: %s", i, bytes);
            json_decref(changed);
        }
        bytes[i] ^= (char)(1 << i % 7);
    }
    json_decref(whole);
    free(bytes);
}

TEST_MAIN(NULL, NULL)
