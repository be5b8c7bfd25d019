/* SPDX-License-Identifier: Apache-2.0 */
/* Training with each optimizer: it learns, resumes after an interruption with the same bits, and refuses another's
   states. */
#include <math.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static const char *const optimizers[] = {
    "optim=adamw_torch learning_rate=3e-3 weight_decay=0.01",
    "optim=adam learning_rate=2e-3 weight_decay=1e-5",
    "optim=sgd learning_rate=0.3 optim_args=momentum=0.9",
    "optim=sgd learning_rate=0.3 optim_args=momentum=0.9,nesterov=True",
    "optim=adagrad learning_rate=2e-2 optim_args=initial_accumulator_value=0.01",
    "optim=rmsprop learning_rate=1e-3 optim_args=centered=True,momentum=0.5",
    "optim=adafactor learning_rate=3e-3",
    "optim=adafactor learning_rate=3e-3 optim_args=beta1=0.9 weight_decay=0.01",
    "optim=lion_32bit learning_rate=1e-3 weight_decay=0.01",
};
#define OPTIMIZERS (sizeof optimizers / sizeof *optimizers)

/* The others leave this small model's plateau late or not at all in so few steps: test_optimizers covers them. */
static bool learns(const char *optimizer) {
    return strstr(optimizer, "optim=adam") || strstr(optimizer, "rmsprop") || strstr(optimizer, "adafactor");
}

FIXTURE_TEST(test_adaptive_optimizers_learn) {
    for (size_t i = 0; i < OPTIMIZERS; i++) {
        if (!learns(optimizers[i])) continue;
        char words[256];
        snprintf(words, sizeof words, "%s num_train_epochs=12 warmup_steps=0.1 validation_file=@dev.csv",
                 optimizers[i]);
        const snug_train_result result = train(f, "out", words);
        const double accuracy = metric_of(result.metrics, "eval_accuracy");
        if (accuracy < 0.9) fail_msg("%s: accuracy %g", optimizers[i], accuracy);
    }
}

/* Interrupted before and after the first steps of every optimizer, with another number of threads. */
FIXTURE_TEST(test_each_resumes) {
    static const int stops[] = {1, 13};
    for (size_t i = 0; i < OPTIMIZERS; i++) {
        char words[256], more[300];
        snprintf(words, sizeof words, "%s save_strategy=steps save_steps=1000", optimizers[i]);
        train(f, "whole", words);
        for (size_t k = 0; k < sizeof stops / sizeof *stops; k++) {
            assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "cut")), SNUG_OK);
            assert_int_equal(try_train(f, "cut", words, stops[k], NULL), SNUG_E_INTERRUPTED);
            snprintf(more, sizeof more, "%s resume_from_checkpoint=True threads=1", words);
            train(f, "cut", more);
            assert_same_file(f, path_of(f, "whole/model.safetensors"), path_of(f, "cut/model.safetensors"));
            assert_same_file(f, path_of(f, "whole/checkpoint-20/optimizer.safetensors"),
                             path_of(f, "cut/checkpoint-20/optimizer.safetensors"));
        }
    }
}

FIXTURE_TEST(test_another_optimizer_is_refused) {
    assert_int_equal(try_train(f, "cut", "optim=adamw_torch save_strategy=steps", 7, NULL), SNUG_E_INTERRUPTED);
    assert_int_equal(try_train(f, "cut", "optim=sgd optim_args=momentum=0.9 resume_from_checkpoint=True", 0, NULL),
                     SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "optim was \"adamw_torch\" and is \"sgd\"");
    /* The two names of one optimizer are equal; L2 instead of decoupled decay has the same states, but is a change. */
    f->log[0] = '\0';
    assert_int_equal(try_train(f, "cut", "optim=adamw_torch_fused resume_from_checkpoint=True", 8, NULL),
                     SNUG_E_INTERRUPTED);
    assert_null(strstr(f->log, "optim was"));
    assert_int_equal(try_train(f, "cut", "optim=adam resume_from_checkpoint=True", 9, NULL), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "optim was \"adamw_torch\" and is \"adam\"");
}

/* The logged rate is Adafactor's own: min(1e-2, 1 / sqrt(t)), or 1e-6 t during warm-up. */
FIXTURE_TEST(test_relative_steps) {
    static const double rates[] = {1e-2, 3e-6};
    for (int warms = 0; warms < 2; warms++) {
        char words[512];
        snprintf(words, sizeof words,
                 "config_name=@model tokenizer_name=@model train_file=@train.csv per_device_train_batch_size=8 "
                 "max_steps=4 save_strategy=no logging_steps=1 threads=1 optim=adafactor "
                 "optim_args=scale_parameter=True,relative_step=True%s",
                 warms ? ",warmup_init=True" : "");
        snug_args *args = plain_args(f, words);
        snug_train_result result;
        assert_int_equal(snug_args_set(args, "output_dir", path_of(f, "out")), SNUG_OK);
        if (train_args(f, args, NULL, &result) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        snug_args_destroy(args);
        json_t *trained = read_json(f, path_of(f, "out/trainer_state.json"));
        const json_t *third = json_array_get(json_object_get(trained, "log_history"), 2);
        assert_true(fabs(json_number_value(json_object_get(third, "learning_rate")) / rates[warms] - 1) < 1e-12);
        json_decref(trained);
    }
}

TEST_MAIN(NULL, NULL)
