/* SPDX-License-Identifier: Apache-2.0 */
/* Fine-tunes a model in one call: example_train MODEL_DIR train.csv dev.csv OUTPUT_DIR */
#include <snug.h>
#include <stdio.h>

static void on_log(void *user, snug_log_level level, const char *message) {
    fprintf(user, "%s%s\n", level >= SNUG_LOG_WARNING ? "warning: " : "", message);
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: %s MODEL_DIR train.csv dev.csv OUTPUT_DIR\n", argv[0]), 2;
    const char *settings[][2] = {
        {"model_name_or_path", argv[1]}, {"train_file", argv[2]},    {"validation_file", argv[3]},
        {"output_dir", argv[4]},         {"eval_strategy", "epoch"}, {"per_device_train_batch_size", "32"},
        {"num_train_epochs", "3"},       {"learning_rate", "5e-5"},
    };
    snug_context *ctx;
    snug_args *args = NULL;
    snug_train_result *result = NULL;
    char *summary = NULL;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    snug_context_set_log(ctx, on_log, stderr, SNUG_LOG_INFO);
    snug_status status = snug_args_create(ctx, &args);
    for (size_t i = 0; i < sizeof settings / sizeof *settings && status == SNUG_OK; i++)
        status = snug_args_set(args, settings[i][0], settings[i][1]);
    if (status == SNUG_OK) status = snug_train(args, NULL, &result);
    if (status == SNUG_OK) status = snug_train_result_text(result, &summary);
    if (status == SNUG_OK)
        fputs(summary, stdout);
    else
        fprintf(stderr, "%s\n", snug_error_message(ctx));
    snug_free(summary);
    snug_train_result_destroy(result);
    snug_args_destroy(args);
    snug_context_destroy(ctx);
    return status != SNUG_OK;
}
