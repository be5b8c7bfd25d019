/* SPDX-License-Identifier: Apache-2.0 */
/* The list of the tasks. */
#ifndef SNUG_TEXT_TASKS_H
#define SNUG_TEXT_TASKS_H

enum snug_task { SNUG_TASK_CLASSIFICATION, SNUG_TASK_MLM, SNUG_TASK_TOKEN_CLASSIFICATION };
enum { SNUG_TASK_COUNT = SNUG_TASK_TOKEN_CLASSIFICATION + 1, SNUG_TASK_DEFAULT = SNUG_TASK_CLASSIFICATION };

/* How Hugging Face names and distinguishes them (config.problem_type). */
enum snug_problem { SNUG_PROBLEM_SINGLE_LABEL, SNUG_PROBLEM_MULTI_LABEL, SNUG_PROBLEM_REGRESSION };

#endif
