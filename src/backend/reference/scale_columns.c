/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"

snug_status snug_reference_row_lengths(struct snug_run *run, const struct snug_op *op) {
    const struct snug_row_lengths *l = &op->row_lengths;
    const struct snug_matrix w = snug_matrix_of(run, l->w), a = snug_matrix_of(run, l->a),
                             b = snug_matrix_of(run, l->b), inverse = snug_matrix_of(run, l->inverse);
    for (int64_t n = 0; n < inverse.cols; n++) {
        double squares = 0;
        for (int64_t i = 0; i < a.cols; i++) {
            double value = l->transposed ? load(w, i, n) : load(w, n, i);
            for (int64_t k = 0; k < a.rows; k++) value += (double)l->scale * load(b, n, k) * load(a, k, i);
            squares += value * value;
        }
        store(inverse, 0, n, 1 / sqrt(squares));
    }
    return SNUG_OK;
}

snug_status snug_reference_scale_columns(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale_columns *s = &op->scale_columns;
    const struct snug_matrix x = snug_matrix_of(run, s->x), m = snug_matrix_of(run, s->m),
                             inverse = snug_matrix_of(run, s->inverse), b = snug_matrix_of(run, s->b),
                             addend = snug_matrix_of(run, s->addend), y = snug_matrix_of(run, s->y);
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t c = 0; c < y.cols; c++)
            store(y, row, c,
                  load(x, row, c) * load(m, 0, c) * load(inverse, 0, c) + load_or_0(b, c) +
                      (addend.data ? load(addend, row, c) : 0));
    return SNUG_OK;
}

snug_status snug_reference_scale_columns_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_scale_columns_backward *s = &op->scale_columns_backward;
    const struct snug_matrix dy = snug_matrix_of(run, s->dy), x = snug_matrix_of(run, s->x),
                             m = snug_matrix_of(run, s->m), inverse = snug_matrix_of(run, s->inverse),
                             dx = snug_matrix_of(run, s->dx), dm = snug_matrix_of(run, s->dm),
                             db = snug_matrix_of(run, s->db);
    for (int64_t c = 0; c < dy.cols; c++) {
        double products = 0, sum = 0;
        for (int64_t row = 0; row < dy.rows; row++) {
            const double d = load(dy, row, c);
            products += d * load(x, row, c);
            sum += d;
            store(dx, row, c, d * load(m, 0, c) * load(inverse, 0, c));
        }
        if (dm.data) add_sum(dm, 0, c, products * load(inverse, 0, c), snug_run_overwrites(run, op));
        if (db.data) add_sum(db, 0, c, sum, snug_run_overwrites(run, op));
    }
    return SNUG_OK;
}
