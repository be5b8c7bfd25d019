/* SPDX-License-Identifier: Apache-2.0 */
/* The final summary prints the figures of the result. */
#include <stdlib.h>
#include <string.h>

#include "snug.h"
#include "test.h"

static void expect(const char *text, const char *says) {
    if (!strstr(text, says)) fail_msg("\"%s\" is not in:\n%s", says, text);
}

TEST(test_summary) {
    snug_train_result result = {
        .steps = 60,
        .samples = 1920,
        .tokens = 44000,
        .epochs = 3,
        .train_loss = 0.33,
        .seconds = 391.2,
        .samples_per_second = 512,
        .steps_per_second = 16,
        .seconds_to_first_step = 0.25,
        .flops = 3.912e12,
        .padding_avoided = 0.625,
        .truncated_texts = 3,
        .memory_count = SNUG_MEMORY_CLASS_COUNT,
        .memory =
            (const snug_memory_line[SNUG_MEMORY_CLASS_COUNT]){
                [SNUG_MEMORY_WEIGHTS] = {1 << 20, 1 << 20}, [SNUG_MEMORY_CONTEXT] = {2 << 20, -1}},
        .total = {100 << 20, 101 << 20},
        .metrics = &(const snug_metrics){.count = 1, .items = &(const snug_metric){"eval_accuracy", 0.91}},
        .best_checkpoint = "out/checkpoint-40",
        .output_dir = "out",
        .best_metric = "eval_accuracy",
        .best_value = 0.92,
        .best_step = 40,
        .best_epoch = 2,
    };
    char *text;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "Trained    60 steps, 3.00 epochs, 1920 samples, 44000 tokens; loss 0.3300\n");
    expect(text, "Time       6:31 min, first step after 0.25 s; 512 samples/s, 16 steps/s, 10.0\n           GFLOP/s\n");
    expect(text, "Padding    62.5 % of a padded batch's tokens were not computed\n");
    expect(text, "Truncated  3 texts were longer than --max_seq_length\n");
    expect(text, "Memory     101.0 MiB, planned were 100.0\n");
    expect(text, "Best       eval_accuracy 0.92 at step 40, epoch 2.00; the saved model has 0.91\n");
    expect(text, "Checkpoint out/checkpoint-40, the best\n");
    expect(text, "Model      out\n");
    snug_free(text);
    result.best_checkpoint = NULL;
    result.truncated_texts = 1;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "the saved model has 0.91;\n           --load_best_model_at_end keeps the best\n");
    expect(text, "Truncated  1 text was longer than");
    snug_free(text);
    result.best_metric = "eval_f1";
    result.metrics = &(const snug_metrics){0}; /* not evaluated at the end */
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "Best       eval_f1 0.92 at step 40, epoch 2.00\n");
    snug_free(text);
    result.best_is_model = true;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "Best       eval_f1 0.92 at step 40, epoch 2.00: the saved model\n");
    snug_free(text);

    assert_int_equal(snug_train_result_memory_text(&result, &text), SNUG_OK);
    expect(text, "  weights              1.0         1.0    +0.00 %  parameters, and copies of them in 16 bits\n");
    expect(text, "  context              2.0           -             program, libraries, driver\n");
    expect(text, "  total              100.0       101.0    +1.00 %  the process's largest resident memory\n");
    assert_null(strstr(text, "gradients")); /* a class without tensors */
    snug_free(text);
}

TEST(test_summary_without_figures) {
    snug_train_result result = {.total = {1 << 20, -1}, .metrics = &(const snug_metrics){0}};
    char *text;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "Time       0.00 s");
    snug_free(text);
    result.seconds = 7262;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "Time       2:01:02 h");
    expect(text, "Memory     1.0 MiB planned\n"); /* the planned figure, where it cannot be measured */
    assert_null(strstr(text, "Truncated"));
    assert_null(strstr(text, "Best"));
    snug_free(text);
}

TEST(test_summary_of_a_gpu) {
    snug_train_result result = {
        .seconds = 2,
        .infinite_gradients = 1,
        .skipped_steps = 3,
        .loss_scale = 4096,
        .memory_count = SNUG_MEMORY_CLASS_COUNT,
        .memory = (const snug_memory_line[SNUG_MEMORY_CLASS_COUNT]){[SNUG_MEMORY_HOST] = {0, 1 << 20}},
        .metrics = &(const snug_metrics){0},
        .total = {0, 5 << 20},
        .device = "NVIDIA H200",
        .device_method = "made up",
        .device_others = "",
        .rank_count = 2,
        .ranks = (const snug_rank_use[]){{"node1", "NVIDIA H200", {4 << 20, 5 << 20}}, {"node2", NULL, {0, -1}}}};
    char *text;
    for (int others = 0; others < 2; others++) {
        if (others) result.device_others = "4711 python 990.0 MiB";
        assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
        expect(text, " 0 steps/s\n"); /* no FLOPs were counted */
        expect(text,
               "Skipped    3 steps, whose fp16 gradients were not finite; loss scale 4096 at\n           the end\n");
        expect(text, "Not finite the loss of 0 steps, the gradients of 1, which changed no weight\n");
        snug_free(text);
        assert_int_equal(snug_train_result_memory_text(&result, &text), SNUG_OK);
        expect(text, "  host                 0.0         1.0             tokenizer, data, labels\n");
        expect(text,
               "\n     0  node1                NVIDIA H200                          4.0         5.0   +25.00 %\n");
        expect(text, "\n     1  node2                CPU                                  0.0           -\n");
        expect(text, "total is what NVIDIA H200 holds of this process; measured: made up\n");
        assert_int_equal(strstr(text, "other processes on it: 4711 python 990.0 MiB\n") != NULL, others);
        snug_free(text);
    }
}

/* Destroying results without content. */
TEST(test_nothing_to_destroy) {
    snug_gpus_destroy(NULL);
    snug_doctor_destroy(NULL);
    snug_rates_destroy(NULL);
    snug_plan_destroy(NULL);
}

TEST_MAIN(NULL, NULL)
