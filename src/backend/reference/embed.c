/* SPDX-License-Identifier: Apache-2.0 */
/* s = scale word[id] + type[type] + position[position], of some ids with other rows than word's */
#include "backend/reference/reference.h"

snug_status snug_reference_embed(struct snug_run *run, const struct snug_op *op) {
    const struct snug_batch *batch = run->batch;
    struct snug_matrix word = snug_matrix_of(run, op->embed.word), position = snug_matrix_of(run, op->embed.position);
    struct snug_matrix type = snug_matrix_of(run, op->embed.type), s = snug_matrix_of(run, op->embed.s);
    const struct snug_matrix rows = snug_matrix_of(run, op->embed.rows);
    const struct snug_tokens tokens = snug_tokens_of(run, op->embed.tokens, rows.rows);

    for (int64_t t = 0; t < s.rows; t++) {
        const int32_t place = tokens.places ? tokens.places[batch->ids[t]] : -1;
        for (int64_t c = 0; c < s.cols; c++)
            store(s, t, c,
                  (place < 0 ? load(word, batch->ids[t], c) : load(rows, place, c)) * (double)op->embed.scale +
                      (type.data ? load(type, batch->types[t], c) : 0) +
                      (position.data ? load(position, batch->position_ids[t], c) : 0));
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
                sums[c] += load(ds, t, c) * (double)op->embed_backward.scale;
        for (int64_t c = 0; c < gradient.cols; c++) add_sum(gradient, slot, c, sums[c], false);
    }
}

/* The same for the rows of the table of op->embed_backward.tokens. */
static void scatter_tokens(const struct snug_run *run, const struct snug_op *op, struct snug_matrix ds) {
    const struct snug_matrix gradient = snug_matrix_of(run, op->embed_backward.dword);
    const struct snug_tokens tokens = snug_tokens_of(run, op->embed_backward.tokens, gradient.rows);
    double *sums = run->workspace;
    for (int64_t k = 0; k < gradient.rows; k++) {
        const bool counts = tokens.ids[k] != op->embed_backward.padding;
        for (int64_t c = 0; c < gradient.cols; c++) sums[c] = 0;
        for (int64_t t = 0; counts && t < ds.rows; t++)
            for (int64_t c = 0; run->batch->ids[t] == tokens.ids[k] && c < gradient.cols; c++)
                sums[c] += load(ds, t, c) * (double)op->embed_backward.scale;
        for (int64_t c = 0; c < gradient.cols; c++) add_sum(gradient, k, c, sums[c], snug_run_overwrites(run, op));
    }
}

/* Each row of a table gets the sum of ds, times scale, over the tokens that looked it up. */
static void scatter(const struct snug_run *run, const struct snug_op *op, int32_t gradient, const int32_t *index,
                    int32_t padding, double scale) {
    const struct snug_matrix table = snug_matrix_of(run, gradient), ds = snug_matrix_of(run, op->embed_backward.ds);
    double *sums = run->workspace;
    for (int64_t row = 0; table.data && row < table.rows; row++) {
        for (int64_t c = 0; c < table.cols; c++) sums[c] = 0;
        for (int64_t t = 0; row != padding && t < ds.rows; t++)
            for (int64_t c = 0; index[t] == row && c < table.cols; c++) sums[c] += load(ds, t, c) * scale;
        for (int64_t c = 0; c < table.cols; c++) add_sum(table, row, c, sums[c], snug_run_overwrites(run, op));
    }
}

snug_status snug_reference_embed_backward(struct snug_run *run, const struct snug_op *op) {
    const struct snug_embed_backward *e = &op->embed_backward;
    if (e->index) {
        RETURN_IF_ERROR(enter_ids(run, op));
        scatter_rows(run, op, snug_matrix_of(run, e->ds));
    } else if (e->tokens) {
        scatter_tokens(run, op, snug_matrix_of(run, e->ds));
    } else {
        scatter(run, op, e->dword, run->batch->ids, e->padding, (double)e->scale);
    }
    scatter(run, op, e->dposition, run->batch->position_ids, e->first_position - 1, 1);
    scatter(run, op, e->dtype, run->batch->types, -1, 1);
    return SNUG_OK;
}
