/* SPDX-License-Identifier: Apache-2.0 */
/* The result files as transformers' Trainer writes them: <split>_results.json, and all_results.json, which has all of
 * them.
 */
#ifndef SNUG_TRAIN_RESULTS_H
#define SNUG_TRAIN_RESULTS_H

#include <jansson.h>

#include "metrics/metrics.h"
#include "train/output.h"

/* Writes metrics (with more, an object of further values, or NULL) as <split>_results.json and merges them into
   all_results.json, which those of split "train" begin. A value that is not finite is written as null, because JSON has
   no NaN. */
snug_status snug_results_write(struct snug_output *output, const char *split, const struct snug_metric_list *metrics,
                               json_t *more);

#endif
