/* SPDX-License-Identifier: Apache-2.0 */
#include "text/task.h"

#include <string.h>

static const struct snug_task_info *const tasks[] = {
    [SNUG_TASK_CLASSIFICATION] = &snug_task_classification,
    [SNUG_TASK_MLM] = &snug_task_mlm,
    [SNUG_TASK_TOKEN_CLASSIFICATION] = &snug_task_token_classification,
};
_Static_assert(sizeof tasks / sizeof *tasks == SNUG_TASK_COUNT, "every task has a line");

const struct snug_task_info *snug_task_info(enum snug_task task) { return tasks[task]; }

int snug_task_find(const char *name) {
    for (int i = 0; i < SNUG_TASK_COUNT; i++)
        if (strcmp(tasks[i]->name, name) == 0 || (tasks[i]->alias && strcmp(tasks[i]->alias, name) == 0)) return i;
    return -1;
}
