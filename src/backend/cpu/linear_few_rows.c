/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward matmuls of few rows of an F32 tensor, as in a call with one sentence. oneDNN packs the weights in every call,
 * which takes longer than the products of few rows. Here the weights are read once, as they are stored: rows of x and
 * rows of w are multiplied along the inner dimension, which is contiguous in both, and each result is the sum of a
 * vector's lanes. A result has the same bits whatever the number of rows, its place among them, the number of threads,
 * and whether the weights are stored in F32 or are BF16 values.
 */
#include "backend/cpu/linear.h"
#include "backend/cpu/vec.h"
#include "core/min_max.h"

enum {
    COLUMNS = 4,                         /* a tile's columns of y, which are rows of w */
    ROWS = VEC_LANES / COLUMNS,          /* its rows of y: as many results as a vector has lanes */
    HALF_ROWS = ROWS > 1 ? ROWS / 2 : 1, /* of a tile where y ends */
    INNER = 512,                         /* of the inner dimension at a time, so that operands stay in the cache */
    AHEAD = 2                            /* rows of w that a tile fetches for the next ones */
};

/* Rows of a tile's operands, and of w for the next tiles. */
struct operands {
    const float *x[ROWS];
    const uint8_t *w[COLUMNS], *next[AHEAD];
};

static inline __attribute__((always_inline)) void multiply(vec sums[VEC_LANES], const struct operands *o,
                                                           enum snug_dtype dtype, int rows, int64_t at, int64_t end) {
    vec w[COLUMNS];
    for (int j = 0; j < COLUMNS; j++) w[j] = vec_load(o->w[j], dtype, at, end);
    for (int i = 0; i < rows; i++) {
        const vec x = vec_load(o->x[i], SNUG_F32, at, end);
        for (int j = 0; j < COLUMNS; j++) sums[i * COLUMNS + j] = vec_fma(x, w[j], sums[i * COLUMNS + j]);
    }
}

/* The products of a tile over k of the inner dimension, row by row. */
static inline __attribute__((always_inline)) vec multiply_tile(const struct operands *o, enum snug_dtype dtype,
                                                               int rows, int64_t k) {
    const int64_t size = snug_dtype_size(dtype);
    vec sums[VEC_LANES];
    int64_t at = 0;
    for (int i = 0; i < VEC_LANES; i++) sums[i] = vec_all(0);
    for (; at + VEC_LANES <= k; at += VEC_LANES) {
        for (int j = 0; j < AHEAD; j++) __builtin_prefetch(o->next[j] + at * size);
        multiply(sums, o, dtype, rows, at, at + VEC_LANES);
    }
    if (at < k) multiply(sums, o, dtype, rows, at, k);
    return vec_sums(sums);
}

/* Stores a tile's results, which are added to y, or if first to the bias, and to y if p->add. */
static inline __attribute__((always_inline)) void put(const struct snug_matmul *p, int64_t row, int64_t rows,
                                                      int64_t column, int64_t columns, bool first, vec results) {
    typedef float quad __attribute__((vector_size(sizeof(float) * COLUMNS)));
    const size_t size = (size_t)columns * sizeof(float);
    float *y = (float *)p->y + row * p->n + column;
    quad of_row[ROWS], bias = {0};
    memcpy(of_row, &results, sizeof results);
    if (p->bias) memcpy(&bias, p->bias + column, size);
    for (int64_t i = 0; i < rows; i++, y += p->n) {
        quad sum = {0};
        if (!first || p->add) memcpy(&sum, y, size);
        if (first) sum += bias;
        sum += of_row[i];
        memcpy(y, &sum, size);
    }
}

/* Where y ends, the last row and column are computed again, and not stored. */
static inline __attribute__((always_inline)) void run_tile(const struct snug_matmul *p, enum snug_dtype dtype, int rows,
                                                           int64_t row, int64_t column, int64_t inner) {
    const int64_t size = snug_dtype_size(dtype), columns = p->n - column;
    const bool last = inner + INNER >= p->k; /* the next tiles are of the next columns */
    const int64_t next_inner = last ? 0 : inner + INNER, next_column = last ? column + COLUMNS : column;
    const float *x = (const float *)p->a + inner;
    const uint8_t *w = (const uint8_t *)p->b + inner * size, *next = (const uint8_t *)p->b + next_inner * size;
    struct operands o;
    for (int64_t i = 0; i < rows; i++) o.x[i] = x + snug_min(row + i, p->m - 1) * p->k;
    for (int64_t j = 0; j < COLUMNS; j++) o.w[j] = w + snug_min(column + j, p->n - 1) * p->k * size;
    for (int64_t j = 0; j < AHEAD; j++) {
        const int64_t ahead = next_column + snug_min(row / ROWS * AHEAD, COLUMNS - AHEAD) + j;
        o.next[j] = next + snug_min(ahead, p->n - 1) * p->k * size;
    }
    const vec results = multiply_tile(&o, dtype, rows, snug_min(INNER, p->k - inner));
    if (columns >= COLUMNS)
        put(p, row, snug_min(rows, p->m - row), column, COLUMNS, inner == 0, results);
    else
        put(p, row, snug_min(rows, p->m - row), column, columns, inner == 0, results);
}

/* Columns column … column + 3 of y, if it has them. */
static inline __attribute__((always_inline)) void run_columns(const struct snug_matmul *p, enum snug_dtype dtype,
                                                              int64_t column) {
    for (int64_t inner = 0; inner < p->k; inner += INNER) {
        int64_t row = 0;
        for (; row + HALF_ROWS < p->m; row += ROWS) run_tile(p, dtype, ROWS, row, column, inner);
        if (row < p->m) run_tile(p, dtype, HALF_ROWS, row, column, inner);
    }
}

snug_status SNUG_KERNEL(matmul_few_rows)(struct snug_run *run, const struct snug_matmul *p) {
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t column = 0; column < p->n; column += COLUMNS) {
        if (p->b_dtype == SNUG_F32)
            run_columns(p, SNUG_F32, column);
        else
            run_columns(p, SNUG_BF16, column);
    }
    return SNUG_OK;
}

/* ---- weights that are stored as [k,n] ---------------------------------------------------------------------------- */

enum { ACROSS_ROWS = 4, ACROSS_VECS = 2, ACROSS = ACROSS_VECS * VEC_LANES };

/* Up to ACROSS_ROWS rows of y from row on, columns from column on: row k of w, times element k of each row of x. */
static inline __attribute__((always_inline)) void run_across(const struct snug_matmul *p, enum snug_dtype dtype,
                                                             int64_t row, int64_t column) {
    const int64_t rows = snug_min(ACROSS_ROWS, p->m - row), size = snug_dtype_size(dtype);
    const int vecs = p->n - column > VEC_LANES ? ACROSS_VECS : 1;
    const float *x = (const float *)p->a + row * p->k;
    vec sums[ACROSS_ROWS][ACROSS_VECS];
    for (int i = 0; i < ACROSS_ROWS; i++)
        for (int v = 0; v < ACROSS_VECS; v++) sums[i][v] = vec_all(0);
    for (int64_t k = 0; k < p->k; k++) {
        const uint8_t *w = (const uint8_t *)p->b + k * p->n * size;
        vec of_w[ACROSS_VECS];
        for (int v = 0; v < vecs; v++) of_w[v] = vec_load(w, dtype, column + v * VEC_LANES, p->n);
        for (int64_t i = 0; i < rows; i++)
            for (int v = 0; v < vecs; v++) sums[i][v] = vec_fma(vec_all(x[i * p->k + k]), of_w[v], sums[i][v]);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t c = column + v * VEC_LANES;
            float *y = (float *)p->y + (row + i) * p->n;
            vec sum = sums[i][v];
            if (p->bias) sum += vec_load(p->bias, SNUG_F32, c, p->n);
            if (p->add) sum += vec_load(y, SNUG_F32, c, p->n);
            vec_store(y, SNUG_F32, c, p->n, sum);
        }
}

snug_status SNUG_KERNEL(matmul_few_rows_across)(struct snug_run *run, const struct snug_matmul *p) {
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t column = 0; column < p->n; column += ACROSS)
        for (int64_t row = 0; row < p->m; row += ACROSS_ROWS) {
            if (p->b_dtype == SNUG_F32)
                run_across(p, SNUG_F32, row, column);
            else
                run_across(p, SNUG_BF16, row, column);
        }
    return SNUG_OK;
}
