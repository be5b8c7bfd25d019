/* SPDX-License-Identifier: Apache-2.0 */
/* Adam over a table whose rows are updated lazily, when they are next read: "Lazy rows" in program/op.h. */
#include "backend/reference/adam.h"

static void lazy_update(const struct snug_run *run, const struct snug_op *op, int64_t row) {
    const struct snug_matrix history = snug_matrix_of(run, op->update.history);
    int32_t *updated = snug_run_data(run, op->update.updated);
    for (; updated[row] >= 0 && updated[row] < run->step; updated[row]++) {
        const int64_t at = updated[row] % history.rows;
        struct snug_run past = *run;
        past.step = updated[row];
        past.learning_rate = (float)load(history, at, 0);
        adam_row(&past, op, row, (struct snug_matrix){0}, 0, load(history, at, 1));
    }
}

snug_status snug_reference_rows_begin(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix m = snug_matrix_of(run, op->rows_begin.m), v = snug_matrix_of(run, op->rows_begin.v);
    int32_t *index = snug_run_data(run, op->rows_begin.index), *updated = snug_run_data(run, op->rows_begin.updated);
    index[0] = 0;
    for (int64_t i = 1; i < snug_run_cols(run, op->rows_begin.index); i++) index[i] = -1;
    for (int64_t row = 0; row < m.rows; row++) {
        bool moves = op->rows_begin.decay && run->optimizer->weight_decay != 0;
        for (int64_t c = 0; c < m.cols; c++) moves |= load(m, row, c) != 0 || load(v, row, c) != 0;
        updated[row] = moves ? (int32_t)run->step : -1;
    }
    return SNUG_OK;
}

static void flush(const struct snug_run *run, const struct snug_op *op) {
    for (int64_t row = 0; row < snug_run_rows(run, op->update.weight); row++) lazy_update(run, op, row);
}

snug_status snug_reference_lazy_update(struct snug_run *run, const struct snug_op *op) {
    if (!run->batch)
        flush(run, op);
    else
        for (int64_t i = 0; i < run->batch->tokens; i++) lazy_update(run, op, run->batch->ids[i]);
    return SNUG_OK;
}

snug_status snug_reference_adam_rows(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix g = snug_matrix_of(run, op->update.g), history = snug_matrix_of(run, op->update.history);
    const struct snug_rows rows = snug_rows_of(run, op->update.index, op->update.g);
    const double clip = clip_of(run, op);
    int32_t *updated = snug_run_data(run, op->update.updated);
    if (run->step % history.rows == 0) flush(run, op);
    for (int64_t row = 0; row < rows.table_rows; row++)
        if (updated[row] < 0 && !isfinite(clip)) updated[row] = (int32_t)run->step;
    for (int64_t i = 0; i < *rows.count; i++) {
        lazy_update(run, op, rows.rows[i]);
        adam_row(run, op, rows.rows[i], g, i, clip);
        updated[rows.rows[i]] = (int32_t)run->step + 1;
    }
    store(history, run->step % history.rows, 0, run->learning_rate);
    store(history, run->step % history.rows, 1, clip);
    return SNUG_OK;
}
