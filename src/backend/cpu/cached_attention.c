/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTENTION over a cache. A thread takes a block of queries of one sequence and the query heads that read one key/value
 * head: these are the rows that a page of keys or values is multiplied by, after it is copied to scratch as fp32, keys
 * transposed. Positions after a query have probability 0, and rows are multiplied one by one (tiles.h), so the result
 * of a query depends neither on the other rows of its block nor on the other sequences.
 */
#include "backend/cpu/rows.h"
#include "backend/cpu/tiles.h"

/* The block of a thread. */
struct block {
    const struct snug_run *run;
    const struct snug_attention_form *form;
    struct snug_matrix q, keys, values, o;
    int64_t sequence, kv_head;
    int64_t token, count; /* the first query's row, how many */
    int64_t first, end;   /* positions whose keys are read; first is a page's */
    int64_t channels, stride;
    float *queries, *out, *sums, *page, *scores;
};

static int64_t group_of(const struct snug_attention_form *form) { return form->heads / form->kv_heads; }

/* Row i of the block is query i / group, head i % group of the group. */
static int64_t rows_of(const struct block *b) { return b->count * group_of(b->form); }
static int64_t column_of(const struct block *b, int64_t row) {
    const int64_t group = group_of(b->form);
    return (b->kv_head * group + row % group) * b->form->head_dim;
}

static const uint8_t *page_at(const struct block *b, struct snug_matrix m, int64_t position) {
    return matrix_at(m, snug_run_cache_row(b->run, b->sequence, position), b->kv_head * b->form->head_dim);
}

static void copy_queries(const struct block *b) {
    const int64_t group = group_of(b->form), d = b->form->head_dim;
    for (int64_t i = 0; i < rows_of(b); i++) {
        const void *from = matrix_at(b->q, b->token + i / group, b->form->column[0] + column_of(b, i));
        for (int64_t c = 0; c < d; c += VEC_LANES)
            vec_write(b->queries + i * b->channels + c, vec_load(from, b->q.dtype, c, d) * b->form->scale);
    }
}

/* page [d, SNUG_CACHE_PAGE] = the keys from position on, transposed; what is after the last one is not read. */
static void copy_keys(const struct block *b, int64_t position) {
    const int64_t d = b->form->head_dim, row = b->keys.cols * snug_dtype_size(b->keys.dtype);
    const uint8_t *from = page_at(b, b->keys, position);
    const int64_t left = b->end - position;
    for (int64_t j = 0; j < SNUG_CACHE_PAGE; j += VEC_LANES)
        for (int64_t c = 0; c < d; c += VEC_LANES) {
            vec square[VEC_LANES];
            for (int i = 0; i < VEC_LANES; i++) {
                square[i] = vec_all(0);
                if (j + i < left) square[i] = vec_load(from + (j + i) * row, b->keys.dtype, c, d);
            }
            vec_transpose(square);
            for (int i = 0; i < VEC_LANES && c + i < d; i++)
                vec_write(b->page + (c + i) * SNUG_CACHE_PAGE + j, square[i]);
        }
}

/* page [SNUG_CACHE_PAGE, channels] = `count` values from position on. */
static void copy_values(const struct block *b, int64_t position, int64_t count) {
    const int64_t d = b->form->head_dim, row = b->values.cols * snug_dtype_size(b->values.dtype);
    const uint8_t *from = page_at(b, b->values, position);
    for (int64_t j = 0; j < count; j++)
        for (int64_t c = 0; c < d; c += VEC_LANES)
            vec_write(b->page + j * b->channels + c, vec_load(from + j * row, b->values.dtype, c, d));
}

/* scores of a row = exp(S - max) of the positions that its query attends to, else 0; their sum. */
static float softmax_row(const struct block *b, float *scores, int64_t position) {
    const int64_t before = b->form->before,
                  columns = (b->end - b->first + SNUG_CACHE_PAGE - 1) / SNUG_CACHE_PAGE * SNUG_CACHE_PAGE;
    const int64_t begin = (before >= 0 && position > before ? position - before : 0) - b->first;
    const int64_t end = position + 1 - b->first;
    const float cap = b->form->softcap;
    vec most = vec_all(-INFINITY), sum = {0};
    for (int64_t j = 0; j < columns; j += VEC_LANES) {
        vec s = vec_read(scores + j);
        if (cap > 0) s = vec_tanh(s / cap) * cap;
        s = vec_select(vec_below(end - j) & ~vec_below(begin - j), s, vec_all(-INFINITY));
        most = vec_max(most, s);
        vec_write(scores + j, s);
    }
    const float max = vec_largest(most);
    for (int64_t j = 0; j < columns; j += VEC_LANES) {
        const vec e = vec_exp(vec_read(scores + j) - max);
        sum += e;
        vec_write(scores + j, e);
    }
    return vec_sum(sum);
}

static void attend(const struct block *b) {
    const int64_t group = group_of(b->form), d = b->form->head_dim, rows = rows_of(b);
    copy_queries(b);
    for (int64_t p = b->first; p < b->end; p += SNUG_CACHE_PAGE) {
        copy_keys(b, p);
        matmul(b->scores + p - b->first, b->stride, b->queries, b->channels, 1, b->page, SNUG_CACHE_PAGE, rows,
               SNUG_CACHE_PAGE, d, false);
    }
    for (int64_t i = 0; i < rows; i++)
        b->sums[i] = softmax_row(b, b->scores + i * b->stride, b->run->batch->positions[b->token + i / group]);
    for (int64_t p = b->first; p < b->end; p += SNUG_CACHE_PAGE) {
        const int64_t left = b->end - p, count = left < SNUG_CACHE_PAGE ? left : SNUG_CACHE_PAGE;
        copy_values(b, p, count);
        matmul(b->out, b->channels, b->scores + p - b->first, b->stride, 1, b->page, b->channels, rows, b->channels,
               count, p > b->first);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < d; c += VEC_LANES)
            vec_store(matrix_at(b->o, b->token + i / group, column_of(b, i)), b->o.dtype, c, d,
                      vec_read(b->out + i * b->channels + c) * (1 / b->sums[i]));
}

/* Sets the positions and the scratch of a block, whose sequence, head and queries are set. */
static void place(struct block *b, float *scratch) {
    const int64_t rows = snug_cpu_block_room(b->form), before = b->form->before;
    const int64_t position = b->run->batch->positions[b->token];
    const int64_t first = before >= 0 && position > before ? position - before : 0;
    b->first = first / SNUG_CACHE_PAGE * SNUG_CACHE_PAGE;
    b->end = b->run->batch->positions[b->token + b->count - 1] + 1;
    b->stride = snug_cpu_key_stride(b->end - b->first + SNUG_CACHE_PAGE);
    b->queries = scratch;
    b->out = b->queries + rows * b->channels;
    b->sums = b->out + rows * b->channels;
    b->page = b->sums + rows * SNUG_CPU_PAD;
    b->scores = b->page + SNUG_CACHE_PAGE * b->channels;
}

snug_status SNUG_KERNEL(cached_attention)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cached_attention *a = &op->cached_attention;
    const struct snug_batch *batch = run->batch;
    const int64_t thread = snug_cpu_cached_attention_floats(run->program, &a->form);
    const int64_t queries = snug_cpu_block_rows(&a->form) / group_of(&a->form);
    int64_t longest = 0; /* new tokens of a sequence */
    for (int64_t s = 0; s < batch->sequences; s++)
        if (batch->offsets[s + 1] - batch->offsets[s] > longest) longest = batch->offsets[s + 1] - batch->offsets[s];
    const int64_t blocks = (longest + queries - 1) / queries, each = blocks * a->form.kv_heads;

#pragma omp parallel for num_threads(run->threads) schedule(dynamic)
    for (int64_t item = 0; item < batch->sequences * each; item++) {
        struct block b = {.run = run,
                          .form = &a->form,
                          .q = snug_matrix_of(run, a->q),
                          .keys = snug_matrix_of(run, a->keys),
                          .values = snug_matrix_of(run, a->values),
                          .o = snug_matrix_of(run, a->o),
                          .sequence = item / each,
                          .kv_head = item % each / blocks,
                          .channels = snug_cpu_padded(a->form.head_dim)};
        b.token = batch->offsets[b.sequence] + item % blocks * queries;
        const int64_t left = batch->offsets[b.sequence + 1] - b.token;
        if (left <= 0) continue;
        b.count = left < queries ? left : queries;
        place(&b, (float *)run->workspace + omp_get_thread_num() * thread);
        attend(&b);
    }
    return SNUG_OK;
}
