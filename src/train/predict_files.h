/* SPDX-License-Identifier: Apache-2.0 */
/* What predict writes into --output_dir, as the scripts of transformers do: predict_results.txt (index, tab,
 * prediction), for token classification predictions.txt (a line of tags per row), and predict_results.json with the
 * metrics. */
#ifndef SNUG_TRAIN_PREDICT_FILES_H
#define SNUG_TRAIN_PREDICT_FILES_H

#include "args/args.h"
#include "io/file.h"
#include "metrics/metrics.h"
#include "metrics/task_results.h"
#include "train/output.h"

struct snug_predict_files {
    bool written; /* --output_dir is given */
    bool open;
    const struct snug_task_results *task;
    struct snug_output output;
    struct snug_writer writer;
};

/* Before any work: whether the files can be written. */
snug_status snug_predict_files_check(const struct snug_args *args, struct snug_predict_files *files);
/* Makes the folder, and begins the task's file. mode: permissions of files made in it. */
snug_status snug_predict_files_begin(const struct snug_args *args, mode_t mode, const struct snug_task_results *task,
                                     struct snug_predict_files *files);
/* Adds a row to the file, which must be open. */
void snug_predict_files_add(struct snug_predict_files *files, int64_t index, const char *text);
/* Completes the file, and writes metrics, whose names begin with "predict_", if there are any. */
snug_status snug_predict_files_end(struct snug_predict_files *files, const struct snug_metric_list *metrics);
void snug_predict_files_close(struct snug_predict_files *files);

#endif
