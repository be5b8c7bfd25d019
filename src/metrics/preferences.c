/* SPDX-License-Identifier: Apache-2.0 */
/* Rewards and log-probabilities of pairs, as DPOTrainer names them: means over the pairs. */
#include "metrics/metrics_impl.h"

/* The sums come from snug_metric_accumulator_add_results(). */
static void add(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                const struct snug_batch *batch) {
    (void)batch;
    accumulator->rows += chunk->rows;
}

static void result(struct snug_metric_accumulator *accumulator, double *values) {
    for (int i = 0; i < SNUG_PREFERENCE_RESULTS; i++)
        values[1 + i] = accumulator->results[i] / accumulator->loss_weight; /* NaN without pairs */
}

const struct snug_metric_kind snug_preference_metrics = {
    .names = {"eval_loss", "eval_rewards/chosen", "eval_rewards/rejected", "eval_rewards/accuracies",
              "eval_rewards/margins", "eval_logps/chosen", "eval_logps/rejected"},
    .main = 1 + SNUG_REWARDS_ACCURACIES,
    .add = add,
    .result = result,
};
