/* SPDX-License-Identifier: Apache-2.0 */
/* a = f(u + b), element by element. */
#include "backend/reference/functions.h"

/* The argument of f: u with its column's bias. */
static double biased(struct snug_matrix u, struct snug_matrix b, int64_t row, int64_t c) {
    return load(u, row, c) + (b.data ? load(b, 0, c) : 0);
}

snug_status snug_reference_activation(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix u = snug_matrix_of(run, op->activation.u), b = snug_matrix_of(run, op->activation.b);
    struct snug_matrix a = snug_matrix_of(run, op->activation.a);
    for (int64_t row = 0; row < u.rows; row++)
        for (int64_t c = 0; c < u.cols; c++)
            store(a, row, c, activation(op->activation.function, biased(u, b, row, c)));
    return SNUG_OK;
}

snug_status snug_reference_activation_backward(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix da = snug_matrix_of(run, op->activation_backward.da),
                       u = snug_matrix_of(run, op->activation_backward.u);
    struct snug_matrix b = snug_matrix_of(run, op->activation_backward.b);
    struct snug_matrix du = snug_matrix_of(run, op->activation_backward.du),
                       a = snug_matrix_of(run, op->activation_backward.a);
    for (int64_t row = 0; row < u.rows; row++)
        for (int64_t c = 0; c < u.cols; c++) {
            const double x = biased(u, b, row, c);
            store(du, row, c, load(da, row, c) * derivative(op->activation_backward.function, x));
            if (a.data) store(a, row, c, activation(op->activation_backward.function, x));
        }
    return SNUG_OK;
}
