/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of F32 tensors: fixed tiles, each computed whole by one thread with calls of oneDNN, so that neither the
 * number of threads nor who takes which tile changes a bit. Weights stored in BF16 are widened by the thread that
 * multiplies with them, as many as a tile reads: the same bits as with the widened weights stored in F32.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/products.h"
#include "backend/cpu/vec.h"

/* Within the noise of the fastest of a dozen tried on MiniLM's and BERT's shapes; small enough to share out. */
enum { ROW_TILE = 256, COLUMN_TILE = 192, WEIGHT_ROW_TILE = 128, WEIGHT_COLUMN_TILE = 384 };
/* Of the inner dimension at a time, so that a thread's widened weights take about 2 MiB at most, not columns of the
   whole vocabulary. Weights in F32 are cut likewise, for the same bits. */
enum { INNER_TILE = 2048 };
/* oneDNN has other kernels, which sum in another order, for rows that begin a multiple of this many floats apart, and
   for divisors of it some. Rows of widened weights keep their distance modulo this where they can (turned ones); where
   that would be too far (a tile of a few columns), F32 weights of such a distance are copied as well: as fast as
   oneDNN's way with them. */
enum { DISTANCE = 1024 };

static int64_t tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static snug_status finish(struct snug_run *run, bool refused) {
    return refused ? snug_fail(run->ctx, SNUG_E_INTERNAL, "oneDNN refused a product (dnnl_sgemm)") : SNUG_OK;
}

static void add_bias(float *y, int64_t ldy, const float *bias, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; i++, y += ldy)
        for (int64_t j = 0; j < n; j += VEC_LANES)
            vec_store(y, SNUG_F32, j, n, vec_load(y, SNUG_F32, j, n) + vec_load(bias, SNUG_F32, j, n));
}

/* A part of b: where it stands, or copied into a thread's scratch, where it stays until another is asked for. */
struct part {
    float *scratch;
    const float *data;
    int64_t ld;
    int64_t inner, column; /* what scratch holds; -1: nothing yet */
};

static bool is_copied(int64_t n, bool turn_b, enum snug_dtype b) {
    return b != SNUG_F32 || (!turn_b && n % DISTANCE == 0);
}

/* Floats from row to row of a copied part of b, of n columns in all and k of the inner dimension in all. */
static int64_t distance(int64_t n, int64_t k, bool turn_b) {
    if (!turn_b) return smaller(n, COLUMN_TILE);
    return k <= INNER_TILE ? k : INNER_TILE + k % DISTANCE;
}

/* Columns column … column + n - 1 of b, k of the inner dimension from inner on. */
static void take_part(const struct snug_rows_product *p, struct part *part, int64_t inner, int64_t k, int64_t column,
                      int64_t n) {
    const int64_t ld = p->turn_b ? p->k : p->n, at = p->turn_b ? column * ld + inner : inner * ld + column;
    const int64_t rows = p->turn_b ? n : k, cols = p->turn_b ? k : n;
    const int64_t size = snug_dtype_size(p->b_dtype);
    const uint8_t *from = (const uint8_t *)p->b + at * size;
    if (!part->scratch) {
        part->data = (const float *)from;
        part->ld = ld;
        return;
    }
    if (part->inner == inner && part->column == column) return;
    *part = (struct part){part->scratch, part->scratch, distance(p->n, p->k, p->turn_b), inner, column};
    float *to = part->scratch;
    for (int64_t row = 0; row < rows; row++, to += part->ld, from += ld * size)
        for (int64_t c = 0; c < cols; c += VEC_LANES)
            vec_store(to, SNUG_F32, c, cols, vec_load(from, p->b_dtype, c, cols));
}

/* Of one thread, in whole cache lines. */
static int64_t scratch_floats(int64_t n, int64_t k, bool turn_b) {
    const int64_t line = 16, rows = turn_b ? smaller(n, COLUMN_TILE) : smaller(k, INNER_TILE);
    return tiles(rows * distance(n, k, turn_b), line) * line;
}

snug_status SNUG_KERNEL(rows_product_f32)(struct snug_run *run, const struct snug_rows_product *p) {
    const int64_t down = tiles(p->m, ROW_TILE), across = tiles(p->n, COLUMN_TILE);
    const float *a = p->a;
    bool refused = false;
#pragma omp parallel num_threads(run->threads) reduction(|| : refused)
    {
        struct part b = {.inner = -1};
        if (is_copied(p->n, p->turn_b, p->b_dtype))
            b.scratch = (float *)run->workspace + omp_get_thread_num() * scratch_floats(p->n, p->k, p->turn_b);
        snug_products_alone();
#pragma omp for schedule(dynamic)
        for (int64_t tile = 0; tile < down * across; tile++) {
            const int64_t i = tile % down * ROW_TILE, j = tile / down * COLUMN_TILE;
            const int64_t m = smaller(ROW_TILE, p->m - i), n = smaller(COLUMN_TILE, p->n - j);
            float *y = (float *)p->y + i * p->n + j;
            for (int64_t s = 0; s < p->k; s += INNER_TILE) {
                const int64_t k = smaller(INNER_TILE, p->k - s);
                take_part(p, &b, s, k, j, n);
                refused = refused || !snug_product_f32(y, p->n, a + i * p->k + s, p->k, false, b.data, b.ld, p->turn_b,
                                                       m, n, k, p->add || s > 0);
            }
            if (p->bias) add_bias(y, p->n, p->bias + j, m, n);
        }
    }
    return finish(run, refused);
}

int64_t SNUG_KERNEL(rows_product_f32_workspace)(int64_t n, int64_t k, bool turn_b, enum snug_dtype b, int threads) {
    return is_copied(n, turn_b, b) ? threads * scratch_floats(n, k, turn_b) * (int64_t)sizeof(float) : 0;
}

/* db [n] = or += column sums of dy: of each 64 rows by themselves, which keeps the rounding small, then of these. */
static void sum_columns(float *db, const float *dy, int64_t ld, int64_t t, int64_t n, bool add) {
    for (int64_t j = 0; j < n; j += VEC_LANES) {
        vec total = add ? vec_load(db, SNUG_F32, j, n) : vec_all(0.0f);
        for (int64_t i = 0; i < t; i += 64) {
            vec sum = vec_all(0.0f);
            for (int64_t row = i; row < smaller(i + 64, t); row++) sum += vec_load(dy + row * ld, SNUG_F32, j, n);
            total += sum;
        }
        vec_store(db, SNUG_F32, j, n, total);
    }
}

snug_status SNUG_KERNEL(weight_product_f32)(struct snug_run *run, const struct snug_weight_product *p) {
    int64_t down = tiles(p->n, WEIGHT_ROW_TILE), across = tiles(p->k, WEIGHT_COLUMN_TILE);
    const float *dy = p->dy, *x = p->x;
    bool refused = false;
    if (p->t == 0) {
        if (!p->add) memset(p->dw, 0, (size_t)(p->n * p->k) * sizeof *p->dw);
        if (!p->add && p->db) memset(p->db, 0, (size_t)p->n * sizeof *p->db);
        return SNUG_OK;
    }
#pragma omp parallel num_threads(run->threads) reduction(|| : refused)
    {
        snug_products_alone();
#pragma omp for schedule(dynamic)
        for (int64_t tile = 0; tile < down * across; tile++) {
            int64_t i = tile / across * WEIGHT_ROW_TILE, j = tile % across * WEIGHT_COLUMN_TILE;
            int64_t m = smaller(WEIGHT_ROW_TILE, p->n - i), n = smaller(WEIGHT_COLUMN_TILE, p->k - j);
            refused = refused || !snug_product_f32(p->dw + i * p->k + j, p->k, dy + i, p->n, true, x + j, p->k, false,
                                                   m, n, p->t, p->add);
            if (p->db && j == 0) sum_columns(p->db + i, dy + i, p->n, p->t, m, p->add);
        }
    }
    return finish(run, refused);
}
