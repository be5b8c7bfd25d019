/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward matmuls of few rows of an F32 tensor, as in a call with one sentence, or in a step of a generation. oneDNN,
 * and the matmuls of BF16 tensors, pack the weights in every call, which takes longer than the products of few rows.
 * Here the weights are read once, as they are stored: rows of x and rows of w are multiplied along the inner dimension,
 * which is contiguous in both, and each result is the sum of a vector's lanes. A result has the same bits whatever the
 * number of rows, its place among them, the number of threads, and whether the weights are stored in F32 or are BF16
 * values.
 */
#include "backend/cpu/linear.h"
#include "backend/cpu/vec.h"
#include "core/min_max.h"

enum {
    COLUMNS = 4,                /* a tile's columns of y, which are rows of w */
    ROWS = VEC_LANES / COLUMNS, /* its rows of y: as many results as a vector has lanes */
    INNER = 2048,               /* of the inner dimension at a time, so that operands stay in the second cache */
    LINE = 64,                  /* bytes that one prefetch fetches */
    STREAMS = 8                 /* rows of a BF16 w that are read at the same time: reading 16 takes a tenth longer */
};

/* Where results are summed: y from column `column` on, or of a y in BF16 a copy of some columns. */
struct sums {
    float *y;
    int64_t ld, column;
};

/* Rows of a tile's operands. A tile has rows * columns = VEC_LANES results: where y ends with one or two rows, that is
   more columns. Rows of w are `stride` bytes apart, or where y has fewer columns, 0 bytes from the last one on. */
struct operands {
    const float *x[ROWS];
    const uint8_t *w[VEC_LANES];
    int64_t stride, ahead; /* ahead: bytes from a row to that of the next tiles; 0: nothing is fetched for them */
};

/* Row j of w: its address is not loaded, but computed, where all columns exist. */
static inline __attribute__((always_inline)) const uint8_t *row_of(const struct operands *o, bool whole, int j) {
    return whole ? o->w[0] + j * o->stride : o->w[j];
}

/* first, last: of the tile's columns. */
static inline __attribute__((always_inline)) void multiply(vec sums[VEC_LANES], const struct operands *o,
                                                           enum snug_dtype dtype, bool whole, int rows, int first,
                                                           int last, int64_t at, int64_t end) {
    const int columns = VEC_LANES / rows;
    vec x[ROWS];
    for (int i = 0; i < rows; i++) x[i] = vec_load(o->x[i], SNUG_F32, at, end);
    for (int j = first; j < last; j++) {
        const vec w = vec_load(row_of(o, whole, j), dtype, at, end);
        for (int i = 0; i < rows; i++) sums[i * columns + j] = vec_fma(x[i], w, sums[i * columns + j]);
    }
}

static inline __attribute__((always_inline)) int streams_of(enum snug_dtype dtype, int rows) {
    const int columns = VEC_LANES / rows;
    return dtype == SNUG_BF16 && columns > STREAMS ? STREAMS : columns;
}

/* The products of a tile over k of the inner dimension, row by row. What the next tiles read is fetched into the second
   cache: the first one holds what these tiles read again. */
static inline __attribute__((always_inline)) vec multiply_tile(const struct operands *o, enum snug_dtype dtype,
                                                               bool whole, int rows, int64_t k) {
    enum { LOCALITY = 2 };
    const int64_t size = snug_dtype_size(dtype), step = LINE / size;
    const int columns = VEC_LANES / rows, streams = streams_of(dtype, rows);
    vec sums[VEC_LANES];
    for (int i = 0; i < VEC_LANES; i++) sums[i] = vec_all(0);
#pragma GCC unroll 4
    for (int first = 0; first < columns; first += streams) {
        const int last = first + streams;
        int64_t at = 0;
        for (; at + step <= k; at += step) {
            for (int j = first; j < last && o->ahead; j++)
                __builtin_prefetch(row_of(o, whole, j) + o->ahead + at * size, 0, LOCALITY);
            for (int64_t i = at; i < at + step; i += VEC_LANES)
                multiply(sums, o, dtype, whole, rows, first, last, i, i + VEC_LANES);
        }
        for (; at + VEC_LANES <= k; at += VEC_LANES)
            multiply(sums, o, dtype, whole, rows, first, last, at, at + VEC_LANES);
        if (at < k) multiply(sums, o, dtype, whole, rows, first, last, at, k);
    }
    return vec_sums(sums);
}

/* Stores a tile's results, which are added to y, or if first to the bias, and to y if p->add. */
static inline __attribute__((always_inline)) void put(const struct snug_matmul *p, const struct sums *to, int width,
                                                      int64_t row, int64_t rows, int64_t column, int64_t columns,
                                                      bool first, vec results) {
    float values[VEC_LANES];
    memcpy(values, &results, sizeof values);
    for (int64_t i = 0; i < rows; i++) {
        float *y = to->y + (row + i) * to->ld + column - to->column;
        for (int64_t j = 0; j < columns; j++) {
            float sum = !first || p->add ? y[j] : 0;
            if (first && p->bias) sum += p->bias[column + j];
            y[j] = sum + values[i * width + j];
        }
    }
}

/* Where y ends, the last row and column are computed again, and not stored. */
static inline __attribute__((always_inline)) void run_tile(const struct snug_matmul *p, const struct sums *to,
                                                           enum snug_dtype dtype, int rows, int64_t row, int64_t column,
                                                           int64_t inner) {
    const int64_t size = snug_dtype_size(dtype), columns = VEC_LANES / rows, k = snug_min(INNER, p->k - inner),
                  stored = snug_min(rows, p->m - row);
    const uint8_t *w = (const uint8_t *)p->b + inner * size;
    struct operands o = {.stride = p->k * size};
    /* the tiles of the first rows fetch for all */
    if (row == 0 && column + 2 * VEC_LANES <= p->n) o.ahead = (rows == 1 ? streams_of(dtype, 1) : VEC_LANES) * o.stride;
    /* cppcheck-suppress arrayIndexOutOfBounds ; a tile of two rows is only where ROWS is larger */
    for (int64_t i = 0; i < rows; i++) o.x[i] = (const float *)p->a + snug_min(row + i, p->m - 1) * p->lda + inner;
    for (int64_t j = 0; j < columns; j++) o.w[j] = w + snug_min(column + j, p->n - 1) * o.stride;
    if (p->n - column >= columns)
        put(p, to, (int)columns, row, stored, column, columns, inner == 0, multiply_tile(&o, dtype, true, rows, k));
    else
        put(p, to, (int)columns, row, stored, column, p->n - column, inner == 0,
            multiply_tile(&o, dtype, false, rows, k));
}

/* As many rows from row on as a tile of `rows` rows has, or the rest, over the columns from column on. */
static inline __attribute__((always_inline)) void run_rows(const struct snug_matmul *p, const struct sums *to,
                                                           enum snug_dtype dtype, int rows, int64_t row, int64_t column,
                                                           int64_t inner) {
    const int64_t end = snug_min(column + VEC_LANES, p->n);
    for (int64_t c = column; c < end; c += VEC_LANES / rows) run_tile(p, to, dtype, rows, row, c, inner);
}

/* VEC_LANES columns of y from column on, if it has them. */
static inline __attribute__((always_inline)) void run_columns(const struct snug_matmul *p, const struct sums *to,
                                                              enum snug_dtype dtype, int64_t column) {
    for (int64_t inner = 0; inner < p->k; inner += INNER) {
        int64_t row = 0;
        for (; p->m - row > ROWS / 2; row += ROWS) run_rows(p, to, dtype, ROWS, row, column, inner);
        if (ROWS > 2 && p->m - row == 2) {
            run_rows(p, to, dtype, 2, row, column, inner);
            row += 2;
        }
        if (p->m > row) run_rows(p, to, dtype, 1, row, column, inner);
    }
}

/* VEC_LANES columns of a y in BF16, which is rounded once. */
static void run_low_columns(const struct snug_matmul *p, int64_t column) {
    float copy[SNUG_CPU_FEW_LOW_ROWS * VEC_LANES];
    const struct sums to = {.y = copy, .ld = VEC_LANES, .column = column};
    const int64_t columns = snug_min(VEC_LANES, p->n - column);
    uint16_t *y = (uint16_t *)p->y + column;
    for (int64_t i = 0; i < p->m && p->add; i++)
        vec_write(copy + i * VEC_LANES, vec_load(y + i * p->ldy, SNUG_BF16, 0, columns));
    run_columns(p, &to, SNUG_BF16, column);
    for (int64_t i = 0; i < p->m; i++) vec_store(y + i * p->ldy, SNUG_BF16, 0, columns, vec_read(copy + i * VEC_LANES));
}

snug_status SNUG_KERNEL(matmul_few_rows)(struct snug_run *run, const struct snug_matmul *p) {
    const struct sums to = {.y = p->y, .ld = p->ldy};
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t column = 0; column < p->n; column += VEC_LANES) {
        if (p->y_dtype == SNUG_BF16)
            run_low_columns(p, column);
        else if (p->b_dtype == SNUG_F32)
            run_columns(p, &to, SNUG_F32, column);
        else
            run_columns(p, &to, SNUG_BF16, column);
    }
    return SNUG_OK;
}

/* ---- weights that are stored as [k,n] ---------------------------------------------------------------------------- */

enum { ACROSS_ROWS = 4, ACROSS_VECS = 2, ACROSS = ACROSS_VECS * VEC_LANES };

/* Up to ACROSS_ROWS rows of y from row on, columns from column on: row k of w, times element k of each row of x. */
static inline __attribute__((always_inline)) void run_across(const struct snug_matmul *p, enum snug_dtype dtype,
                                                             enum snug_dtype dtype_y, int64_t row, int64_t column) {
    const int64_t rows = snug_min(ACROSS_ROWS, p->m - row), size = snug_dtype_size(dtype);
    const int64_t size_y = snug_dtype_size(dtype_y);
    const int vecs = p->n - column > VEC_LANES ? ACROSS_VECS : 1;
    const float *x = (const float *)p->a + row * p->lda;
    vec sums[ACROSS_ROWS][ACROSS_VECS];
    for (int i = 0; i < ACROSS_ROWS; i++)
        for (int v = 0; v < ACROSS_VECS; v++) sums[i][v] = vec_all(0);
    for (int64_t k = 0; k < p->k; k++) {
        const uint8_t *w = (const uint8_t *)p->b + k * p->n * size;
        vec of_w[ACROSS_VECS];
        for (int v = 0; v < vecs; v++) of_w[v] = vec_load(w, dtype, column + v * VEC_LANES, p->n);
        for (int64_t i = 0; i < rows; i++)
            for (int v = 0; v < vecs; v++) sums[i][v] = vec_fma(vec_all(x[i * p->lda + k]), of_w[v], sums[i][v]);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t c = column + v * VEC_LANES;
            uint8_t *y = (uint8_t *)p->y + (row + i) * p->ldy * size_y;
            vec sum = sums[i][v];
            if (p->bias) sum += vec_load(p->bias, SNUG_F32, c, p->n);
            if (p->add) sum += vec_load(y, dtype_y, c, p->n);
            vec_store(y, dtype_y, c, p->n, sum);
        }
}

snug_status SNUG_KERNEL(matmul_few_rows_across)(struct snug_run *run, const struct snug_matmul *p) {
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t column = 0; column < p->n; column += ACROSS)
        for (int64_t row = 0; row < p->m; row += ACROSS_ROWS) {
            if (p->y_dtype == SNUG_BF16)
                run_across(p, SNUG_BF16, SNUG_BF16, row, column);
            else if (p->b_dtype == SNUG_F32)
                run_across(p, SNUG_F32, SNUG_F32, row, column);
            else
                run_across(p, SNUG_BF16, SNUG_F32, row, column);
        }
    return SNUG_OK;
}
