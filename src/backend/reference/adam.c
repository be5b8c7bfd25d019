/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.AdamW (Loshchilov and Hutter, arXiv:1711.05101) and Adam (Kingma and Ba, arXiv:1412.6980). */
#include "backend/reference/adam.h"

snug_status snug_reference_adam(struct snug_run *run, const struct snug_op *op) {
    if (is_skipped(run)) return SNUG_OK;
    const struct snug_matrix g = snug_matrix_of(run, op->update.g);
    for (int64_t row = 0; row < g.rows; row++) adam_row(run, op, row, g, row, clip_of(run, op));
    return SNUG_OK;
}
