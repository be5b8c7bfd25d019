/* SPDX-License-Identifier: Apache-2.0 */
#include "text/task.h"

#include <stdlib.h>
#include <string.h>

static const struct snug_task_info *const tasks[] = {
    [SNUG_TASK_CLASSIFICATION] = &snug_task_classification,
    [SNUG_TASK_MLM] = &snug_task_mlm,
    [SNUG_TASK_TOKEN_CLASSIFICATION] = &snug_task_token_classification,
};
_Static_assert(sizeof tasks / sizeof *tasks == SNUG_TASK_COUNT, "every task has a line");

const struct snug_task_info *snug_task_info(enum snug_task task) { return tasks[task]; }

snug_status snug_task_count_classes(snug_context *ctx, const struct snug_dataset *dataset,
                                    const struct snug_loader_options *options, int64_t counts[], int64_t *items) {
    struct snug_row_buffer buffer = {0};
    snug_status status = SNUG_OK;
    *items = 0;
    for (int64_t row = 0; row < snug_dataset_rows(dataset) && status == SNUG_OK; row++) {
        struct snug_dataset_row text;
        if (snug_stop_asked(ctx)) /* untested: a signal at this moment */
            status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while the classes of %s were counted",
                               snug_dataset_path(dataset));
        if (status == SNUG_OK) status = snug_dataset_read(ctx, dataset, row, &buffer, &text);
        if (status == SNUG_OK) *items += snug_task_info(options->task)->classes(dataset, options, &text, counts);
    }
    free(buffer.data);
    return status;
}

int snug_task_find(const char *name) {
    for (int i = 0; i < SNUG_TASK_COUNT; i++)
        if (strcmp(tasks[i]->name, name) == 0 || (tasks[i]->alias && strcmp(tasks[i]->alias, name) == 0)) return i;
    return -1;
}
