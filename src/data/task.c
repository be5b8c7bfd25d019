/* SPDX-License-Identifier: Apache-2.0 */
#include "data/task.h"

#include <string.h>

#define ADDRESS_OF(NAME, name, others) &snug_task_##name,
static const struct snug_task_info *const tasks[] = {SNUG_TASKS(ADDRESS_OF)};

#define NAMES_OF(NAME, name, others) {#name, #name others},
static const struct { const char *name, *all; } names[] = {SNUG_TASKS(NAMES_OF)};

const struct snug_task_info *snug_task_info(enum snug_task task) { return tasks[task]; }

const char *snug_task_name(enum snug_task task) { return names[task].name; }

const char *snug_problem_name(enum snug_problem problem) {
    static const char *const problems[SNUG_PROBLEM_COUNT] = {"single_label_classification",
                                                             "multi_label_classification", "regression"};
    return problems[problem];
}

int snug_task_find(const char *name) {
    const size_t length = strlen(name);
    for (int i = 0; i < SNUG_TASK_COUNT; i++)
        for (const char *at = names[i].all; *at; at += strcspn(at, "|"), at += *at == '|')
            if (strcspn(at, "|") == length && strncmp(at, name, length) == 0) return i;
    return -1;
}
