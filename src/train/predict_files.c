/* SPDX-License-Identifier: Apache-2.0 */
#include "train/predict_files.h"

#include <stdio.h>
#include <string.h>

#include "train/results.h"

static const char *const names[] = {"predict_results.txt", "predictions.txt", "predict_results.json", NULL};

snug_status snug_predict_files_check(const struct snug_args *args, struct snug_predict_files *files) {
    files->written = snug_args_is_set(args, "output_dir") && args->output_dir;
    if (!files->written) return SNUG_OK;
    RETURN_IF_ERROR(snug_folder_check(args->ctx, args->output_dir));
    RETURN_IF_ERROR(snug_output_open(args->ctx, args->output_dir, false, args->overwrite_output_dir, &files->output));
    return snug_output_check(&files->output, names);
}

snug_status snug_predict_files_begin(const struct snug_args *args, mode_t mode, bool words,
                                     struct snug_predict_files *files) {
    if (!files->written) return SNUG_OK;
    files->name = names[words];
    RETURN_IF_ERROR(
        snug_output_make(args->ctx, args->output_dir, false, args->overwrite_output_dir, mode, &files->output));
    RETURN_IF_ERROR(snug_output_begin(&files->output, (const char *const[]){files->name, NULL}));
    RETURN_IF_ERROR(snug_writer_open(args->ctx, &files->output.folder, files->name, &files->writer));
    files->open = true;
    if (!words) snug_writer_put(&files->writer, "index\tprediction\n", strlen("index\tprediction\n"));
    return SNUG_OK;
}

void snug_predict_files_add(struct snug_predict_files *files, bool words, bool value, const snug_prediction *row) {
    char text[64];
    if (!files->open) return;
    snprintf(text, sizeof text, "%lld\t", (long long)row->index);
    if (!words) snug_writer_put(&files->writer, text, strlen(text));
    if (value) snprintf(text, sizeof text, "%3.3f", row->score); /* as the scripts write it */
    const char *label = value ? text : row->label;
    snug_writer_put(&files->writer, label, strlen(label));
    snug_writer_put(&files->writer, "\n", 1);
}

snug_status snug_predict_files_end(struct snug_predict_files *files, const struct snug_metric_list *metrics) {
    if (!files->open) return SNUG_OK;
    files->open = false;
    RETURN_IF_ERROR(snug_writer_commit(files->output.ctx, &files->writer));
    return metrics->count ? snug_results_write(&files->output, "predict", metrics, NULL)
                          : snug_output_end(&files->output);
}

void snug_predict_files_close(struct snug_predict_files *files) {
    if (files->open) snug_writer_abandon(&files->writer);
    snug_output_close(&files->output);
}
