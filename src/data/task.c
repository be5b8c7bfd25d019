/* SPDX-License-Identifier: Apache-2.0 */
#include "data/task.h"

#include <string.h>

#include "data/dataset.h"

#define ADDRESS_OF(NAME, name, others) &snug_task_##name,
static const struct snug_task_info *const tasks[] = {SNUG_TASKS(ADDRESS_OF)};

#define NAMES_OF(NAME, name, others) {#name, #name others},
static const struct { const char *name, *all; } names[] = {SNUG_TASKS(NAMES_OF)};

const struct snug_task_info *snug_task_info(enum snug_task task) { return tasks[task]; }

const char *snug_task_name(enum snug_task task) { return names[task].name; }

double snug_task_positions(const struct snug_task_info *task, const struct snug_loader_options *options,
                           const struct snug_dataset *dataset, double sequences, double tokens) {
    if (task->positions) return task->positions(options, dataset, sequences, tokens);
    return snug_task_is_per_token(task) ? tokens : sequences;
}

double snug_causal_positions(const struct snug_loader_options *options, const struct snug_dataset *dataset,
                             double sequences, double tokens) {
    (void)options;
    if (!dataset) return tokens - sequences;
    return tokens * (double)snug_dataset_losses(dataset) / (double)snug_dataset_tokens(dataset);
}

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
