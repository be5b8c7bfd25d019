/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one head within one sequence: with scores S = cap(q k^T * scale) + b, where cap may be the identity and
 * b may be 0, and probabilities P = softmax(S) over the keys that a query attends to, o = (F * P) v,   F the dropout
 * factors, element by element, lse_i = log sum_j exp(S_ij), so that P_ij = exp(S_ij - lse_i) can be recomputed without
 * the whole row. Backward, with dP_ij = F_ij (do_i . v_j), dS_ij = P_ij (dP_ij - sum_j P_ij dP_ij) and dX_ij = dS_ij
 * cap'(X_ij), the gradient of X = q k^T * scale: dv = (F * P)^T do,   dq = dX k * scale,   dk = dX^T q * scale, dbias
 * of a bucket is the sum of its dS_ij. The inner sum is formed from the row at hand, not as do_i . o_i, which is the
 * same but for rounding: so the rows of dS add up to zero as they should, and with them the gradient of the key's bias.
 *
 * With position keys and queries S_ij has (q_i . pk_r + k_j . pq_r) * scale, too, where r is the row of the pair's
 * distance: two matmuls, of a block of queries and of all keys, with the rows that they use, of which a score reads one
 * element each. Backward, their gradients are sums over the batch. It is cut into SNUG_CPU_POSITION_PARTS parts,
 * whatever the number of threads, and a thread takes one head of all sequences of a part.
 *
 * Forward, a thread takes one query head of one sequence at a time; backward, one key/value head and the query heads
 * that read it, one after the other. So it owns all that it writes. It copies the keys and values into scratch as fp32,
 * transposed where an inner product runs over channels, so that every matmul below multiplies rows by vectors. Then it
 * takes up to SNUG_CPU_QUERIES queries at a time, and the keys that any of them attends to. Scratch is linear in the
 * longest sequence. Rows and columns of scratch are padded to whole tiles; padding never reaches a result.
 */
#include "backend/cpu/rows.h"
#include "backend/cpu/tiles.h"

enum { ROWS = SNUG_CPU_TILE_ROWS };

/* One head of one sequence. */
struct head {
    const struct snug_run *run;
    const struct snug_op *op;
    const struct snug_attention_form *form;
    struct snug_matrix q, k, v, o, lse, dout, dq, dk, dv; /* o: forward; the last four: backward */
    struct snug_matrix bias;                              /* optional */
    const int32_t *buckets;                               /* by distance + SNUG_CPU_FARTHEST */
    float *sums;                                          /* [sequences,heads,buckets]: gradients of biases, or NULL */
    struct snug_matrix pk, pq, dpk, dpq;                  /* optional */
    const int32_t *rows;                                  /* of pk and pq, by distance, which may be below 0 */
    float *key_sums, *query_sums; /* [2*span,channels]: gradients of this head's pk and pq, of this part of the batch */
    int64_t sequence, first, length; /* its tokens */
    int64_t index, d;                /* of the query head; its channels */
    int64_t column[3];               /* of q, k, v */
    int64_t channels, keys;          /* d and length in whole vectors */
    int64_t stride, span; /* stride of rows over all keys; over the keys that a block of queries attends to */
    bool windowed;        /* queries attend to a part of the keys */
    struct vec_dropout dropout;
};

/* Prefetches the next head's channels of a row: this thread most likely computes that head next. */
static void prefetch_next(const struct head *head, struct snug_matrix m, int64_t token, int64_t column) {
    for (int64_t c = 0; c < head->d * snug_dtype_size(m.dtype); c += 64)
        __builtin_prefetch((const uint8_t *)matrix_at(m, token, column + head->d) + c);
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
    const int64_t before = head->form->before, after = head->form->after, end = query + count + after;
    const int64_t tile = VEC_LANES > ROWS ? VEC_LANES : ROWS; /* later blocks clear whole tiles of gradients */
    struct block b = {.query = query, .count = count, .key = 0, .keys = head->length, .columns = head->keys};
    if (!head->windowed) return b;
    b.key = before >= 0 && query > before ? (query - before) / SNUG_CPU_PAD * SNUG_CPU_PAD : 0;
    b.keys = (after >= 0 && end < head->length ? end : head->length) - b.key;
    b.columns = (b.keys + tile - 1) / tile * tile;
    return b;
}

/* The block's keys that one of its queries attends to: begin … end - 1, which are in the vectors first … last - 1. */
struct view {
    int64_t begin, end, first, last;
};

static struct view view_of(const struct head *head, const struct block *b, int64_t query) {
    const int64_t begin = query - head->form->before - b->key, end = query + head->form->after + 1 - b->key;
    struct view v = {0, b->keys, 0, b->columns};
    if (!head->windowed) return v;
    if (head->form->before >= 0 && begin > 0) v.begin = begin;
    if (head->form->after >= 0 && end < b->keys) v.end = end;
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
    for (int64_t i = 0; head->bias.data && i < 2 * head->stride; i++) {
        const int64_t at = bucket_of(head, i - head->length + 1) * head->bias.cols + head->index;
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
    if (!head->sums) return;
    float *sums = head->sums + (head->sequence * head->form->heads + head->index) * head->bias.rows;
    for (int64_t i = 0; i < head->bias.rows; i++) sums[i] = 0;
    for (int64_t i = 0; i < 2 * head->length - 1; i++) sums[bucket_of(head, i - head->length + 1)] += gradients[i];
}

/* ---- position keys and queries ---------------------------------------------------------------------------------- */

/* Buffers over the rows of pk and pq that a sequence uses. */
struct positions {
    struct head table; /* these rows in place of a sequence's tokens */
    float *key_columns, *queries, *of_queries, *of_keys, *keys, *dof_queries, *dof_keys;
};

static int64_t whole_vectors(int64_t n) { return (n + VEC_LANES - 1) / VEC_LANES * VEC_LANES; }

static bool has_positions(const struct head *head) { return head->pk.data || head->pq.data; }

static int64_t whole_tiles(int64_t rows) { return (rows + ROWS - 1) / ROWS * ROWS; }

/* Numbers from `first` on, which is a multiple of VEC_LANES. */
struct range {
    int64_t first, count;
};

static struct range range_of(int64_t first, int64_t end) {
    const int64_t whole = first / VEC_LANES * VEC_LANES;
    return (struct range){whole, end - whole};
}

/* The rows of the table, from its first one on, that distances from `nearest` to `farthest` use. */
static struct range rows_between(const struct head *head, const struct head *table, int64_t nearest, int64_t farthest) {
    return range_of(head->rows[nearest] - table->first, head->rows[farthest] + 1 - table->first);
}

/* Those of a block of queries with all keys, and of a tile of keys with all queries. */
static struct range rows_of_queries(const struct head *head, const struct head *table, const struct block *b) {
    return rows_between(head, table, b->query - head->length + 1, b->query + b->count - 1);
}
static struct range rows_of_keys(const struct head *head, const struct head *table, int64_t key) {
    const int64_t last = key + ROWS < head->length ? key + ROWS - 1 : head->length - 1;
    return rows_between(head, table, -last, head->length - 1 - key);
}

/* The keys that are compared with any of ROWS rows from `row` on. *distance: the first one of those rows, from the call
   before, in the order of rows; at first the smallest one. */
static struct range keys_of_rows(const struct head *head, const struct head *table, int64_t row, int64_t *distance) {
    const int64_t farthest = head->length - 1, first = *distance;
    while (*distance <= farthest && head->rows[*distance] - table->first < row + ROWS) ++*distance;
    return range_of(*distance > 0 ? 0 : 1 - *distance, first > 0 ? head->length - first : head->length);
}

/* Lays the buffers out in scratch, and copies the head's part of both tables. */
static struct positions begin_positions(const struct head *head, float *scratch, const float *key_columns) {
    struct positions p = {.table = *head};
    if (!has_positions(head)) return p;
    struct head *table = &p.table;
    const int64_t column = head->index * head->d, farthest = head->length - 1;
    table->first = head->rows[-farthest];
    table->length = head->rows[farthest] + 1 - table->first;
    table->keys = (table->length + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    table->stride = snug_cpu_key_stride(table->length);
    p.key_columns = scratch;
    p.queries = p.key_columns + head->channels * table->stride;
    p.of_queries = p.queries + table->stride * head->channels;
    p.of_keys = p.of_queries + SNUG_CPU_QUERIES * table->stride;
    p.keys = p.of_keys + table->stride * head->stride;
    p.dof_queries = p.keys + table->stride * head->channels;
    p.dof_keys = p.dof_queries + SNUG_CPU_QUERIES * table->stride;
    if (head->pk.data) copy_columns(table, p.key_columns, head->pk, column);
    if (!head->pq.data) return p;
    copy_rows(table, p.queries, head->pq, 0, column, table->length, head->form->scale);
    int64_t distance = -farthest;
    for (int64_t row = 0; row < table->length; row += ROWS) {
        const struct range keys = keys_of_rows(head, table, row, &distance);
        matmul(p.of_keys + row * head->stride + keys.first, head->stride, p.queries + row * head->channels,
               head->channels, 1, key_columns + keys.first, head->stride, ROWS, whole_vectors(keys.count), head->d,
               false);
    }
    return p;
}

/* The scores of a block's queries get those with position keys and queries. */
static void add_position_scores(const struct head *head, const struct positions *p, float *scores, const float *queries,
                                const struct block *b) {
    const struct head *table = &p->table;
    if (head->pk.data) {
        const struct range used = rows_of_queries(head, table, b);
        matmul(p->of_queries + used.first, table->stride, queries, head->channels, 1, p->key_columns + used.first,
               table->stride, b->count, whole_vectors(used.count), head->d, false);
    }
    for (int64_t i = 0; has_positions(head) && i < b->count; i++) {
        const int32_t *rows = head->rows + b->query + i;
        float *row = scores + i * head->span;
        const float *of_query = p->of_queries + i * table->stride - table->first;
        const float *of_keys = p->of_keys - table->first * head->stride;
        for (int64_t j = 0; head->pk.data && j < head->length; j++) row[j] += of_query[rows[-j]];
        for (int64_t j = 0; head->pq.data && j < head->length; j++) row[j] += of_keys[rows[-j] * head->stride + j];
    }
}

/* Before the first block: clears gradients, copies the position keys as they are. */
static void begin_position_gradients(const struct head *head, const struct positions *p) {
    const struct head *table = &p->table;
    if (head->pk.data) copy_rows(table, p->keys, head->pk, 0, head->index * head->d, table->length, 1);
    if (head->pq.data)
        memset(p->dof_keys, 0, (size_t)(whole_tiles(table->length) * head->stride) * sizeof *p->dof_keys);
}

/* From dX of a block's queries: adds to dq, and to this part's sums for pk. */
static void add_position_gradients(const struct head *head, const struct positions *p, const float *dscores,
                                   float *dqueries, const float *queries, const struct block *b) {
    const struct head *table = &p->table;
    if (!has_positions(head)) return;
    const struct range used = rows_of_queries(head, table, b);
    for (int64_t i = 0; i < SNUG_CPU_QUERIES; i++)
        memset(p->dof_queries + i * table->stride + used.first, 0,
               (size_t)whole_tiles(used.count) * sizeof *p->dof_queries);
    for (int64_t i = 0; i < b->count; i++) {
        const int32_t *rows = head->rows + b->query + i;
        const float *row = dscores + i * head->span;
        float *of_query = p->dof_queries + i * table->stride - table->first;
        float *of_keys = p->dof_keys - table->first * head->stride;
        for (int64_t j = 0; head->pk.data && j < head->length; j++) of_query[rows[-j]] += row[j];
        for (int64_t j = 0; head->pq.data && j < head->length; j++) of_keys[rows[-j] * head->stride + j] += row[j];
    }
    if (!head->pk.data) return;
    matmul(dqueries, head->channels, p->dof_queries + used.first, table->stride, 1,
           p->keys + used.first * head->channels, head->channels, b->count, head->channels, used.count, true);
    if (head->dpk.data)
        matmul(head->key_sums + (table->first + used.first) * head->channels, head->channels,
               p->dof_queries + used.first, 1, table->stride, queries, head->channels, used.count, head->channels,
               b->count, true);
}

/* After the last block: adds to dk, and to this part's sums for pq, which are multiplied by the scale in the end. */
static void end_position_gradients(const struct head *head, const struct positions *p, float *dkeys,
                                   const float *keys) {
    const struct head *table = &p->table;
    if (!head->pq.data) return;
    for (int64_t key = 0; key < head->length; key += ROWS) {
        const struct range rows = rows_of_keys(head, table, key);
        matmul(dkeys + key * head->channels, head->channels, p->dof_keys + rows.first * head->stride + key, 1,
               head->stride, p->queries + rows.first * head->channels, head->channels, ROWS, head->channels, rows.count,
               true);
    }
    int64_t distance = 1 - head->length;
    for (int64_t row = 0; head->dpq.data && row < table->length; row += ROWS) {
        const struct range of = keys_of_rows(head, table, row, &distance);
        matmul(head->query_sums + (table->first + row) * head->channels, head->channels,
               p->dof_keys + row * head->stride + of.first, head->stride, 1, keys + of.first * head->channels,
               head->channels, ROWS, head->channels, of.count, true);
    }
}

/* ---- one head of one sequence --------------------------------------------------------------------------------- */

/* Caps a row of scores; slopes: NULL, or becomes the cap's derivatives. */
static void cap_scores(const struct head *head, const struct view *view, float *scores, float *slopes) {
    const float cap = head->form->softcap;
    for (int64_t j = view->first; cap > 0 && j < view->last; j += VEC_LANES) {
        const vec t = vec_tanh(vec_read(scores + j) / cap);
        vec_write(scores + j, t * cap);
        if (slopes) vec_write(slopes + j, vec_fma(-t, t, vec_all(1)));
    }
}

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

static float *lse_of(const struct head *head, int64_t query) {
    return (float *)head->lse.data + (head->first + query) * head->form->heads + head->index;
}

/* The last part of a thread's scratch. */
static float *positions_of(const struct head *head, float *scratch) {
    const struct snug_cpu_attention_scratch s = snug_cpu_attention_scratch(head->run->program, head->op);
    return scratch + s.thread - s.positions;
}

static void forward(const struct head *head, float *scratch) {
    const int64_t channels = head->channels, stride = head->stride, span = head->span;
    float *keys = scratch, *values = keys + channels * stride, *queries = values + stride * channels;
    float *out = queries + SNUG_CPU_QUERIES * channels, *scores = out + SNUG_CPU_QUERIES * channels;
    float *masks = scores + SNUG_CPU_QUERIES * span, *biases = masks + 2 * span;

    copy_columns(head, keys, head->k, head->column[1]);
    const struct positions positions = begin_positions(head, positions_of(head, scratch), keys);
    copy_rows(head, values, head->v, 0, head->column[2], head->length, 1);
    copy_biases(head, biases);
    for (int64_t query = 0; query < head->length; query += SNUG_CPU_QUERIES) {
        const struct block b = block_of(head, query);
        float sum[SNUG_CPU_QUERIES];
        copy_rows(head, queries, head->q, query, head->column[0], b.count, head->form->scale);
        matmul(scores, span, queries, channels, 1, keys + b.key, stride, b.count, b.columns, head->d, false);
        add_position_scores(head, &positions, scores, queries, &b);
        for (int64_t i = 0; i < b.count; i++) {
            const struct view view = view_of(head, &b, query + i);
            cap_scores(head, &view, scores + i * span, NULL);
            add_biases(head, scores + i * span, biases, &b, query + i);
            sum[i] = softmax_row(&view, b.columns, scores + i * span, query_mask(head, masks, &b, query + i),
                                 lse_of(head, query + i));
        }
        matmul(out, channels, scores, span, 1, values + b.key * channels, channels, b.count, channels, b.keys, false);
        for (int64_t i = 0; i < b.count; i++)
            put_rows(head, head->o, head->first + query + i, head->index * head->d, out + i * channels, 1, 1 / sum[i]);
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

struct buffers {
    float *key_columns, *value_columns, *keys, *dkeys, *dvalues, *queries, *dout, *dqueries, *scores, *dscores, *masks,
        *row, *biases, *dbiases, *slopes, *positions;
};

static struct buffers backward_buffers(const struct head *head, float *scratch) {
    const int64_t channels = head->channels, stride = head->stride, span = head->span;
    struct buffers m = {.key_columns = scratch};
    m.value_columns = m.key_columns + channels * stride;
    m.keys = m.value_columns + channels * stride;
    m.dkeys = m.keys + stride * channels;
    m.dvalues = m.dkeys + stride * channels;
    m.queries = m.dvalues + stride * channels;
    m.dout = m.queries + SNUG_CPU_QUERIES * channels;
    m.dqueries = m.dout + SNUG_CPU_QUERIES * channels;
    m.scores = m.dqueries + SNUG_CPU_QUERIES * channels;
    m.dscores = m.scores + SNUG_CPU_QUERIES * span;
    m.masks = m.dscores + SNUG_CPU_QUERIES * span;
    m.row = m.masks + 2 * span;
    m.biases = m.row + span;
    m.dbiases = m.biases + 2 * stride;
    m.slopes = m.biases + (head->bias.data ? 4 * stride : 0);
    m.positions = positions_of(head, scratch);
    return m;
}

/* From S and do v^T of a block's queries: scores becomes F * P, dscores becomes dX. */
static void backward_rows(const struct head *head, const struct buffers *m, const struct block *b) {
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t query = b->query + i;
        float *scores = m->scores + i * head->span, *dscores = m->dscores + i * head->span;
        const struct view view = view_of(head, b, query);
        cap_scores(head, &view, scores, m->slopes);
        add_biases(head, scores, m->biases, b, query);
        backward_row(&view, b->columns, scores, dscores, query_mask(head, m->masks, b, query), m->row,
                     *lse_of(head, query));
        add_bias_gradients(head, m->dbiases, dscores, b, query);
        for (int64_t j = view.first; head->form->softcap > 0 && j < view.last; j += VEC_LANES)
            vec_write(dscores + j, vec_read(dscores + j) * vec_read(m->slopes + j));
    }
}

/* dq of a query head, and its part of dk and dv; first: of the heads that share them. */
static void backward_queries(const struct head *head, const struct buffers *m, bool first) {
    const int64_t channels = head->channels, stride = head->stride, span = head->span;
    const struct positions positions = begin_positions(head, m->positions, m->key_columns);
    begin_position_gradients(head, &positions);
    copy_biases(head, m->biases);
    if (head->sums) memset(m->dbiases, 0, (size_t)(2 * stride) * sizeof *m->dbiases);
    for (int64_t query = 0; query < head->length; query += SNUG_CPU_QUERIES) {
        const struct block b = block_of(head, query);
        float *dk = m->dkeys + b.key * channels, *dv = m->dvalues + b.key * channels;
        const bool add = head->windowed || query > 0 || !first;
        copy_rows(head, m->queries, head->q, query, head->column[0], b.count, head->form->scale);
        copy_rows(head, m->dout, head->dout, query, head->index * head->d, b.count, 1);
        matmul(m->scores, span, m->queries, channels, 1, m->key_columns + b.key, stride, b.count, b.columns, head->d,
               false);
        matmul(m->dscores, span, m->dout, channels, 1, m->value_columns + b.key, stride, b.count, b.columns, head->d,
               false);
        add_position_scores(head, &positions, m->scores, m->queries, &b);
        backward_rows(head, m, &b);
        matmul(m->dqueries, channels, m->dscores, span, 1, m->keys + b.key * channels, channels, b.count, channels,
               b.keys, false);
        add_position_gradients(head, &positions, m->dscores, m->dqueries, m->queries, &b);
        put_rows(head, head->dq, head->first + query, head->column[0], m->dqueries, b.count, head->form->scale);
        if (head->windowed && first) {
            clear_new_keys(head, m->dvalues, &b);
            clear_new_keys(head, m->dkeys, &b);
        }
        matmul(dv, channels, m->scores, 1, span, m->dout, channels, b.keys, channels, b.count, add);
        matmul(dk, channels, m->dscores, 1, span, m->queries, channels, b.keys, channels, b.count, add);
    }
    sum_bias_gradients(head, m->dbiases);
    end_position_gradients(head, &positions, m->dkeys, m->keys);
}

/* Sets what depends on the query head. */
static void choose_head(struct head *head, int64_t index) {
    const struct snug_attention_form *form = head->form;
    const int64_t own = index / (form->heads / form->kv_heads);
    head->index = index;
    for (int n = 0; n < 3; n++) head->column[n] = form->column[n] + (n ? own : index) * head->d;
    head->dropout = vec_dropout(head->run, head->op, (int32_t)index);
}

static void backward(const struct head *like, float *scratch) {
    const int64_t group = like->form->heads / like->form->kv_heads;
    const struct buffers m = backward_buffers(like, scratch);
    struct head head = *like;
    copy_columns(&head, m.key_columns, head.k, head.column[1]);
    copy_columns(&head, m.value_columns, head.v, head.column[2]);
    copy_rows(&head, m.keys, head.k, 0, head.column[1], head.length, 1);
    for (int64_t i = 0; i < group; i++) {
        choose_head(&head, like->index + i);
        backward_queries(&head, &m, i == 0);
    }
    put_rows(&head, head.dk, head.first, head.column[1], m.dkeys, head.length, 1);
    put_rows(&head, head.dv, head.first, head.column[2], m.dvalues, head.length, 1);
}

/* ---- all heads ------------------------------------------------------------------------------------------------ */

/* The tables by distance that all heads share, in scratch. */
static void tabulate_distances(struct head *like, const struct snug_cpu_attention_scratch *scratch) {
    float *const base = like->run->workspace;
    if (like->bias.data) {
        int32_t *buckets = (int32_t *)(base + scratch->buckets);
        for (int32_t i = 0; i < SNUG_CPU_DISTANCES; i++)
            buckets[i] = snug_relative_bucket(i - SNUG_CPU_FARTHEST, (int32_t)like->bias.rows);
        like->buckets = buckets;
    }
    if (has_positions(like)) {
        const int64_t farthest = like->run->program->longest - 1;
        const int32_t span = (int32_t)(like->pk.data ? like->pk.rows : like->pq.rows) / 2;
        int32_t *rows = (int32_t *)(base + scratch->rows) + (farthest > 0 ? farthest : 0);
        for (int64_t i = -farthest; i <= farthest; i++) rows[i] = snug_position_row(i, span, like->form->farthest);
        like->rows = rows;
    }
}

static bool sums_positions(const struct head *head) { return head->dpk.data || head->dpq.data; }

/* The head's sums for pk and pq, of a part of the batch. */
static void clear_position_sums(struct head *head, const struct snug_cpu_attention_scratch *scratch, int64_t part) {
    if (!sums_positions(head)) return;
    head->key_sums =
        (float *)head->run->workspace + scratch->parts + (part * head->form->heads + head->index) * scratch->part;
    head->query_sums = head->key_sums + scratch->part / 2;
    memset(head->key_sums, 0, (size_t)scratch->part * sizeof *head->key_sums);
}

/* Runs work on every head of every sequence, or on every group of query heads that share keys. like: the fields that
   all heads share; dbias: whether its sums are needed. */
static void for_each_head(struct snug_run *run, const struct snug_op *op, struct head *like, int64_t groups, bool dbias,
                          void work(const struct head *, float *)) {
    const struct snug_cpu_attention_scratch scratch = snug_cpu_attention_scratch(run->program, op);
    float *const base = run->workspace;
    const int64_t lanes = VEC_LANES, group = like->form->heads / groups, sequences = run->batch->sequences;
    like->run = run;
    like->op = op;
    like->d = like->form->head_dim;
    like->channels = (like->d + lanes - 1) / lanes * lanes;
    like->windowed = snug_cpu_is_windowed(like->form);
    if (dbias) like->sums = base + scratch.sums;
    tabulate_distances(like, &scratch);
    const int64_t parts = sums_positions(like) ? SNUG_CPU_POSITION_PARTS : sequences;

#pragma omp parallel for num_threads(run->threads) schedule(dynamic, sums_positions(like) ? 1 : 4)
    for (int64_t pair = 0; pair < parts * groups; pair++) {
        const int64_t part = pair / groups, end = sequences * (part + 1) / parts;
        struct head head = *like;
        choose_head(&head, pair % groups * group);
        clear_position_sums(&head, &scratch, part);
        for (head.sequence = sequences * part / parts; head.sequence < end; head.sequence++) {
            head.first = run->batch->offsets[head.sequence];
            head.length = run->batch->offsets[head.sequence + 1] - head.first;
            head.keys = (head.length + lanes - 1) / lanes * lanes;
            head.stride = snug_cpu_key_stride(head.length);
            head.span = snug_cpu_score_stride(head.length, head.form);
            if (head.length == 0 && has_positions(&head)) continue; /* it has no distances */
            work(&head, base + scratch.threads + omp_get_thread_num() * scratch.thread);
        }
    }
}

snug_status SNUG_KERNEL(attention)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention *a = &op->attention;
    struct head head = {.form = &a->form,
                        .q = snug_matrix_of(run, a->q),
                        .k = snug_matrix_of(run, a->k),
                        .v = snug_matrix_of(run, a->v),
                        .o = snug_matrix_of(run, a->o),
                        .lse = snug_matrix_of(run, a->lse),
                        .bias = snug_matrix_of(run, a->bias),
                        .pk = snug_matrix_of(run, a->pk),
                        .pq = snug_matrix_of(run, a->pq)};
    for_each_head(run, op, &head, a->form.heads, false, forward);
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

/* The gradient of pk (second 0) or pq (1), if it is needed, = scale * the sums of all parts, in order. */
static void put_position_gradient(const struct head *head, struct snug_matrix gradient, int64_t second, float scale) {
    const struct snug_cpu_attention_scratch scratch = snug_cpu_attention_scratch(head->run->program, head->op);
    const float *parts = (const float *)head->run->workspace + scratch.parts + second * scratch.part / 2;
    const int64_t heads = head->form->heads, next = heads * scratch.part;
    if (!gradient.data) return;

#pragma omp parallel for num_threads(head->run->threads) schedule(guided)
    for (int64_t row = 0; row < gradient.rows; row++)
        for (int64_t index = 0; index < heads; index++)
            for (int64_t c = 0; c < head->d; c += VEC_LANES) {
                const float *sums = parts + index * scratch.part + row * head->channels + c;
                vec sum = {0};
                for (int64_t part = 0; part < SNUG_CPU_POSITION_PARTS; part++) sum += vec_read(sums + part * next);
                vec_store(matrix_at(gradient, row, index * head->d), gradient.dtype, c, head->d, sum * scale);
            }
}

snug_status SNUG_KERNEL(attention_backward)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_attention_backward *a = &op->attention_backward;
    struct head head = {.form = &a->form,
                        .dout = snug_matrix_of(run, a->dout),
                        .q = snug_matrix_of(run, a->q),
                        .k = snug_matrix_of(run, a->k),
                        .v = snug_matrix_of(run, a->v),
                        .lse = snug_matrix_of(run, a->lse),
                        .dq = snug_matrix_of(run, a->dq),
                        .dk = snug_matrix_of(run, a->dk),
                        .dv = snug_matrix_of(run, a->dv),
                        .bias = snug_matrix_of(run, a->bias),
                        .pk = snug_matrix_of(run, a->pk),
                        .pq = snug_matrix_of(run, a->pq),
                        .dpk = snug_matrix_of(run, a->dpk),
                        .dpq = snug_matrix_of(run, a->dpq)};
    for_each_head(run, op, &head, a->form.kv_heads, a->dbias != 0, backward);
    if (a->dbias) put_bias_gradient(run, op, a->form.heads);
    put_position_gradient(&head, head.dpk, 0, 1);
    put_position_gradient(&head, head.dpq, 1, a->form.scale);
    return SNUG_OK;
}
