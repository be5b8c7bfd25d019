/* SPDX-License-Identifier: Apache-2.0 */
/* s = scale word[id] + type[type] + position[position]. Backward, each row of a table has one owner. */
#include "backend/cpu/rows.h"

snug_status SNUG_KERNEL(embed)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_batch *batch = run->batch;
    struct snug_matrix word = snug_matrix_of(run, op->embed.word), position = snug_matrix_of(run, op->embed.position);
    struct snug_matrix type = snug_matrix_of(run, op->embed.type), s = snug_matrix_of(run, op->embed.s);
    const struct snug_matrix rows = snug_matrix_of(run, op->embed.rows);
    const struct snug_tokens tokens = snug_tokens_of(run, op->embed.tokens, rows.rows);
    const int64_t h = s.cols;

#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t t = 0; t < s.rows; t++) {
        const int32_t place = tokens.places ? tokens.places[batch->ids[t]] : -1;
        const struct snug_matrix words = place < 0 ? word : rows;
        const void *from_word = matrix_at(words, place < 0 ? batch->ids[t] : place, 0);
        const void *from_type = type.data ? matrix_at(type, batch->types[t], 0) : NULL;
        const void *from_position = position.data ? matrix_at(position, batch->position_ids[t], 0) : NULL;
        for (int64_t c = 0; c < h; c += VEC_LANES) {
            vec x = vec_load(from_word, words.dtype, c, h) * op->embed.scale;
            if (from_type) x += vec_load(from_type, type.dtype, c, h);
            if (from_position) x += vec_load(from_position, position.dtype, c, h);
            vec_store(matrix_at(s, t, 0), s.dtype, c, h, x);
        }
    }
    return SNUG_OK;
}

/* Row index of table (F32) += scale * row t of ds. */
static void add_row(struct snug_matrix table, int64_t index, struct snug_matrix ds, int64_t t, float scale) {
    float *to = matrix_at(table, index, 0);
    const void *from = matrix_at(ds, t, 0);
    for (int64_t c = 0; c < ds.cols; c += VEC_LANES)
        vec_store(to, SNUG_F32, c, ds.cols,
                  vec_load(to, SNUG_F32, c, ds.cols) + vec_load(from, ds.dtype, c, ds.cols) * scale);
}

/* Called by all threads of a team: table = 0. Blocks of rows are long enough for memset's fastest path. */
static void clear(struct snug_matrix table) {
    const int64_t block = 256;
#pragma omp for schedule(guided)
    for (int64_t row = 0; row < table.rows; row += block) {
        int64_t rows = table.rows - row < block ? table.rows - row : block;
        memset(matrix_at(table, row, 0), 0, (size_t)(rows * table.cols) * sizeof(float));
    }
}

/* Adds rows of ds to row index of a table. To a row that has values of earlier micro-batches their sum is added when it
   is complete: the same bits as if another rank had summed them. */
struct row_sum {
    struct snug_matrix table, into, own; /* into: table, or own [1, columns] */
    int64_t index;
};

static struct row_sum begin_sum(const struct snug_run *run, struct snug_matrix table, int64_t index, bool apart) {
    struct row_sum sum = {.table = table, .into = table, .index = index};
    if (!apart) return sum;
    sum.own = (struct snug_matrix){(uint8_t *)scratch_rows(run, 1, table.cols), SNUG_F32, 1, table.cols};
    memset(sum.own.data, 0, (size_t)table.cols * sizeof(float));
    sum.into = sum.own;
    return sum;
}

static void add_to_sum(const struct row_sum *sum, struct snug_matrix ds, int64_t t, float scale) {
    add_row(sum->into, sum->own.data ? 0 : sum->index, ds, t, scale);
}

static void end_sum(const struct row_sum *sum) {
    if (sum->own.data) add_row(sum->table, sum->index, sum->own, 0, 1);
}

/* The token of a sequence at this position, or -1: token k, or a later one if padding tokens come before it. */
static int64_t token_at(const struct snug_batch *batch, int64_t sequence, int64_t k, int32_t position) {
    const int64_t end = batch->offsets[sequence + 1];
    for (int64_t t = batch->offsets[sequence] + k; t < end; t++)
        if (batch->position_ids[t] == position) return t;
    return -1;
}

/* The type table has few rows, each a sum over many tokens: threads divide the columns, not the rows. */
static void add_types(struct snug_matrix table, struct snug_matrix ds, const int32_t *types) {
    enum { COLUMNS = 64 };
#pragma omp for schedule(guided)
    for (int64_t first = 0; first < ds.cols; first += COLUMNS) {
        const int64_t end = first + COLUMNS < ds.cols ? first + COLUMNS : ds.cols;
        for (int64_t type = 0; type < table.rows; type++) {
            vec sums[COLUMNS / VEC_LANES] = {0};
            for (int64_t t = 0; t < ds.rows; t++) {
                if (types[t] != type) continue;
                for (int64_t c = first; c < end; c += VEC_LANES)
                    sums[(c - first) / VEC_LANES] += vec_load(matrix_at(ds, t, 0), ds.dtype, c, end);
            }
            float *to = matrix_at(table, type, 0);
            for (int64_t c = first; c < end; c += VEC_LANES)
                vec_store(to, SNUG_F32, c, end, vec_load(to, SNUG_F32, c, end) + sums[(c - first) / VEC_LANES]);
        }
    }
}

/* Adds the batch's ids to the rows that have a gradient; *first is the first new row, whose gradient is not cleared
   yet. */
static snug_status enter_ids(const struct snug_run *run, const struct snug_op *op, struct snug_rows *rows,
                             int64_t *first) {
    const struct snug_batch *batch = run->batch;
    *rows = snug_rows_of(run, op->embed_backward.index, op->embed_backward.dword);
    if (snug_run_overwrites(run, op)) {
        for (int64_t i = 0; i < *rows->count; i++) rows->slots[rows->rows[i]] = -1;
        *rows->count = 0;
    }
    *first = *rows->count;
    for (int64_t i = 0; i < batch->tokens; i++) {
        const int32_t id = batch->ids[batch->by_id[i]];
        if (id == op->embed_backward.padding || rows->slots[id] >= 0) continue;
        if (*rows->count == rows->capacity)
            return snug_fail(run->ctx, SNUG_E_USAGE,
                             "gradients of more micro-batches are added than --gradient_accumulation_steps says: call "
                             "snug_zero_grad after each step, or raise it");
        rows->slots[id] = *rows->count;
        rows->rows[(*rows->count)++] = id;
    }
    return SNUG_OK;
}

snug_status SNUG_KERNEL(embed_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_batch *batch = run->batch;
    const bool compact = op->embed_backward.index, adds = !snug_run_overwrites(run, op);
    struct snug_rows rows;
    int64_t first_new = 0;
    if (compact) RETURN_IF_ERROR(enter_ids(run, op, &rows, &first_new));
    struct snug_matrix ds = snug_matrix_of(run, op->embed_backward.ds),
                       dword = snug_matrix_of(run, op->embed_backward.dword);
    const struct snug_tokens tokens = snug_tokens_of(run, op->embed_backward.tokens, dword.rows);
    struct snug_matrix dposition = snug_matrix_of(run, op->embed_backward.dposition),
                       dtype = snug_matrix_of(run, op->embed_backward.dtype);

#pragma omp parallel num_threads(run->threads)
    {
        if (!adds) {
            if (!compact && dword.data) clear(dword);
            if (dposition.data) clear(dposition);
            if (dtype.data) clear(dtype);
        }
#pragma omp for schedule(dynamic, 16) nowait
        for (int64_t i = 0; i < (dword.data ? batch->tokens : 0);
             i++) { /* the first token of an id sums all tokens of that id */
            int32_t id = batch->ids[batch->by_id[i]];
            if (id == op->embed_backward.padding || (i > 0 && batch->ids[batch->by_id[i - 1]] == id)) continue;
            const int64_t row = compact ? rows.slots[id] : tokens.places ? tokens.places[id] : id;
            if (row < 0) continue;
            if (compact && row >= first_new) memset(matrix_at(dword, row, 0), 0, (size_t)dword.cols * sizeof(float));
            const struct row_sum sum = begin_sum(run, dword, row, adds && (!compact || row < first_new));
            for (int64_t j = i; j < batch->tokens && batch->ids[batch->by_id[j]] == id; j++)
                add_to_sum(&sum, ds, batch->by_id[j], op->embed_backward.scale);
            end_sum(&sum);
        }
#pragma omp for schedule(guided) nowait
        for (int64_t k = 0; k < (dposition.data ? batch->longest : 0); k++) {
            const int32_t position = op->embed_backward.first_position + (int32_t)k;
            const struct row_sum sum = begin_sum(run, dposition, position, adds);
            for (int64_t i = 0; i < batch->sequences; i++) {
                const int64_t t = token_at(batch, i, k, position);
                if (t >= 0) add_to_sum(&sum, ds, t, 1);
            }
            end_sum(&sum);
        }
        if (dtype.data) add_types(dtype, ds, batch->types);
    }
    return SNUG_OK;
}
