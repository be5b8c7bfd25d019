/* SPDX-License-Identifier: Apache-2.0 */
/* The final summary prints the figures of the result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "snug.h"

static void expect(const char *text, const char *says) {
    if (!strstr(text, says)) fail_msg("\"%s\" is not in:\n%s", says, text);
}

static void test_summary(void **state) {
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
    };
    char *text;
    (void)state;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "Time: 6:31 min (first step after 0.25 s)\n");
    expect(text, "Samples/second: 512.00 (16.00 steps/s, 10.0 GFLOP/s)\n");
    expect(text, "Memory occupied: 101.0 MiB\n");
    expect(text, "60 steps, 3.00 epochs, 1920 samples, 44000 tokens; loss 0.3300\n");
    expect(text, "Padding avoided: 62.5 %");
    expect(text, "Truncated: 3 texts");
    expect(text, "eval_accuracy: 0.9100\n");
    expect(text, "Best checkpoint: out/checkpoint-40\n");
    expect(text, "  weights              1.0         1.0    +0.00 %\n");
    expect(text, "  context              2.0           -\n");
    expect(text, "  total              100.0       101.0    +1.00 %\n");
    assert_null(strstr(text, "gradients")); /* a class without tensors */
    snug_free(text);
}

static void test_summary_without_figures(void **state) {
    snug_train_result result = {.total = {1 << 20, -1}, .metrics = &(const snug_metrics){0}};
    char *text;
    (void)state;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "Time: 0.00 s");
    snug_free(text);
    result.seconds = 7262;
    assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
    expect(text, "Time: 2:01:02 h");
    expect(text, "Memory occupied: 1.0 MiB\n"); /* the planned figure, where it cannot be measured */
    assert_null(strstr(text, "Truncated"));
    assert_null(strstr(text, "Best checkpoint"));
    snug_free(text);
}

static void test_summary_of_a_gpu(void **state) {
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
    (void)state;
    for (int others = 0; others < 2; others++) {
        if (others) result.device_others = "4711 python 990.0 MiB";
        assert_int_equal(snug_train_result_text(&result, &text), SNUG_OK);
        expect(text, "(0.00 steps/s)\n"); /* no FLOPs were counted */
        expect(text, "Skipped: 3 steps, whose fp16 gradients were not finite; loss scale 4096 at the end\n");
        expect(text, "NaN or infinite: the loss of 0 steps, the gradients of 1");
        expect(text, "  host                 0.0         1.0\n");
        expect(text,
               "\n     0  node1                NVIDIA H200                          4.0         5.0   +25.00 %\n");
        expect(text, "\n     1  node2                CPU                                  0.0           -\n");
        expect(text, "total is what NVIDIA H200 holds of this process, without host; measured: made up\n");
        assert_int_equal(strstr(text, "other processes on it: 4711 python 990.0 MiB\n") != NULL, others);
        snug_free(text);
    }
}

/* Destroying results without content. */
static void test_nothing_to_destroy(void **state) {
    (void)state;
    snug_gpus_destroy(NULL);
    snug_doctor_destroy(NULL);
    snug_rates_destroy(NULL);
    snug_plan_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_summary_without_figures),
        cmocka_unit_test(test_summary_of_a_gpu),
        cmocka_unit_test(test_nothing_to_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
