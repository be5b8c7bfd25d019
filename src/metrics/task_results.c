/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/task_results.h"

#define ADDRESS_OF(NAME, name, others) &snug_task_##name##_results,
static const struct snug_task_results *const results[] = {SNUG_TASKS(ADDRESS_OF)};

const struct snug_task_results *snug_task_results(enum snug_task task) { return results[task]; }
