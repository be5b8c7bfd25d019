/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a model once and classifies each line of standard input: example_classify MODEL_DIR < sentences.txt */
#include <snug.h>
#include <stdio.h>
#include <string.h>

static snug_status print(void *user, const snug_prediction *row) {
    const char *note = row->truncated ? " (the text was cut)" : "";
    fprintf(user, "%s %.4f%s\n", row->label, row->score, note);
    return SNUG_OK;
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: %s MODEL_DIR < sentences.txt\n", argv[0]), 2;
    snug_context *ctx;
    snug_args *args = NULL;
    snug_model *model = NULL;
    char line[8192];
    const char *const texts[] = {line};
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    snug_status status = snug_args_create(ctx, &args);
    if (status == SNUG_OK) status = snug_args_set(args, "model_name_or_path", argv[1]);
    if (status == SNUG_OK) status = snug_model_open(args, &model);
    while (status == SNUG_OK && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        status = snug_model_predict(model, ctx, texts, NULL, 1, print, stdout);
    }
    if (status != SNUG_OK) fprintf(stderr, "%s\n", snug_error_message(ctx));
    snug_model_destroy(model);
    snug_args_destroy(args);
    snug_context_destroy(ctx);
    return status != SNUG_OK;
}
