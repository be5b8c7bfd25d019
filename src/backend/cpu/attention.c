/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = q k^T / sqrt(d) and probabilities P = softmax(S),
 *   o = (F * P) v,   F the dropout factors, element by element,
 *   lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be had again without the whole row.
 * Backward, with dP_ij = F_ij (do_i . v_j):
 *   dv = (F * P)^T do,   dS_ij = P_ij (dP_ij - sum_j P_ij dP_ij),   dq = dS k / sqrt(d),   dk = dS^T q / sqrt(d).
 * The sum is formed from the row at hand, not as do_i . o_i, which is the same but for rounding: so the rows of dS add
 * up to zero as they should, and with them the gradient of the key's bias.
 *
 * A thread takes one head of one sequence at a time, and so owns all that it writes. It copies the head's keys and
 * values into scratch as fp32, transposed where an inner product runs over channels, so that every product below is
 * rows times vectors; then it takes up to SNUG_CPU_QUERIES queries at a time against all keys. Scratch is linear in the
 * longest sequence. Rows and columns of scratch are padded to whole tiles; padding never reaches a result.
 */
#include "backend/cpu/rows.h"

enum { TILE_ROWS = VEC_LANES == 16 ? 8 : 4, TILE_VECS = 2, ROWS = 8 };

/* One head of one sequence. */
struct head {
    const struct snug_run *run;
    const struct snug_op *op;
    struct snug_matrix qkv, o, lse, dout, dqkv; /* o: forward; the last two: backward */
    int64_t first, length;                      /* its tokens */
    int64_t column, h, d;                       /* its channels: column … column + d - 1 of each of q, k, v */
    int64_t channels, keys;                     /* d and length in whole vectors */
    int64_t stride;                             /* of rows over keys */
    float scale;                                /* 1 / sqrt(d) */
    struct vec_dropout dropout;
};

/* Tile of c, rows x (vecs vectors): c = a b, or += . */
static inline __attribute__((always_inline)) void tile(float *c, int64_t c_row, const float *a, int64_t a_row,
                                                       int64_t a_col, const float *b, int64_t b_row, int64_t depth,
                                                       bool add, const int vecs) {
    vec sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) sum[i][v] = add ? vec_read(c + i * c_row + v * VEC_LANES) : vec_all(0);
    for (int64_t k = 0; k < depth; k++) {
        vec right[TILE_VECS];
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) right[v] = vec_read(b + k * b_row + v * VEC_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < TILE_ROWS; i++) {
            vec left = vec_all(a[i * a_row + k * a_col]);
#pragma GCC unroll 2
            for (int v = 0; v < vecs; v++) sum[i][v] = vec_fma(left, right[v], sum[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) vec_write(c + i * c_row + v * VEC_LANES, sum[i][v]);
}

/* c [m, n] = a b, or += : a [m, depth] has element (i, k) at a[i * a_row + k * a_col]; b [depth, n]. m is rounded up to
   a multiple of ROWS, n is one of VEC_LANES. */
static void product(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_col, const float *b,
                    int64_t b_row, int64_t m, int64_t n, int64_t depth, bool add) {
    int64_t j = 0;
    for (; j + TILE_VECS * VEC_LANES <= n; j += TILE_VECS * VEC_LANES)
        for (int64_t i = 0; i < m; i += TILE_ROWS)
            tile(c + i * c_row + j, c_row, a + i * a_row, a_row, a_col, b + j, b_row, depth, add, TILE_VECS);
    for (; j < n; j += VEC_LANES)
        for (int64_t i = 0; i < m; i += TILE_ROWS)
            tile(c + i * c_row + j, c_row, a + i * a_row, a_row, a_col, b + j, b_row, depth, add, 1);
}

/* The next head's part of a row, which this thread most likely takes next. */
static void prefetch_next(const struct head *head, struct snug_matrix m, int64_t token, int64_t column) {
    for (int64_t c = 0; c < head->d * snug_dtype_size(m.dtype); c += 64)
        __builtin_prefetch((const uint8_t *)matrix_at(m, token, column + head->d) + c);
}

/* rows [count, channels] = the head's part of count rows of m, times scale; zeros up to a multiple of ROWS. */
static void copy_rows(const struct head *head, float *rows, struct snug_matrix m, int64_t first, int64_t column,
                      int64_t count, float scale) {
    for (int64_t i = 0; i < count; i++) {
        prefetch_next(head, m, first + i, column);
        for (int64_t c = 0; c < head->d; c += VEC_LANES)
            vec_write(rows + i * head->channels + c,
                      vec_load(matrix_at(m, first + i, column), m.dtype, c, head->d) * scale);
    }
    for (int64_t i = count * head->channels; i < (count + ROWS - 1) / ROWS * ROWS * head->channels; i++) rows[i] = 0;
}

/* columns [d, stride] = the head's part of m's rows of the sequence, transposed; zeros up to keys. */
static void copy_columns(const struct head *head, float *columns, struct snug_matrix m, int64_t column) {
    for (int64_t j = 0; j < head->keys; j += VEC_LANES) {
        for (int64_t c = 0; c < head->d; c += VEC_LANES) {
            vec square[VEC_LANES];
#pragma GCC unroll 16
            for (int i = 0; i < VEC_LANES; i++) {
                square[i] = vec_all(0);
                if (j + i < head->length)
                    square[i] = vec_load(matrix_at(m, head->first + j + i, column), m.dtype, c, head->d);
            }
            vec_transpose(square);
#pragma GCC unroll 16
            for (int i = 0; i < VEC_LANES; i++)
                if (c + i < head->d) vec_write(columns + (c + i) * head->stride + j, square[i]);
        }
    }
}

/* The head's part of count rows of m = rows * scale. */
static void put_rows(const struct head *head, struct snug_matrix m, int64_t first, int64_t column, const float *rows,
                     int64_t count, float scale) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < head->d; c += VEC_LANES)
            vec_store(matrix_at(m, first + i, column), m.dtype, c, head->d,
                      vec_read(rows + i * head->channels + c) * scale);
}

/* A query's dropout factors, or NULL without dropout. masks: rows of a pair of queries, drawn with its first one. */
static const float *query_mask(const struct head *head, float *masks, int64_t query) {
    if (head->op->p == 0) return NULL;
    if (query % 2 == 0)
        vec_attention_masks(masks, head->stride, head->length, &head->dropout, (int32_t)query / 2,
                            head->run->batch->sample[head->first]);
    return masks + query % 2 * head->stride;
}

/* scores = (F * P) times the sum that softmax divides by, which is returned; *lse as above. */
static float softmax_row(const struct head *head, float *scores, const float *mask, float *lse) {
    vec most = vec_all(-INFINITY), sum = {0};
    float *last = scores + head->keys - VEC_LANES;
    vec_write(last, vec_select(vec_below(head->length - (head->keys - VEC_LANES)), vec_read(last), most));
    for (int64_t j = 0; j < head->keys; j += VEC_LANES) most = vec_max(most, vec_read(scores + j));
    const float max = vec_largest(most);
    for (int64_t j = 0; j < head->keys; j += VEC_LANES) {
        vec e = vec_exp(vec_read(scores + j) - max);
        sum += e;
        vec_write(scores + j, mask ? e * vec_read(mask + j) : e);
    }
    float total = vec_sum(sum);
    *lse = max + logf(total);
    return total;
}

static void forward(const struct head *head, float *scratch) {
    const int64_t channels = head->channels, stride = head->stride;
    float *keys = scratch, *values = keys + channels * stride, *queries = values + stride * channels;
    float *out = queries + SNUG_CPU_QUERIES * channels, *scores = out + SNUG_CPU_QUERIES * channels;
    float *masks = scores + SNUG_CPU_QUERIES * stride;
    float *lse = (float *)head->lse.data + head->first * head->op->heads + head->column / head->d;

    copy_columns(head, keys, head->qkv, head->h + head->column);
    copy_rows(head, values, head->qkv, head->first, 2 * head->h + head->column, head->length, 1);
    for (int64_t query = 0; query < head->length; query += SNUG_CPU_QUERIES) {
        int64_t count = head->length - query < SNUG_CPU_QUERIES ? head->length - query : SNUG_CPU_QUERIES;
        float sum[SNUG_CPU_QUERIES];
        copy_rows(head, queries, head->qkv, head->first + query, head->column, count, head->scale);
        product(scores, stride, queries, channels, 1, keys, stride, count, head->keys, head->d, false);
        for (int64_t i = 0; i < count; i++)
            sum[i] = softmax_row(head, scores + i * stride, query_mask(head, masks, query + i),
                                 lse + (query + i) * head->op->heads);
        product(out, channels, scores, stride, 1, values, channels, count, channels, head->length, false);
        for (int64_t i = 0; i < count; i++)
            put_rows(head, head->o, head->first + query + i, head->column, out + i * channels, 1, 1 / sum[i]);
    }
}

/* From S and do v^T of one query: scores becomes F * P, dscores becomes dS. row is scratch. */
static void backward_row(const struct head *head, float *scores, float *dscores, const float *mask, float *row,
                         float lse) {
    vec sum = {0}, weighted = {0};
    for (int64_t j = 0; j < head->keys; j += VEC_LANES) {
        vec p = vec_exp(vec_read(scores + j) - lse), f = mask ? vec_read(mask + j) : vec_all(1);
        p = vec_select(vec_below(head->length - j), p, vec_all(0)); /* what stands past the last key is not a key */
        vec dp = f * vec_read(dscores + j);
        sum += p;
        weighted = vec_fma(p, dp, weighted);
        vec_write(scores + j, f * p);
        vec_write(dscores + j, dp);
        vec_write(row + j, p);
    }
    const float delta = vec_sum(weighted) / vec_sum(sum);
    for (int64_t j = 0; j < head->keys; j += VEC_LANES)
        vec_write(dscores + j, vec_read(row + j) * (vec_read(dscores + j) - delta));
}

static void backward(const struct head *head, float *scratch) {
    const int64_t channels = head->channels, stride = head->stride;
    float *key_columns = scratch, *value_columns = key_columns + channels * stride;
    float *keys = value_columns + channels * stride, *dkeys = keys + stride * channels;
    float *dvalues = dkeys + stride * channels, *queries = dvalues + stride * channels;
    float *dout = queries + SNUG_CPU_QUERIES * channels, *dqueries = dout + SNUG_CPU_QUERIES * channels;
    float *scores = dqueries + SNUG_CPU_QUERIES * channels, *dscores = scores + SNUG_CPU_QUERIES * stride;
    float *masks = dscores + SNUG_CPU_QUERIES * stride, *row = masks + 2 * stride;
    const float *lse = (const float *)head->lse.data + head->first * head->op->heads + head->column / head->d;

    copy_columns(head, key_columns, head->qkv, head->h + head->column);
    copy_columns(head, value_columns, head->qkv, 2 * head->h + head->column);
    copy_rows(head, keys, head->qkv, head->first, head->h + head->column, head->length, 1);
    for (int64_t query = 0; query < head->length; query += SNUG_CPU_QUERIES) {
        const int64_t count = head->length - query < SNUG_CPU_QUERIES ? head->length - query : SNUG_CPU_QUERIES;
        const int64_t token = head->first + query;
        const bool add = query > 0;
        copy_rows(head, queries, head->qkv, token, head->column, count, head->scale);
        copy_rows(head, dout, head->dout, token, head->column, count, 1);
        product(scores, stride, queries, channels, 1, key_columns, stride, count, head->keys, head->d, false);
        product(dscores, stride, dout, channels, 1, value_columns, stride, count, head->keys, head->d, false);
        for (int64_t i = 0; i < count; i++)
            backward_row(head, scores + i * stride, dscores + i * stride, query_mask(head, masks, query + i), row,
                         lse[(query + i) * head->op->heads]);
        product(dqueries, channels, dscores, stride, 1, keys, channels, count, channels, head->length, false);
        put_rows(head, head->dqkv, token, head->column, dqueries, count, head->scale);
        product(dvalues, channels, scores, 1, stride, dout, channels, head->length, channels, count, add);
        product(dkeys, channels, dscores, 1, stride, queries, channels, head->length, channels, count, add);
    }
    put_rows(head, head->dqkv, head->first, head->h + head->column, dkeys, head->length, 1);
    put_rows(head, head->dqkv, head->first, 2 * head->h + head->column, dvalues, head->length, 1);
}

/* Runs work on every head of every sequence. */
static void for_each_head(const struct snug_run *run, const struct head *like, int64_t scratch_floats,
                          void work(const struct head *, float *)) {
    const int64_t lanes = VEC_LANES;

#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 4)
    for (int64_t pair = 0; pair < run->batch->sequences * like->op->heads; pair++) {
        int64_t sequence = pair / like->op->heads, index = pair % like->op->heads;
        struct head head = *like;
        head.first = run->batch->offsets[sequence];
        head.length = run->batch->offsets[sequence + 1] - head.first;
        head.h = head.qkv.cols / 3;
        head.d = head.h / head.op->heads;
        head.column = index * head.d;
        head.channels = (head.d + lanes - 1) / lanes * lanes;
        head.keys = (head.length + lanes - 1) / lanes * lanes;
        head.stride = snug_cpu_key_stride(head.length);
        head.scale = 1 / sqrtf((float)head.d);
        head.dropout = vec_dropout(run, head.op, (int32_t)index);
        work(&head, (float *)run->workspace + omp_get_thread_num() * scratch_floats);
    }
}

snug_status SNUG_KERNEL(attention)(struct snug_run *run, const struct snug_op *op) {
    struct head head = {.run = run,
                        .op = op,
                        .qkv = snug_matrix_of(run, op->in[0]),
                        .o = snug_matrix_of(run, op->out[0]),
                        .lse = snug_matrix_of(run, op->out[1])};
    for_each_head(run, &head, snug_cpu_attention_floats(run->program->longest, head.qkv.cols / 3 / op->heads), forward);
    return SNUG_OK;
}

snug_status SNUG_KERNEL(attention_backward)(struct snug_run *run, const struct snug_op *op) {
    struct head head = {.run = run,
                        .op = op,
                        .dout = snug_matrix_of(run, op->in[0]),
                        .qkv = snug_matrix_of(run, op->in[1]),
                        .lse = snug_matrix_of(run, op->in[3]),
                        .dqkv = snug_matrix_of(run, op->out[0])};
    for_each_head(run, &head, snug_cpu_attention_backward_floats(run->program->longest, head.qkv.cols / 3 / op->heads),
                  backward);
    return SNUG_OK;
}
