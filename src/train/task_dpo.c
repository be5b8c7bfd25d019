/* SPDX-License-Identifier: Apache-2.0 */
/* Preference tuning: the rewards of pairs. */
#include "metrics/metrics_impl.h"
#include "metrics/task_results.h"

const struct snug_task_results snug_task_dpo_results = {
    .metrics = {&snug_preference_metrics, &snug_preference_metrics, &snug_preference_metrics},
};
