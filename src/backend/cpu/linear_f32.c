/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of F32 tensors: fixed tiles, each computed whole by one thread with one call of oneDNN, so that neither the
 * number of threads nor who takes which tile changes a bit.
 */
#include <string.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/products.h"
#include "backend/cpu/vec.h"

/* Within the noise of the fastest of a dozen tried on MiniLM's and BERT's shapes; small enough to share out. */
enum { ROW_TILE = 256, COLUMN_TILE = 192, WEIGHT_ROW_TILE = 128, WEIGHT_COLUMN_TILE = 384 };

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

snug_status SNUG_KERNEL(rows_product_f32)(struct snug_run *run, const struct snug_rows_product *p) {
    int64_t down = tiles(p->m, ROW_TILE), across = tiles(p->n, COLUMN_TILE);
    const float *a = p->a, *b = p->b;
    bool refused = false;
#pragma omp parallel num_threads(run->threads) reduction(|| : refused)
    {
        snug_products_alone();
#pragma omp for schedule(dynamic)
        for (int64_t tile = 0; tile < down * across; tile++) {
            int64_t i = tile % down * ROW_TILE, j = tile / down * COLUMN_TILE;
            int64_t m = smaller(ROW_TILE, p->m - i), n = smaller(COLUMN_TILE, p->n - j);
            float *y = (float *)p->y + i * p->n + j;
            refused = refused || !snug_product_f32(y, p->n, a + i * p->k, p->k, false, b + j * (p->turn_b ? p->k : 1),
                                                   p->turn_b ? p->k : p->n, p->turn_b, m, n, p->k, p->add);
            if (p->bias) add_bias(y, p->n, p->bias + j, m, n);
        }
    }
    return finish(run, refused);
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
