/* SPDX-License-Identifier: Apache-2.0 */
#include "data/positions.h"

#include "data/dataset.h"

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
