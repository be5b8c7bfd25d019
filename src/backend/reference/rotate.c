/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: see struct snug_rotation. */
#include "backend/reference/reference.h"

void snug_reference_rotate_row(struct snug_matrix y, struct snug_matrix x, int64_t row, int64_t column, int64_t heads,
                               int64_t head_dim, const struct snug_rotation *r, double position, double factor) {
    for (int64_t head = 0; head < heads; head++)
        for (int64_t c = 0; c < r->pairs; c++) {
            const int64_t a = column + head * head_dim + (r->neighbours ? 2 * c : c);
            const int64_t b = a + (r->neighbours ? 1 : r->pairs);
            const double angle = position * r->frequencies[c];
            const double cosine = factor * cos(angle), sine = factor * sin(angle);
            const double left = load(x, row, a), right = load(x, row, b);
            store(y, row, a, left * cosine - right * sine);
            store(y, row, b, right * cosine + left * sine);
        }
}

snug_status snug_reference_rotate(struct snug_run *run, const struct snug_op *op) {
    const struct snug_rotate *o = &op->rotate;
    const struct snug_rotation *r = &run->program->rotations[o->rotation];
    const struct snug_matrix x = snug_matrix_of(run, o->x), y = snug_matrix_of(run, o->y);
    for (int64_t row = 0; row < x.rows; row++) {
        const int64_t place = run->batch->positions[snug_run_token(run, o->x, row)];
        const double position = o->back ? -(double)place : (double)place;
        for (int64_t c = 0; x.data != y.data && c < x.cols; c++) store(y, row, c, load(x, row, c));
        snug_reference_rotate_row(y, x, row, 0, o->heads, o->head_dim, r, position, snug_rotation_factor(r, place));
    }
    return SNUG_OK;
}
