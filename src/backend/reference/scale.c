/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"

snug_status snug_reference_scale(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale *s = &op->scale;
    const struct snug_matrix x = snug_matrix_of(run, s->x), addend = snug_matrix_of(run, s->addend),
                             y = snug_matrix_of(run, s->y);
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c++) {
            const double scaled = (double)s->scale * load(x, row, c), cap = (double)s->softcap;
            const double capped = cap > 0 ? cap * tanh(scaled / cap) : scaled;
            store(y, row, c, capped + (addend.data ? load(addend, row, c) : 0));
        }
    return SNUG_OK;
}

/* dx = dy scale (1 - (y / softcap)^2) */
snug_status snug_reference_scale_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale_backward *s = &op->scale_backward;
    const struct snug_matrix dy = snug_matrix_of(run, s->dy), y = snug_matrix_of(run, s->y),
                             dx = snug_matrix_of(run, s->dx);
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c++) {
            const double t = load(y, row, c) / (double)s->softcap;
            store(dx, row, c, load(dy, row, c) * (double)s->scale * (1 - t * t));
        }
    return SNUG_OK;
}
