/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = q k^T / sqrt(d) + b, where q and k may be rotated by their
 * positions and b may be 0, and probabilities P = softmax(S) over the keys within the window,
 *   o = (F * P) v,   F the dropout factors, element by element,
 *   lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be recomputed without the whole row.
 * Backward, with dP_ij = F_ij (do_i . v_j):
 *   dv = (F * P)^T do,   dS_ij = P_ij (dP_ij - sum_j P_ij dP_ij),   dq = dS k / sqrt(d),   dk = dS^T q / sqrt(d),
 * dq and dk rotated back;  dbias of a bucket is the sum of its dS_ij.
 * The inner sum is formed from the row at hand, not as do_i . o_i, which is the same but for rounding: so the rows of
 * dS add up to zero as they should, and with them the gradient of the key's bias.
 *
 * A thread takes one head of one sequence at a time, and so owns all that it writes. It copies the head's keys and
 * values into scratch as fp32, transposed where an inner product runs over channels, so that every matmul below
 * multiplies rows by vectors. Then it takes up to SNUG_CPU_QUERIES queries at a time, and the keys that any of them
 * attends to: all keys, or those within the window. Scratch is linear in the longest sequence. Rows and columns of
 * scratch are padded to whole tiles; padding never reaches a result.
 */
#include "backend/cpu/rows.h"

enum { TILE_ROWS = VEC_LANES == 16 ? 8 : 4, TILE_VECS = 2, ROWS = 8 };

/* One head of one sequence. */
struct head {
    const struct snug_run *run;
    const struct snug_op *op;
    int64_t heads;
    struct snug_matrix qkv, o, lse, dout, dqkv; /* o: forward; the last two: backward */
    struct snug_matrix bias;                    /* optional */
    const int32_t *buckets;                     /* by distance + SNUG_CPU_FARTHEST */
    const float *rotations;                     /* [longest,d]: d/2 cosines and sines of each position, or NULL */
    float *sums;                                /* [buckets]: gradient of this sequence's and head's biases, or NULL */
    int32_t window;
    float theta;
    int64_t first, length;  /* its tokens */
    int64_t column, h, d;   /* its channels: column … column + d - 1 of each of q, k, v */
    int64_t channels, keys; /* d and length in whole vectors */
    int64_t stride, span;   /* stride of rows over all keys; over the keys that a block of queries attends to */
    float scale;            /* 1 / sqrt(d) */
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
static void matmul(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_col, const float *b, int64_t b_row,
                   int64_t m, int64_t n, int64_t depth, bool add) {
    int64_t j = 0;
    for (; j + TILE_VECS * VEC_LANES <= n; j += TILE_VECS * VEC_LANES)
        for (int64_t i = 0; i < m; i += TILE_ROWS)
            tile(c + i * c_row + j, c_row, a + i * a_row, a_row, a_col, b + j, b_row, depth, add, TILE_VECS);
    for (; j < n; j += VEC_LANES)
        for (int64_t i = 0; i < m; i += TILE_ROWS)
            tile(c + i * c_row + j, c_row, a + i * a_row, a_row, a_col, b + j, b_row, depth, add, 1);
}

/* Prefetches the next head's channels of a row: this thread most likely computes that head next. */
static void prefetch_next(const struct head *head, struct snug_matrix m, int64_t token, int64_t column) {
    for (int64_t c = 0; c < head->d * snug_dtype_size(m.dtype); c += 64)
        __builtin_prefetch((const uint8_t *)matrix_at(m, token, column + head->d) + c);
}

/* Rotates rows [count, channels], of positions first … first + count - 1, by their angles, or back. */
static void rotate_rows(const struct head *head, float *rows, int64_t first, int64_t count, bool back) {
    const int64_t half = head->d / 2;
    for (int64_t i = 0; head->rotations && i < count; i++) {
        const float *cosines = head->rotations + (first + i) * head->d, *sines = cosines + half;
        float *a = rows + i * head->channels, *b = a + half;
        for (int64_t c = 0; c < half; c += VEC_LANES) {
            const vec x = vec_load(a, SNUG_F32, c, half), y = vec_load(b, SNUG_F32, c, half);
            const vec cosine = vec_load(cosines, SNUG_F32, c, half), up = vec_load(sines, SNUG_F32, c, half);
            const vec sine = back ? -up : up;
            vec_store(a, SNUG_F32, c, half, x * cosine - y * sine);
            vec_store(b, SNUG_F32, c, half, y * cosine + x * sine);
        }
    }
}

/* rows [count, channels] = the head's part of count rows of m, from the sequence's row first on, times scale; zeros up
   to a multiple of ROWS. */
static void copy_rows(const struct head *head, float *rows, struct snug_matrix m, int64_t first, int64_t column,
                      int64_t count, float scale) {
    for (int64_t i = 0; i < count; i++) {
        prefetch_next(head, m, head->first + first + i, column);
        for (int64_t c = 0; c < head->d; c += VEC_LANES)
            vec_write(rows + i * head->channels + c,
                      vec_load(matrix_at(m, head->first + first + i, column), m.dtype, c, head->d) * scale);
    }
    for (int64_t i = count * head->channels; i < (count + ROWS - 1) / ROWS * ROWS * head->channels; i++) rows[i] = 0;
}

/* Columns j … j + VEC_LANES - 1 of columns [d, stride] = these rows of from, of which count are left, the others 0. */
static inline void transpose_rows(const struct head *head, float *columns, int64_t j, const uint8_t *from, int64_t row,
                                  enum snug_dtype dtype, int64_t count) {
    for (int64_t c = 0; c < head->d; c += VEC_LANES) {
        vec square[VEC_LANES];
#pragma GCC unroll 16
        for (int i = 0; i < VEC_LANES; i++) {
            square[i] = vec_all(0);
            if (i < count) square[i] = vec_load(from + i * row, dtype, c, head->d);
        }
        vec_transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < VEC_LANES; i++)
            if (c + i < head->d) vec_write(columns + (c + i) * head->stride + j, square[i]);
    }
}

/* columns [d, stride] = the head's part of m's rows of the sequence, transposed; zeros up to keys. */
static void copy_columns(const struct head *head, float *columns, struct snug_matrix m, int64_t column) {
    for (int64_t j = 0; j < head->keys; j += VEC_LANES)
        transpose_rows(head, columns, j, matrix_at(m, head->first + j, column), m.cols * snug_dtype_size(m.dtype),
                       m.dtype, head->length - j);
}

/* The same for the keys, with their rotation, if any. rows: scratch of VEC_LANES rows. */
static void copy_keys(const struct head *head, float *columns, float *rows) {
    const int64_t column = head->h + head->column, row = head->channels * (int64_t)sizeof(float);
    if (!head->rotations) copy_columns(head, columns, head->qkv, column);
    for (int64_t j = 0; head->rotations && j < head->keys; j += VEC_LANES) {
        const int64_t count = head->length - j < VEC_LANES ? head->length - j : VEC_LANES;
        copy_rows(head, rows, head->qkv, j, column, count, 1);
        rotate_rows(head, rows, j, count, false);
        transpose_rows(head, columns, j, (const uint8_t *)rows, row, SNUG_F32, count);
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

/* A block of queries, and the keys that it is multiplied with: all that any of the queries attends to, from a multiple
   of SNUG_CPU_PAD on. */
struct block {
    int64_t query, count; /* the first, and how many */
    int64_t key, keys;    /* likewise */
    int64_t columns;      /* keys in whole vectors */
};

static struct block block_of(const struct head *head, int64_t query) {
    const int64_t left = head->length - query, count = left < SNUG_CPU_QUERIES ? left : SNUG_CPU_QUERIES;
    struct block b = {.query = query, .count = count, .key = 0, .keys = head->length, .columns = head->keys};
    if (!head->window) return b;
    const int64_t end = query + count + head->window;
    b.key = query > head->window ? (query - head->window) / SNUG_CPU_PAD * SNUG_CPU_PAD : 0;
    b.keys = (end < head->length ? end : head->length) - b.key;
    b.columns = (b.keys + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    return b;
}

/* The block's keys that one of its queries attends to: begin … end - 1, which are in the vectors first … last - 1. */
struct view {
    int64_t begin, end, first, last;
};

static struct view view_of(const struct head *head, const struct block *b, int64_t query) {
    struct view v = {0, b->keys, 0, b->columns};
    if (!head->window) return v;
    if (query - head->window > b->key) v.begin = query - head->window - b->key;
    if (query + head->window + 1 < b->key + b->keys) v.end = query + head->window + 1 - b->key;
    v.first = v.begin / VEC_LANES * VEC_LANES;
    v.last = (v.end + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    return v;
}

/* The lanes of the vector at j that are within the view. */
static inline vec_int in_view(const struct view *v, int64_t j) {
    return vec_below(v->end - j) & ~vec_below(v->begin - j);
}

/* Clears the elements of a row that are outside the view, except in the vectors at its ends. */
static void clear_hidden(float *row, const struct view *v, int64_t columns) {
    for (int64_t j = 0; j < v->first; j += VEC_LANES) vec_write(row + j, vec_all(0));
    for (int64_t j = v->last; j < columns; j += VEC_LANES) vec_write(row + j, vec_all(0));
}

/* A query's dropout factors, or NULL without dropout. masks: rows of a pair of queries, generated with the first
   query. */
static const float *query_mask(const struct head *head, float *masks, const struct block *b, int64_t query) {
    if (head->op->p == 0) return NULL;
    if (query % 2 == 0)
        vec_attention_masks(masks, head->span, b->key, b->keys, &head->dropout, (int32_t)query / 2,
                            head->run->batch->sample[head->first]);
    return masks + query % 2 * head->span;
}

/* ---- biases --------------------------------------------------------------------------------------------------- */

static int32_t bucket_of(const struct head *head, int64_t distance) {
    const int64_t most = SNUG_CPU_FARTHEST, near = distance < -most ? -most : distance > most ? most : distance;
    return head->buckets[near + most];
}

/* biases: that of distance j - i is number j - i + length - 1, so that a query's biases are contiguous. */
static void copy_biases(const struct head *head, float *biases) {
    const int64_t index = head->column / head->d;
    for (int64_t i = 0; head->bias.data && i < 2 * head->stride; i++) {
        const int64_t at = bucket_of(head, i - head->length + 1) * head->bias.cols + index;
        biases[i] = head->bias.dtype == SNUG_F32 ? ((const float *)head->bias.data)[at]
                                                 : snug_bf16_to_f32(((const uint16_t *)head->bias.data)[at]);
    }
}

/* The biases of a query's keys, from the block's first key on. */
static float *biases_of(const struct head *head, float *biases, const struct block *b, int64_t query) {
    return biases + b->key - query + head->length - 1;
}

static void add_biases(const struct head *head, float *scores, float *biases, const struct block *b, int64_t query) {
    const float *bias = biases_of(head, biases, b, query);
    for (int64_t j = 0; head->bias.data && j < b->columns; j += VEC_LANES)
        vec_write(scores + j, vec_read(scores + j) + vec_read(bias + j));
}

/* The biases' gradients, by distance: the sums of dS, which is 0 after the last key. */
static void add_bias_gradients(const struct head *head, float *gradients, const float *dscores, const struct block *b,
                               int64_t query) {
    float *gradient = biases_of(head, gradients, b, query);
    for (int64_t j = 0; head->sums && j < b->columns; j += VEC_LANES)
        vec_write(gradient + j, vec_read(gradient + j) + vec_read(dscores + j));
}

/* The biases' gradients, by bucket. */
static void sum_bias_gradients(const struct head *head, const float *gradients) {
    for (int64_t i = 0; head->sums && i < head->bias.rows; i++) head->sums[i] = 0;
    for (int64_t i = 0; head->sums && i < 2 * head->length - 1; i++)
        head->sums[bucket_of(head, i - head->length + 1)] += gradients[i];
}

/* ---- one head of one sequence --------------------------------------------------------------------------------- */

/* scores = (F * P) times the sum that softmax divides by, which is returned; *lse as above. */
static float softmax_row(const struct view *view, int64_t columns, float *scores, const float *mask, float *lse) {
    const struct view v = *view;
    vec most = vec_all(-INFINITY), sum = {0};
    clear_hidden(scores, &v, columns);
    float *first = scores + v.first, *last = scores + v.last - VEC_LANES;
    vec_write(first, vec_select(in_view(&v, v.first), vec_read(first), vec_all(-INFINITY)));
    vec_write(last, vec_select(in_view(&v, v.last - VEC_LANES), vec_read(last), vec_all(-INFINITY)));
    for (int64_t j = v.first; j < v.last; j += VEC_LANES) most = vec_max(most, vec_read(scores + j));
    const float max = vec_largest(most);
    for (int64_t j = v.first; j < v.last; j += VEC_LANES) {
        vec e = vec_exp(vec_read(scores + j) - max);
        sum += e;
        vec_write(scores + j, mask ? e * vec_read(mask + j) : e);
    }
    float total = vec_sum(sum);
    *lse = max + logf(total);
    return total;
}

static void forward(const struct head *head, float *scratch) {
    const int64_t channels = head->channels, stride = head->stride, span = head->span;
    float *keys = scratch, *values = keys + channels * stride, *queries = values + stride * channels;
    float *out = queries + SNUG_CPU_QUERIES * channels, *scores = out + SNUG_CPU_QUERIES * channels;
    float *masks = scores + SNUG_CPU_QUERIES * span, *more = masks + 2 * span;
    float *biases = more, *rows = more + (head->bias.data ? 2 * stride : 0);
    float *lse = (float *)head->lse.data + head->first * head->heads + head->column / head->d;

    copy_keys(head, keys, rows);
    copy_rows(head, values, head->qkv, 0, 2 * head->h + head->column, head->length, 1);
    copy_biases(head, biases);
    for (int64_t query = 0; query < head->length; query += SNUG_CPU_QUERIES) {
        const struct block b = block_of(head, query);
        float sum[SNUG_CPU_QUERIES];
        copy_rows(head, queries, head->qkv, query, head->column, b.count, head->scale);
        rotate_rows(head, queries, query, b.count, false);
        matmul(scores, span, queries, channels, 1, keys + b.key, stride, b.count, b.columns, head->d, false);
        for (int64_t i = 0; i < b.count; i++) {
            const struct view view = view_of(head, &b, query + i);
            add_biases(head, scores + i * span, biases, &b, query + i);
            sum[i] = softmax_row(&view, b.columns, scores + i * span, query_mask(head, masks, &b, query + i),
                                 lse + (query + i) * head->heads);
        }
        matmul(out, channels, scores, span, 1, values + b.key * channels, channels, b.count, channels, b.keys, false);
        for (int64_t i = 0; i < b.count; i++)
            put_rows(head, head->o, head->first + query + i, head->column, out + i * channels, 1, 1 / sum[i]);
    }
}

/* From S and do v^T of one query: scores becomes F * P, dscores becomes dS. row is scratch. */
static void backward_row(const struct view *view, int64_t columns, float *scores, float *dscores, const float *mask,
                         float *row, float lse) {
    const struct view v = *view;
    vec sum = {0}, weighted = {0};
    clear_hidden(scores, &v, columns);
    clear_hidden(dscores, &v, columns);
    for (int64_t j = v.first; j < v.last; j += VEC_LANES) {
        vec p = vec_exp(vec_read(scores + j) - lse), f = mask ? vec_read(mask + j) : vec_all(1);
        p = vec_select(in_view(&v, j), p, vec_all(0)); /* this query does not attend to the others */
        vec dp = f * vec_read(dscores + j);
        sum += p;
        weighted = vec_fma(p, dp, weighted);
        vec_write(scores + j, f * p);
        vec_write(dscores + j, dp);
        vec_write(row + j, p);
    }
    const float delta = vec_sum(weighted) / vec_sum(sum);
    for (int64_t j = v.first; j < v.last; j += VEC_LANES)
        vec_write(dscores + j, vec_read(row + j) * (vec_read(dscores + j) - delta));
}

/* Clears the rows [channels] of gradients that no block before b has written. */
static void clear_new_keys(const struct head *head, float *gradients, const struct block *b) {
    const struct block before = block_of(head, b->query - (b->query ? SNUG_CPU_QUERIES : 0));
    const int64_t from = b->query ? before.key + before.keys : 0;
    const int64_t count = (b->key + b->keys - from) * head->channels;
    memset(gradients + from * head->channels, 0, (size_t)count * sizeof *gradients);
}

static void backward(const struct head *head, float *scratch) {
    const int64_t channels = head->channels, stride = head->stride, span = head->span;
    float *key_columns = scratch, *value_columns = key_columns + channels * stride;
    float *keys = value_columns + channels * stride, *dkeys = keys + stride * channels;
    float *dvalues = dkeys + stride * channels, *queries = dvalues + stride * channels;
    float *dout = queries + SNUG_CPU_QUERIES * channels, *dqueries = dout + SNUG_CPU_QUERIES * channels;
    float *scores = dqueries + SNUG_CPU_QUERIES * channels, *dscores = scores + SNUG_CPU_QUERIES * span;
    float *masks = dscores + SNUG_CPU_QUERIES * span, *row = masks + 2 * span, *more = row + span;
    float *biases = more, *dbiases = more + 2 * stride, *rows = more + (head->bias.data ? 4 * stride : 0);
    const float *lse = (const float *)head->lse.data + head->first * head->heads + head->column / head->d;

    copy_keys(head, key_columns, rows);
    copy_columns(head, value_columns, head->qkv, 2 * head->h + head->column);
    copy_rows(head, keys, head->qkv, 0, head->h + head->column, head->length, 1);
    rotate_rows(head, keys, 0, head->length, false);
    copy_biases(head, biases);
    if (head->sums) memset(dbiases, 0, (size_t)(2 * stride) * sizeof *dbiases);
    for (int64_t query = 0; query < head->length; query += SNUG_CPU_QUERIES) {
        const struct block b = block_of(head, query);
        float *dk = dkeys + b.key * channels, *dv = dvalues + b.key * channels;
        const bool add = head->window || query > 0;
        copy_rows(head, queries, head->qkv, query, head->column, b.count, head->scale);
        rotate_rows(head, queries, query, b.count, false);
        copy_rows(head, dout, head->dout, query, head->column, b.count, 1);
        matmul(scores, span, queries, channels, 1, key_columns + b.key, stride, b.count, b.columns, head->d, false);
        matmul(dscores, span, dout, channels, 1, value_columns + b.key, stride, b.count, b.columns, head->d, false);
        for (int64_t i = 0; i < b.count; i++) {
            const struct view view = view_of(head, &b, query + i);
            add_biases(head, scores + i * span, biases, &b, query + i);
            backward_row(&view, b.columns, scores + i * span, dscores + i * span,
                         query_mask(head, masks, &b, query + i), row, lse[(query + i) * head->heads]);
            add_bias_gradients(head, dbiases, dscores + i * span, &b, query + i);
        }
        matmul(dqueries, channels, dscores, span, 1, keys + b.key * channels, channels, b.count, channels, b.keys,
               false);
        rotate_rows(head, dqueries, query, b.count, true);
        put_rows(head, head->dqkv, head->first + query, head->column, dqueries, b.count, head->scale);
        if (head->window) {
            clear_new_keys(head, dvalues, &b);
            clear_new_keys(head, dkeys, &b);
        }
        matmul(dv, channels, scores, 1, span, dout, channels, b.keys, channels, b.count, add);
        matmul(dk, channels, dscores, 1, span, queries, channels, b.keys, channels, b.count, add);
    }
    rotate_rows(head, dkeys, 0, head->length, true);
    put_rows(head, head->dqkv, head->first, head->h + head->column, dkeys, head->length, 1);
    put_rows(head, head->dqkv, head->first, 2 * head->h + head->column, dvalues, head->length, 1);
    sum_bias_gradients(head, dbiases);
}

/* ---- all heads ------------------------------------------------------------------------------------------------ */

/* Cosines and sines of all positions of the batch. */
static void make_rotations(const struct snug_run *run, float *rotations, int64_t d, double theta) {
    const int64_t half = d / 2;
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t c = 0; c < half; c++) {
        const double frequency = pow(theta, -2.0 * (double)c / (double)d);
        for (int64_t place = 0; place < run->batch->longest; place++) {
            rotations[place * d + c] = (float)cos((double)place * frequency);
            rotations[place * d + half + c] = (float)sin((double)place * frequency);
        }
    }
}

/* Runs work on every head of every sequence. like: the fields that all heads share; dbias: whether its sums are
   needed. */
static void for_each_head(struct snug_run *run, const struct snug_op *op, struct head *like, bool dbias,
                          void work(const struct head *, float *)) {
    const struct snug_cpu_attention_scratch scratch = snug_cpu_attention_scratch(run->program, op);
    float *const base = run->workspace, *const sums = base + scratch.sums;
    const int64_t lanes = VEC_LANES;
    like->run = run;
    like->op = op;
    like->h = like->qkv.cols / 3;
    like->d = like->h / like->heads;
    like->channels = (like->d + lanes - 1) / lanes * lanes;
    like->scale = 1 / sqrtf((float)like->d);
    if (like->theta > 0) {
        like->rotations = base + scratch.rotations;
        make_rotations(run, base + scratch.rotations, like->d, like->theta);
    }
    if (like->bias.data) {
        int32_t *buckets = (int32_t *)(base + scratch.buckets);
        for (int32_t i = 0; i < SNUG_CPU_DISTANCES; i++)
            buckets[i] = snug_relative_bucket(i - SNUG_CPU_FARTHEST, (int32_t)like->bias.rows);
        like->buckets = buckets;
    }

#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 4)
    for (int64_t pair = 0; pair < run->batch->sequences * like->heads; pair++) {
        int64_t sequence = pair / like->heads, index = pair % like->heads;
        struct head head = *like;
        head.first = run->batch->offsets[sequence];
        head.length = run->batch->offsets[sequence + 1] - head.first;
        head.column = index * head.d;
        head.keys = (head.length + lanes - 1) / lanes * lanes;
        head.stride = snug_cpu_key_stride(head.length);
        head.span = snug_cpu_score_stride(head.length, head.window);
        head.dropout = vec_dropout(run, head.op, (int32_t)index);
        if (dbias) head.sums = sums + pair * head.bias.rows;
        work(&head, base + scratch.threads + omp_get_thread_num() * scratch.thread);
    }
}

snug_status SNUG_KERNEL(attention)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention *a = &op->attention;
    struct head head = {.heads = a->heads,
                        .qkv = snug_matrix_of(run, a->qkv),
                        .o = snug_matrix_of(run, a->o),
                        .lse = snug_matrix_of(run, a->lse),
                        .bias = snug_matrix_of(run, a->bias),
                        .window = a->window,
                        .theta = a->rope_theta};
    for_each_head(run, op, &head, false, forward);
    return SNUG_OK;
}

/* dbias += the sums of all sequences, in order. */
static void put_bias_gradient(const struct snug_run *run, const struct snug_op *op, int64_t heads) {
    const struct snug_cpu_attention_scratch scratch = snug_cpu_attention_scratch(run->program, op);
    const struct snug_matrix dbias = snug_matrix_of(run, op->attention_backward.dbias);
    const float *sums = (const float *)run->workspace + scratch.sums;
    float *out = (float *)dbias.data;
    for (int64_t bucket = 0; bucket < dbias.rows; bucket++)
        for (int64_t head = 0; head < heads; head++) {
            double sum = snug_run_overwrites(run, op) ? 0 : (double)out[bucket * heads + head];
            for (int64_t sequence = 0; sequence < run->batch->sequences; sequence++)
                sum += (double)sums[(sequence * heads + head) * dbias.rows + bucket];
            out[bucket * heads + head] = (float)sum;
        }
}

snug_status SNUG_KERNEL(attention_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention_backward *a = &op->attention_backward;
    struct head head = {.heads = a->heads,
                        .dout = snug_matrix_of(run, a->dout),
                        .qkv = snug_matrix_of(run, a->qkv),
                        .lse = snug_matrix_of(run, a->lse),
                        .dqkv = snug_matrix_of(run, a->dqkv),
                        .bias = snug_matrix_of(run, a->bias),
                        .window = a->window,
                        .theta = a->rope_theta};
    for_each_head(run, op, &head, a->dbias != 0, backward);
    if (a->dbias) put_bias_gradient(run, op, a->heads);
    return SNUG_OK;
}
