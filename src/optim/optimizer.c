/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/optimizer.h"

#define ADDRESS_OF(KIND, name, member) &snug_optimizer_##name,
const struct snug_optimizer_info *const snug_optimizers[] = {SNUG_OPTIMIZERS(ADDRESS_OF) NULL};

void snug_state_size(const struct snug_state *state, const struct snug_weight *weight, int64_t *rows, int64_t *cols) {
    const int64_t elements = weight->rows * weight->cols / weight->segments;
    *rows = weight->segments;
    switch (state->shape) {
    case SNUG_STATE_LIKE: *rows = weight->rows, *cols = weight->cols; break;
    case SNUG_STATE_ROWS: *cols = weight->rows / weight->segments; break;
    case SNUG_STATE_COLUMNS: *cols = weight->cols; break;
    case SNUG_STATE_BLOCKS: *cols = (elements + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK; break;
    }
}

double snug_optimizer_rate(const struct snug_optimizer *optimizer, double scheduled, int64_t step) {
    return optimizer->info->rate ? optimizer->info->rate(optimizer, scheduled, step) : scheduled;
}
