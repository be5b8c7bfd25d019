/* SPDX-License-Identifier: Apache-2.0 */
/* s = word[id] + type[type] + position[position];  y = dropout(norm(s)) */
#include "backend/reference/reference.h"

snug_status snug_reference_embed(struct snug_run *run, const struct snug_op *op) {
    const struct snug_batch *batch = run->batch;
    struct snug_matrix word = snug_matrix_of(run, op->embed.word), position = snug_matrix_of(run, op->embed.position);
    struct snug_matrix type = snug_matrix_of(run, op->embed.type);
    struct snug_matrix gamma = snug_matrix_of(run, op->embed.gamma), beta = snug_matrix_of(run, op->embed.beta);
    struct snug_matrix s = snug_matrix_of(run, op->embed.s), y = snug_matrix_of(run, op->embed.y);

    for (int64_t t = 0; t < s.rows; t++) {
        for (int64_t c = 0; c < s.cols; c++)
            store(s, t, c,
                  load(word, batch->ids[t], c) + (type.data ? load(type, batch->types[t], c) : 0) +
                      (position.data ? load(position, batch->position_ids[t], c) : 0));
        struct statistics stat = snug_reference_statistics(s, t, op->embed.eps);
        for (int64_t c = 0; c < s.cols; c++) {
            double norm = (load(s, t, c) - stat.mean) * stat.rstd * load(gamma, 0, c) + load_or_0(beta, c);
            store(y, t, c, dropout_factor(run, op, t, c) * norm);
        }
    }
    return SNUG_OK;
}

/* Makes the batch's ids, in ascending order, rows with a gradient, which starts at 0. */
static snug_status enter_ids(const struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix gradient = snug_matrix_of(run, op->embed_backward.dword);
    const struct snug_rows rows = snug_rows_of(run, op->embed_backward.index, op->embed_backward.dword);
    for (int64_t row = 0; snug_run_overwrites(run, op) && row < rows.table_rows; row++) rows.slots[row] = -1;
    if (snug_run_overwrites(run, op)) *rows.count = 0;
    for (int64_t i = 0; i < run->batch->tokens; i++) {
        const int32_t id = run->batch->ids[run->batch->by_id[i]];
        if (id == op->embed_backward.padding || rows.slots[id] >= 0) continue;
        if (*rows.count == rows.capacity)
            return snug_fail(run->ctx, SNUG_E_USAGE,
                             "gradients of more micro-batches are added than --gradient_accumulation_steps says: call "
                             "snug_zero_grad after each step, or raise it");
        for (int64_t c = 0; c < gradient.cols; c++) store(gradient, *rows.count, c, 0);
        rows.slots[id] = *rows.count;
        rows.rows[(*rows.count)++] = id;
    }
    return SNUG_OK;
}

/* scatter() for the rows of a table that have a gradient. */
static void scatter_rows(const struct snug_run *run, const struct snug_op *op, struct snug_matrix ds) {
    const struct snug_matrix gradient = snug_matrix_of(run, op->embed_backward.dword);
    const struct snug_rows rows = snug_rows_of(run, op->embed_backward.index, op->embed_backward.dword);
    double *sums = run->workspace;
    for (int64_t slot = 0; slot < *rows.count; slot++) {
        for (int64_t c = 0; c < gradient.cols; c++) sums[c] = 0;
        for (int64_t t = 0; t < ds.rows; t++)
            for (int64_t c = 0; run->batch->ids[t] == rows.rows[slot] && c < gradient.cols; c++)
                sums[c] += load(ds, t, c);
        for (int64_t c = 0; c < gradient.cols; c++) add_sum(gradient, slot, c, sums[c], false);
    }
}

/* Each row of a table gets the sum of ds over the tokens that looked it up. */
static void scatter(const struct snug_run *run, const struct snug_op *op, struct snug_matrix table,
                    struct snug_matrix ds, const int32_t *index, int32_t padding, double *sums) {
    for (int64_t row = 0; table.data && row < table.rows; row++) {
        for (int64_t c = 0; c < table.cols; c++) sums[c] = 0;
        for (int64_t t = 0; row != padding && t < ds.rows; t++)
            for (int64_t c = 0; index[t] == row && c < table.cols; c++) sums[c] += load(ds, t, c);
        for (int64_t c = 0; c < table.cols; c++) add_sum(table, row, c, sums[c], snug_run_overwrites(run, op));
    }
}

snug_status snug_reference_embed_backward(struct snug_run *run, const struct snug_op *op) {
    struct snug_matrix dy = snug_matrix_of(run, op->embed_backward.dy), s = snug_matrix_of(run, op->embed_backward.s),
                       gamma = snug_matrix_of(run, op->embed_backward.gamma);
    double *dgamma = run->workspace, *dbeta = dgamma + dy.cols, *dy_row = dbeta + dy.cols;

    for (int64_t c = 0; c < dy.cols; c++) dgamma[c] = dbeta[c] = 0;
    for (int64_t t = 0; t < dy.rows; t++) { /* dy becomes ds */
        for (int64_t c = 0; c < dy.cols; c++) dy_row[c] = load(dy, t, c) * dropout_factor(run, op, t, c);
        snug_reference_norm_row_backward(dy, dgamma, dbeta, dy_row, s, gamma, (struct snug_matrix){0}, t,
                                         op->embed_backward.eps);
    }
    snug_reference_add_gradient(run, op, snug_matrix_of(run, op->embed_backward.dgamma), dgamma);
    snug_reference_add_gradient(run, op, snug_matrix_of(run, op->embed_backward.dbeta), dbeta);

    if (op->embed_backward.index) {
        RETURN_IF_ERROR(enter_ids(run, op));
        scatter_rows(run, op, dy);
    } else {
        scatter(run, op, snug_matrix_of(run, op->embed_backward.dword), dy, run->batch->ids, op->embed_backward.padding,
                run->workspace);
    }
    scatter(run, op, snug_matrix_of(run, op->embed_backward.dposition), dy, run->batch->position_ids,
            op->embed_backward.first_position - 1, run->workspace);
    scatter(run, op, snug_matrix_of(run, op->embed_backward.dtype), dy, run->batch->types, -1, run->workspace);
    return SNUG_OK;
}
