/* SPDX-License-Identifier: Apache-2.0 */
/* transformers' Adafactor (Shazeer and Stern, arXiv:1804.04235), one parameter of the stack after the other. */
#include "backend/reference/update.h"

struct parameter {
    const struct snug_run *run;
    const struct snug_op *op;
    int64_t first, rows; /* its rows in the stack */
    int64_t number;      /* in the stack */
    struct snug_matrix p, row_means, column_means, squares;
    double beta2, mean_of_rows;
};

/* The new second moments: means over rows and over columns, or one for each value of a vector. */
static void advance(struct parameter *s) {
    const double epsilon = s->run->optimizer->epsilon;
    s->mean_of_rows = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        double sum = 0;
        for (int64_t c = 0; c < s->p.cols; c++) {
            double square = pow(clipped_gradient(s->run, s->op, s->first + row, c), 2) + epsilon;
            sum += square;
            if (s->op->update.vector)
                store(s->squares, s->first + row, c,
                      s->beta2 * load(s->squares, s->first + row, c) + (1 - s->beta2) * square);
        }
        if (s->op->update.vector) continue;
        double mean = s->beta2 * load(s->row_means, s->number, row) + (1 - s->beta2) * sum / (double)s->p.cols;
        store(s->row_means, s->number, row, mean);
        s->mean_of_rows += mean / (double)s->rows;
    }
    for (int64_t c = 0; !s->op->update.vector && c < s->p.cols; c++) {
        double sum = 0;
        for (int64_t row = 0; row < s->rows; row++)
            sum += pow(clipped_gradient(s->run, s->op, s->first + row, c), 2) + epsilon;
        double mean = s->beta2 * load(s->column_means, s->number, c) + (1 - s->beta2) * sum / (double)s->rows;
        store(s->column_means, s->number, c, mean);
    }
}

/* The update of a value before it is clipped: the gradient by the root of its approximate second moment. */
static double direction(const struct parameter *s, int64_t row, int64_t c) {
    double gradient = clipped_gradient(s->run, s->op, s->first + row, c);
    if (s->op->update.vector) return gradient / sqrt(load(s->squares, s->first + row, c));
    return gradient / sqrt(load(s->row_means, s->number, row) / s->mean_of_rows) /
           sqrt(load(s->column_means, s->number, c));
}

static void update_parameter(struct parameter *s, struct snug_matrix m) {
    const struct snug_optimizer *o = s->run->optimizer;
    const double elements = (double)(s->rows * s->p.cols);
    double squares = 0, update_squares = 0, lr = s->run->learning_rate;
    advance(s);
    for (int64_t row = 0; row < s->rows; row++)
        for (int64_t c = 0; c < s->p.cols; c++) {
            squares += pow(load(s->p, s->first + row, c), 2);
            update_squares += pow(direction(s, row, c), 2);
        }
    if (o->scale_parameter) lr *= fmax(o->epsilon2, sqrt(squares / elements));
    const double divisor = fmax(1, sqrt(update_squares / elements) / o->clip_threshold);
    for (int64_t row = 0; row < s->rows; row++)
        for (int64_t c = 0; c < s->p.cols; c++) {
            double update = lr * direction(s, row, c) / divisor, value = load(s->p, s->first + row, c);
            if (o->factored_momentum) {
                update = o->beta1 * load(m, s->first + row, c) + (1 - o->beta1) * update;
                store(m, s->first + row, c, update);
            }
            value -= lr * (s->op->update.decay ? o->weight_decay : 0) * value;
            store_parameter(s->run, s->op, s->first + row, c, value - update);
        }
}

snug_status snug_reference_adafactor(struct snug_run *run, const struct snug_op *op) {
    if (is_skipped(run)) return SNUG_OK;
    const struct snug_matrix p = snug_matrix_of(run, op->update.weight),
                             m = snug_matrix_of(run, op->update.states[op->update.vector ? 1 : 2]);
    struct parameter s = {.run = run, .op = op, .rows = p.rows / op->update.segments, .p = p};
    s.beta2 = 1 - pow(updates_done(run) + 1, run->optimizer->decay_rate);
    if (op->update.vector)
        s.squares = snug_matrix_of(run, op->update.states[0]);
    else
        s.row_means = snug_matrix_of(run, op->update.states[0]),
        s.column_means = snug_matrix_of(run, op->update.states[1]);
    for (s.number = 0; s.number < op->update.segments; s.number++) {
        s.first = s.number * s.rows;
        update_parameter(&s, m);
    }
    return SNUG_OK;
}
