/* SPDX-License-Identifier: Apache-2.0 */
/* Causal LM: the metrics of the next tokens. */
#include "metrics/metrics_impl.h"
#include "metrics/task_results.h"

const struct snug_task_results snug_task_clm_results = {
    .metrics = {&snug_language_model_metrics, &snug_language_model_metrics, &snug_language_model_metrics},
};
