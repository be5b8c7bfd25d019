/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"

static double length_of(struct snug_matrix x, int64_t row) {
    double squares = 0;
    for (int64_t c = 0; c < x.cols; c++) squares += load(x, row, c) * load(x, row, c);
    return sqrt(squares);
}

snug_status snug_reference_normalize(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix x = snug_matrix_of(run, op->normalize.x), y = snug_matrix_of(run, op->normalize.y);
    for (int64_t row = 0; row < y.rows; row++) {
        const double divisor = op->normalize.unit ? fmax(length_of(x, row), (double)SNUG_NORMALIZE_LEAST) : 1;
        for (int64_t c = 0; c < y.cols; c++) store(y, row, c, load(x, row, c) / divisor);
    }
    return SNUG_OK;
}

snug_status snug_reference_normalize_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_normalize_backward *n = &op->normalize_backward;
    const struct snug_matrix dy = snug_matrix_of(run, n->dy), x = snug_matrix_of(run, n->x),
                             dx = snug_matrix_of(run, n->dx);
    for (int64_t row = 0; row < dx.rows; row++) {
        const double length = length_of(x, row), least = (double)SNUG_NORMALIZE_LEAST;
        const double divisor = n->unit ? fmax(length, least) : 1;
        double along = 0; /* y . dy / |x| */
        for (int64_t c = 0; c < x.cols && n->unit && length > least; c++)
            along += load(x, row, c) * load(dy, row, c) / (length * length);
        for (int64_t c = 0; c < x.cols; c++) store(dx, row, c, (load(dy, row, c) - load(x, row, c) * along) / divisor);
    }
    return SNUG_OK;
}
