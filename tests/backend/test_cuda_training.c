/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trainings on the GPU by their arguments: fp16 with skipped steps, resumed; losses; inference in 16 bits;
   refusals. Tests that need a GPU are skipped without one. */
#include <math.h>

#include "backend/backend.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static const struct snug_backend *cuda;

static bool there_is_a_gpu(struct fixture *f) {
    const bool found = snug_backend_cuda(f->ctx, &cuda) == SNUG_OK;
    if (!found) print_message("skipped: %s\n", snug_error_message(f->ctx));
    snug_clear_error(f->ctx);
    return found;
}

/* Labels so large that the first gradients overflow fp16 at a scale of 65536. */
static void write_large_labels(struct fixture *f) {
    FILE *file = fopen(path_of(f, "large.csv"), "w");
    assert_non_null(file);
    fputs("sentence,label\n", file);
    for (int row = 0; row < 80; row++) fprintf(file, "w%d w%d good,%g\n", row % 20, row % 7, 2000 + 500.5 * (row % 5));
    assert_int_equal(fclose(file), 0);
}

#define FP16                                                                                                           \
    "device=cuda fp16=True train_file=@large.csv do_regression=True logging_steps=1 warmup_steps=2 "                   \
    "save_strategy=steps save_steps=1000"

FIXTURE_TEST(skipped_steps_are_counted) {
    if (!there_is_a_gpu(f)) skip();
    write_large_labels(f);
    const snug_train_result result = train(f, "whole", FP16);
    print_message("%lld of %lld steps skipped, scale %g\n", (long long)result.skipped_steps, (long long)result.steps,
                  result.loss_scale);
    assert_true(result.skipped_steps >= 2 && result.skipped_steps < 15);
    assert_true(result.loss_scale == ldexp(65536, -(int)result.skipped_steps));
    assert_contains(f->log, "steps skipped so far");
    char *text;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    assert_contains(text, "Skipped    ");
    free(text);
    json_t *results = read_json(f, path_of(f, "whole/train_results.json"));
    assert_int_equal(json_integer_value(json_object_get(results, "skipped_steps")), result.skipped_steps);
    json_decref(results);
    /* The schedule, linear after two steps of warm-up, did not advance in them. */
    json_t *trained = read_json(f, path_of(f, "whole/trainer_state.json"));
    const json_t *history = json_object_get(trained, "log_history");
    const json_t *last = json_array_get(history, (size_t)result.steps - 1);
    const double rate = json_number_value(json_object_get(last, "learning_rate"));
    const double expected = 1e-3 * (double)(result.skipped_steps + 1) / (double)(result.steps - 2);
    assert_true(fabs(rate - expected) < 1e-9);
    json_decref(trained);
    /* An update that is skipped leaves offloaded weights and their copies as they were, too. */
    train(f, "offloaded", FP16 " offload=optimizer,gradients,weights");
    assert_same_file(f, path_of(f, "whole/model.safetensors"), path_of(f, "offloaded/model.safetensors"));
}

/* Interrupted while steps are being skipped, and later. */
FIXTURE_TEST(resumed_is_uninterrupted_in_fp16) {
    static const int stops[] = {2, 13};
    if (!there_is_a_gpu(f)) skip();
    write_large_labels(f);
    static const char *const optimizers[] = {"adamw_torch", "adamw_8bit", "adafactor"};
    for (int i = 0; i < 3; i++) {
        char words[512], more[600];
        snprintf(words, sizeof words, "%s optim=%s", FP16, optimizers[i]);
        snprintf(more, sizeof more, "%s resume_from_checkpoint=True", words);
        const snug_train_result whole = train(f, "whole", words);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(try_train(f, "cut", words, stops[k], NULL), SNUG_E_INTERRUPTED);
            const snug_train_result result = train(f, "cut", more);
            assert_int_equal(result.skipped_steps, whole.skipped_steps);
            assert_same_file(f, path_of(f, "whole/model.safetensors"), path_of(f, "cut/model.safetensors"));
            assert_same_file(f, path_of(f, "whole/checkpoint-20/optimizer.safetensors"),
                             path_of(f, "cut/checkpoint-20/optimizer.safetensors"));
            assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "cut")), SNUG_OK);
        }
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "whole")), SNUG_OK);
    }
}

/* Rows of a frozen table are read from host memory, in training and evaluation, beside other weights that stay or are
   copied. */
FIXTURE_TEST(rows_of_an_offloaded_table_are_read_in_place) {
    static const char words[] =
        "device=cuda fp16=True config_name=@wide freeze=embeddings max_steps=4 validation_file=@dev.csv "
        "eval_strategy=steps eval_steps=2 save_strategy=steps save_steps=2";
    static const char *const ways[] = {"offload=embeddings", "offload=weights offload_ratio=0.3",
                                       "offload=embeddings,weights,activations"};
    if (!there_is_a_gpu(f)) skip();
    write_model(f, "wide", 0.1, 64, 2, 4096);
    train(f, "whole", words);
    for (int i = 0; i < 3; i++) {
        char more[512];
        snprintf(more, sizeof more, "%s %s", words, ways[i]);
        train(f, "offloaded", more);
        assert_same_file(f, path_of(f, "whole/model.safetensors"), path_of(f, "offloaded/model.safetensors"));
        assert_same_file(f, path_of(f, "whole/checkpoint-4/optimizer.safetensors"),
                         path_of(f, "offloaded/checkpoint-4/optimizer.safetensors"));
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "offloaded")), SNUG_OK);
    }
}

/* The trainer reads the losses of a step after the step; snug_loss() waits for each. */
FIXTURE_TEST(losses_are_those_of_ones_own_loop) {
    static const char words[] = "device=cuda per_device_train_batch_size=4 gradient_accumulation_steps=3 max_steps=4";
    if (!there_is_a_gpu(f)) skip();
    const snug_train_result result = train(f, "whole", words);
    snug_args *args = training_args(f, words);
    snug_session *session;
    double total = 0, step = 0, loss;
    assert_int_equal(snug_session_create(args, &session), SNUG_OK);
    assert_int_equal(snug_session_begin_epoch(session, 0), SNUG_OK);
    for (const snug_batch_info *batch; snug_next_batch(session, &batch) == SNUG_OK;) {
        assert_int_equal(snug_forward(session), SNUG_OK);
        assert_int_equal(snug_loss(session, &loss), SNUG_OK);
        assert_int_equal(snug_backward(session), SNUG_OK);
        step += loss;
        if (!batch->last_in_step) continue;
        assert_int_equal(snug_clip_grad_norm(session, 1, NULL), SNUG_OK);
        assert_int_equal(snug_optimizer_step(session), SNUG_OK);
        assert_int_equal(snug_scheduler_step(session), SNUG_OK);
        assert_int_equal(snug_zero_grad(session), SNUG_OK);
        total += step;
        step = 0;
    }
    assert_int_equal(result.steps, 4);
    assert_true(total / 4 == result.train_loss);
    snug_session_destroy(session);
    snug_args_destroy(args);
}

static double loss_of(struct fixture *f, const char *more) {
    char words[512];
    snug_metrics metrics;
    snprintf(words, sizeof words, "model_name_or_path=@whole validation_file=@dev.csv threads=2 %s", more);
    snug_args *args = plain_args(f, words);
    if (evaluate_args(f, args, NULL, &metrics) != SNUG_OK) fail_msg("%s: %s", more, snug_error_message(f->ctx));
    snug_args_destroy(args);
    return metric_of(&metrics, "eval_loss");
}

/* Close to fp32's, but not equal; on the CPU bf16 only. */
FIXTURE_TEST(inference_in_16_bits) {
    static const char *const types[] = {"bf16_full_eval=True", "fp16_full_eval=True", "bf16=True", "fp16=True"};
    train(f, "whole", "device=cpu");
    const double cpu = loss_of(f, "device=cpu"), low = loss_of(f, "device=cpu bf16_full_eval=True");
    assert_true(fabs(low - cpu) < 1e-2 && low != cpu);
    if (!there_is_a_gpu(f)) return;
    for (int i = 0; i < 4; i++) {
        char words[96];
        if (cuda->lacks_bf16 && i % 2 == 0) continue;
        snprintf(words, sizeof words, "device=cuda %s", types[i]);
        const double found = loss_of(f, words);
        print_message("%s: loss %.6f, in fp32 %.6f\n", types[i], found, cpu);
        assert_true(fabs(found - cpu) < (i % 2 ? 2e-3 : 1e-2) && found != cpu);
    }
}

static void expect_refusal(struct fixture *f, const char *words, snug_status status, const char *part) {
    snug_train_result result;
    assert_int_equal(try_train(f, "none", words, 0, &result), status);
    assert_contains(snug_error_message(f->ctx), part);
    assert_false(exists(path_of(f, "none")));
}

/* Also eval and plan, on a GPU and for one: the message names what the GPU has. */
FIXTURE_TEST(types_that_the_gpu_lacks) {
    static const char *const cases[][2] = {{"bf16=True", "use --fp16"},
                                           {"bf16=True dtype=bfloat16", "use --fp16"},
                                           {"bf16_full_eval=True validation_file=@dev.csv", "use --fp16_full_eval"},
                                           {"tf32=True", "leave it out, or use --fp16"}};
    if (!there_is_a_gpu(f) || !cuda->lacks_bf16) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[128];
        snprintf(words, sizeof words, "device=cuda %s", cases[i][0]);
        expect_refusal(f, words, SNUG_E_USAGE, "needs a GPU of compute capability 8.0 or later");
        assert_contains(snug_error_message(f->ctx), cases[i][1]);
    }
}

FIXTURE_TEST(refusals_name_the_method) {
    expect_refusal(f, "device=cpu fp16=True", SNUG_E_USAGE, "--fp16: fp16 needs a GPU");
    expect_refusal(f, "device=cpu fp16_full_eval=True", SNUG_E_USAGE, "--fp16_full_eval: fp16 needs a GPU");
    expect_refusal(f, "bf16=True fp16=True", SNUG_E_USAGE, "at most one of --fp16 and --bf16");
    expect_refusal(f, "bf16_full_eval=True fp16_full_eval=True", SNUG_E_USAGE, "at most one of --fp16_full_eval");
    expect_refusal(f, "dtype=bfloat16 fp16=True", SNUG_E_USAGE, "--fp16 needs fp32 weights");
}

TEST_MAIN(NULL, NULL)
