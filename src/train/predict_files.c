/* SPDX-License-Identifier: Apache-2.0 */
#include "train/predict_files.h"

#include <stdio.h>
#include <string.h>

#include "train/results.h"

snug_status snug_predict_files_check(const struct snug_args *args, struct snug_predict_files *files) {
    files->written = snug_args_is_set(args, "output_dir") && args->output_dir;
    if (!files->written) return SNUG_OK;
    RETURN_IF_ERROR(snug_folder_check(args->ctx, args->output_dir));
    RETURN_IF_ERROR(snug_output_open(args->ctx, args->output_dir, false, args->overwrite_output_dir, &files->output));
    const char *names[SNUG_TASK_COUNT * 5 + 2] = {"predict_results.json"};
    for (int task = 0, count = 1; task < SNUG_TASK_COUNT; task++) {
        const struct snug_task_results *results = snug_task_results((enum snug_task)task);
        if (results->file) names[count++] = results->file;
        for (const char *const *more = results->more_files; *more; more++) names[count++] = *more;
    }
    return snug_output_check(&files->output, names);
}

snug_status snug_predict_files_begin(const struct snug_args *args, mode_t mode, const struct snug_task_results *task,
                                     struct snug_predict_files *files) {
    if (!files->written) return SNUG_OK;
    files->task = task;
    RETURN_IF_ERROR(
        snug_output_make(args->ctx, args->output_dir, false, args->overwrite_output_dir, mode, &files->output));
    if (!task->file) return snug_output_begin(&files->output, task->more_files);
    RETURN_IF_ERROR(snug_output_begin(&files->output, (const char *const[]){files->task->file, NULL}));
    RETURN_IF_ERROR(snug_writer_open(args->ctx, &files->output.folder, files->task->file, &files->writer));
    files->open = true;
    if (task->columns) snug_writer_put(&files->writer, task->columns, strlen(task->columns));
    return SNUG_OK;
}

/* A line for each row, whatever characters a class's name has. */
void snug_predict_files_add(struct snug_predict_files *files, int64_t index, const char *text) {
    char piece[256];
    snprintf(piece, sizeof piece, "%lld\t", (long long)index);
    if (files->task->columns) snug_writer_put(&files->writer, piece, strlen(piece));
    for (const char *end = text + strlen(text); text < end;) {
        text += snug_escape(piece, sizeof piece, text, (size_t)(end - text));
        snug_writer_put(&files->writer, piece, strlen(piece));
    }
    snug_writer_put(&files->writer, "\n", 1);
}

snug_status snug_predict_files_end(struct snug_predict_files *files, const struct snug_metric_list *metrics) {
    if (!files->written) return SNUG_OK;
    if (files->open) RETURN_IF_ERROR(snug_writer_commit(files->output.ctx, &files->writer));
    files->open = false;
    return metrics->count ? snug_results_write(&files->output, "predict", metrics, NULL)
                          : snug_output_end(&files->output);
}

void snug_predict_files_close(struct snug_predict_files *files) {
    if (files->open) snug_writer_abandon(&files->writer);
    snug_output_close(&files->output);
}
