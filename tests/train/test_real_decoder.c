/* SPDX-License-Identifier: Apache-2.0 */
/* A real decoder, SmolLM2-135M-Instruct, which $SNUG_MODELS has, beside transformers. */
#include <math.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void find_real_decoder(char folder[PATH_MAX]) {
    const char *models = getenv("SNUG_MODELS");
    snprintf(folder, PATH_MAX, "%s/smollm2", models ? models : "");
    if (models && snug_folder_exists(folder)) return;
    print_message("skipped: $SNUG_MODELS has no smollm2, a SmolLM2-135M-Instruct\n");
    skip();
}

/* The loss of a text in transformers. */
FIXTURE_TEST(test_real_decoder) {
    char folder[PATH_MAX], words[PATH_MAX + 128];
    find_real_decoder(folder);
    write_text(
        f, "facts.txt",
        "The capital of France is Paris, and the capital of Italy is Rome. Water boils at 100 degrees Celsius at "
        "sea level, and freezes at 0 degrees. She opened the door slowly and looked out at the empty street.");
    snprintf(words, sizeof words, "model_name_or_path=%s validation_file=@facts.txt block_size=48", folder);
    snug_args *args = plain_args(f, words);
    snug_metrics metrics = {0};
    if (evaluate_args(f, args, NULL, &metrics) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    snug_args_destroy(args);
    assert_true(fabs(metric_of(&metrics, "eval_loss") - 2.3384) < 1e-4);
    assert_true(fabs(metric_of(&metrics, "eval_accuracy") - 24.0 / 47) < 1e-9);
}

static void write_chats(const struct fixture *f, int rows) {
    static const char *const subjects[] = {"sea", "sky", "old house", "night train", "garden"};
    FILE *file = fopen(path_of(f, "chats.jsonl"), "w");
    assert_non_null(file);
    for (int row = 0; row < rows; row++) {
        const char *subject = subjects[row % 5];
        fprintf(file, "{\"messages\": [");
        if (row % 3 == 0) fprintf(file, "{\"role\": \"system\", \"content\": \"You speak in verse.\"}, ");
        fprintf(file,
                "{\"role\": \"user\", \"content\": \"Say line %d of the %s.\"}, {\"role\": \"assistant\", \"content\": "
                "\"The %s is %d, and so am I.\"}",
                row, subject, subject, row * 7 % 10);
        if (row % 4 == 0)
            fprintf(file, ", {\"role\": \"user\", \"content\": \"Once more?\"}, {\"role\": \"assistant\", \"content\": "
                          "\"Never.\"}");
        fprintf(file, "]}\n");
    }
    assert_int_equal(fclose(file), 0);
}

/* The first losses of a fine-tuning on chats in transformers (tools/golden/chat_losses.py). */
FIXTURE_TEST(test_real_chats) {
    static const double losses[] = {2.248587, 2.097466, 1.424700, 1.317636, 1.078026, 0.903488, 0.720639,
                                    0.575419, 0.455789, 0.431540, 0.428283, 0.276888, 0.248642, 0.275845,
                                    0.190973, 0.298526, 0.142935, 0.193770, 0.145480, 0.183348};
    enum { REAL_STEPS = sizeof losses / sizeof *losses };
    char folder[PATH_MAX], words[PATH_MAX + 512];
    find_real_decoder(folder);
    if (SANITIZED) skip();
    write_chats(f, 2 * REAL_STEPS);
    snprintf(words, sizeof words,
             "config_name= tokenizer_name= model_name_or_path=%s task=clm train_file=@chats.jsonl validation_file= "
             "assistant_only_loss=True per_device_train_batch_size=2 max_steps=%d learning_rate=2e-5 weight_decay=0 "
             "lr_scheduler_type=constant logging_strategy=steps logging_steps=1 train_sampling_strategy=sequential "
             "max_seq_length=1024 dtype=float32 save_strategy=no eval_strategy=no",
             folder, REAL_STEPS);
    train(f, "out", words);
    json_t *history = history_of(f, "out");
    for (size_t i = 0; i < REAL_STEPS; i++) {
        const double loss = json_number_value(json_object_get(json_array_get(history, i), "loss"));
        if (!(fabs(loss - losses[i]) < 1e-4)) fail_msg("step %zu: loss %.6f, expected %.6f", i + 1, loss, losses[i]);
    }
    json_decref(history);
}

TEST_MAIN(NULL, NULL)
