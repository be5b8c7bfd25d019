/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.optim.AdamW (Loshchilov and Hutter, arXiv:1711.05101) and Adam (Kingma and Ba, arXiv:1412.6980), over a whole
 * tensor or over the rows of a table that wait for their steps until they are read.
 */
#include "backend/reference/update.h"

/* The step of a row, with row slot of g; without a gradient where g has no data. */
static void step_row(const struct snug_run *run, const struct snug_op *op, int64_t row, struct snug_matrix g,
                     int64_t slot, double clip) {
    const struct snug_optimizer *o = run->optimizer;
    struct snug_matrix p = snug_matrix_of(run, op->out[0]), m = snug_matrix_of(run, op->out[2]),
                       v = snug_matrix_of(run, op->out[3]);
    double lr = run->learning_rate, b1 = o->beta1, b2 = o->beta2, t = updates_done(run) + 1;
    double correction1 = 1 - pow(b1, t), correction2 = 1 - pow(b2, t), decay = op->decay ? o->weight_decay : 0;

    for (int64_t c = 0; c < p.cols; c++) {
        double value = load(p, row, c), gradient = (g.data ? load(g, slot, c) : 0) * clip;
        if (o->decoupled)
            value *= 1 - lr * decay;
        else
            gradient += decay * value;
        double mean = b1 * load(m, row, c) + (1 - b1) * gradient;
        double square = b2 * load(v, row, c) + (1 - b2) * gradient * gradient;
        store(m, row, c, mean);
        store(v, row, c, square);
        value -= lr / correction1 * mean / (sqrt(square) / sqrt(correction2) + o->epsilon);
        store_parameter(run, op, row, c, value);
    }
}

snug_status snug_reference_adam(struct snug_run *run, const struct snug_op *op) {
    if (is_skipped(run)) return SNUG_OK;
    const struct snug_matrix g = snug_matrix_of(run, op->in[0]);
    for (int64_t row = 0; row < g.rows; row++) step_row(run, op, row, g, row, clip_of(run, op));
    return SNUG_OK;
}

/* ---- rows that wait --------------------------------------------------------------------------------------------- */

static void catch_up(const struct snug_run *run, const struct snug_op *op, int64_t row) {
    const struct snug_matrix history = snug_matrix_of(run, op->out[7]);
    int32_t *updated = snug_run_data(run, op->out[6]);
    for (; updated[row] >= 0 && updated[row] < run->step; updated[row]++) {
        const int64_t at = updated[row] % history.rows;
        struct snug_run past = *run;
        past.step = updated[row];
        past.learning_rate = (float)load(history, at, 0);
        step_row(&past, op, row, (struct snug_matrix){0}, 0, load(history, at, 1));
    }
}

snug_status snug_reference_rows_begin(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix m = snug_matrix_of(run, op->in[0]), v = snug_matrix_of(run, op->in[1]);
    int32_t *index = snug_run_data(run, op->out[0]), *updated = snug_run_data(run, op->out[1]);
    index[0] = 0;
    for (int64_t i = 1; i < snug_run_cols(run, op->out[0]); i++) index[i] = -1;
    for (int64_t row = 0; row < m.rows; row++) {
        bool moves = op->decay && run->optimizer->weight_decay != 0;
        for (int64_t c = 0; c < m.cols; c++) moves |= load(m, row, c) != 0 || load(v, row, c) != 0;
        updated[row] = moves ? (int32_t)run->step : -1;
    }
    return SNUG_OK;
}

snug_status snug_reference_catch_up(struct snug_run *run, const struct snug_op *op) {
    for (int64_t i = 0; i < run->batch->tokens; i++) catch_up(run, op, run->batch->ids[i]);
    return SNUG_OK;
}

snug_status snug_reference_settle(struct snug_run *run, const struct snug_op *op) {
    for (int64_t row = 0; row < snug_run_rows(run, op->out[0]); row++) catch_up(run, op, row);
    return SNUG_OK;
}

snug_status snug_reference_adam_rows(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix g = snug_matrix_of(run, op->in[0]), history = snug_matrix_of(run, op->out[7]);
    const struct snug_rows rows = snug_rows_of(run, op->in[2], op->in[0]);
    const double clip = clip_of(run, op);
    int32_t *updated = snug_run_data(run, op->out[6]);
    if (run->step % history.rows == 0) RETURN_IF_ERROR(snug_reference_settle(run, op));
    for (int64_t row = 0; row < rows.table_rows; row++)
        if (updated[row] < 0 && !isfinite(clip)) updated[row] = (int32_t)run->step;
    for (int64_t i = 0; i < *rows.count; i++) {
        catch_up(run, op, rows.rows[i]);
        step_row(run, op, rows.rows[i], g, i, clip);
        updated[rows.rows[i]] = (int32_t)run->step + 1;
    }
    store(history, run->step % history.rows, 0, run->learning_rate);
    store(history, run->step % history.rows, 1, clip);
    return SNUG_OK;
}
