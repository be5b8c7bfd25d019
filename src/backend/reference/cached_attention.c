/* SPDX-License-Identifier: Apache-2.0 */
/* ATTENTION of queries over the keys and values of a cache: see attention.c. */
#include "backend/reference/reference.h"

/* A query: its row, position, sequence and head. */
struct query {
    const struct snug_run *run;
    const struct snug_attention_form *form;
    struct snug_matrix q, keys, values, o;
    int64_t row, position, sequence;
    int32_t head, kv_head;
};

static double score(const struct query *query, int64_t key) {
    const struct snug_attention_form *form = query->form;
    const int64_t d = form->head_dim, row = snug_run_cache_row(query->run, query->sequence, key);
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += load(query->q, query->row, form->column[0] + query->head * d + c) *
               load(query->keys, row, query->kv_head * d + c);
    sum *= form->scale;
    return form->softcap > 0 ? form->softcap * tanh(sum / form->softcap) : sum;
}

static void attend(const struct query *query, double *probability) {
    const int64_t d = query->form->head_dim, before = query->form->before, last = query->position;
    const int64_t first = before >= 0 && last > before ? last - before : 0;
    double max = -INFINITY, sum = 0;
    for (int64_t j = first; j <= last; j++) max = fmax(max, probability[j] = score(query, j));
    for (int64_t j = first; j <= last; j++) sum += probability[j] = exp(probability[j] - max);
    for (int64_t c = 0; c < d; c++) {
        double out = 0;
        for (int64_t j = first; j <= last; j++)
            out += probability[j] / sum *
                   load(query->values, snug_run_cache_row(query->run, query->sequence, j), query->kv_head * d + c);
        store(query->o, query->row, query->head * d + c, out);
    }
}

snug_status snug_reference_cached_attention(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cached_attention *a = &op->cached_attention;
    const struct snug_batch *batch = run->batch;
    struct query query = {.run = run,
                          .form = &a->form,
                          .q = snug_matrix_of(run, a->q),
                          .keys = snug_matrix_of(run, a->keys),
                          .values = snug_matrix_of(run, a->values),
                          .o = snug_matrix_of(run, a->o)};
    for (query.sequence = 0; query.sequence < batch->sequences; query.sequence++)
        for (query.row = batch->offsets[query.sequence]; query.row < batch->offsets[query.sequence + 1]; query.row++)
            for (query.head = 0; query.head < a->form.heads; query.head++) {
                query.position = batch->positions[query.row];
                query.kv_head = query.head / (a->form.heads / a->form.kv_heads);
                attend(&query, run->workspace);
            }
    return SNUG_OK;
}
