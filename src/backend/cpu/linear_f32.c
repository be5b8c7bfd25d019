/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmuls of F32 tensors: fixed tiles, each computed by one thread (gemm.h), so that the bits do not depend on the
 * number of threads and the assignment of tiles. Weights stored in BF16 are widened tile by tile by the thread that
 * reads them: the bits are those of the widened weights stored in F32.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/gemm.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/vec.h"
#include "core/min_max.h"

/* As fast as the best of a dozen tile sizes on MiniLM's and BERT's shapes, within noise; small enough to balance the
   load of the threads. */
enum { ROW_TILE = 256, COLUMN_TILE = 192, WEIGHT_ROW_TILE = 128, WEIGHT_COLUMN_TILE = 384 };
/* Size of the inner dimension per call. It limits a thread's widened weights to about 2 MiB; without it they would grow
   with the vocabulary. F32 weights are tiled in the same way, for the same bits. */
enum { INNER_TILE = 2048 };
/* oneDNN has other kernels, which sum in another order, for leading dimensions that are a multiple of this many floats,
   and for some divisors of it. So the leading dimension of widened weights is that of the weights modulo this number,
   if they are transposed. If not, a tile has few columns and such a leading dimension would waste memory: F32 weights
   with it are copied as well, which is as fast as oneDNN's kernel for them. */
enum { LD_PERIOD = 1024 };

static int64_t tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

static void add_bias(float *y, int64_t ldy, const float *bias, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; i++, y += ldy)
        for (int64_t j = 0; j < n; j += VEC_LANES)
            vec_store(y, SNUG_F32, j, n, vec_load(y, SNUG_F32, j, n) + vec_load(bias, SNUG_F32, j, n));
}

/* A tile of b: b itself, or a copy in the thread's scratch, which is valid until the next tile. */
struct tile {
    float *scratch;
    const float *data;
    int64_t ld;
    int64_t inner, column; /* what scratch holds; -1: nothing yet */
};

static bool is_copied(int64_t n, bool transpose_b, enum snug_dtype b) {
    return b != SNUG_F32 || (!transpose_b && n % LD_PERIOD == 0);
}

/* Leading dimension, in floats, of a copied tile of b; n and k are b's sizes. */
static int64_t copied_ld(int64_t n, int64_t k, bool transpose_b) {
    if (!transpose_b) return snug_min(n, COLUMN_TILE);
    return k <= INNER_TILE ? k : INNER_TILE + k % LD_PERIOD;
}

/* Makes *out columns column … column + n - 1 of b, and k rows of the inner dimension from inner on. */
static void take_tile(const struct snug_matmul *p, struct tile *out, int64_t inner, int64_t k, int64_t column,
                      int64_t n) {
    const int64_t ld = p->transpose_b ? p->k : p->n, at = p->transpose_b ? column * ld + inner : inner * ld + column;
    const int64_t rows = p->transpose_b ? n : k, cols = p->transpose_b ? k : n;
    const int64_t size = snug_dtype_size(p->b_dtype);
    const uint8_t *from = (const uint8_t *)p->b + at * size;
    if (!out->scratch) {
        out->data = (const float *)from;
        out->ld = ld;
        return;
    }
    if (out->inner == inner && out->column == column) return;
    *out = (struct tile){out->scratch, out->scratch, copied_ld(p->n, p->k, p->transpose_b), inner, column};
    float *to = out->scratch;
    for (int64_t row = 0; row < rows; row++, to += out->ld, from += ld * size)
        for (int64_t c = 0; c < cols; c += VEC_LANES)
            vec_store(to, SNUG_F32, c, cols, vec_load(from, p->b_dtype, c, cols));
}

/* Scratch of one thread, in whole cache lines. */
static int64_t scratch_floats(int64_t n, int64_t k, bool transpose_b) {
    const int64_t line = 16, rows = transpose_b ? snug_min(n, COLUMN_TILE) : snug_min(k, INNER_TILE);
    return tiles(rows * copied_ld(n, k, transpose_b), line) * line;
}

snug_status SNUG_KERNEL(matmul_f32)(struct snug_run *run, const struct snug_matmul *p) {
    const int64_t down = tiles(p->m, ROW_TILE), across = tiles(p->n, COLUMN_TILE);
    const float *a = p->a;
    bool refused = false;
    if (!p->transpose_b && run->program->cache_pages && p->m <= SNUG_CPU_FEW_ROWS)
        return SNUG_KERNEL(matmul_few_rows_across)(run, p);
    if (p->transpose_b && p->m <= SNUG_CPU_FEW_ROWS) return SNUG_KERNEL(matmul_few_rows)(run, p);
#pragma omp parallel num_threads(run->threads) reduction(|| : refused)
    {
        struct tile b = {.inner = -1};
        if (is_copied(p->n, p->transpose_b, p->b_dtype))
            b.scratch = (float *)run->workspace + omp_get_thread_num() * scratch_floats(p->n, p->k, p->transpose_b);
        snug_gemm_one_thread();
#pragma omp for schedule(dynamic)
        for (int64_t tile = 0; tile < down * across; tile++) {
            const int64_t i = tile % down * ROW_TILE, j = tile / down * COLUMN_TILE;
            const int64_t m = snug_min(ROW_TILE, p->m - i), n = snug_min(COLUMN_TILE, p->n - j);
            float *y = (float *)p->y + i * p->ldy + j;
            for (int64_t s = 0; s < p->k; s += INNER_TILE) {
                const int64_t k = snug_min(INNER_TILE, p->k - s);
                take_tile(p, &b, s, k, j, n);
                refused = refused || !snug_gemm_f32(y, p->ldy, a + i * p->lda + s, p->lda, false, b.data, b.ld,
                                                    p->transpose_b, m, n, k, p->add || s > 0);
            }
            if (p->bias) add_bias(y, p->ldy, p->bias + j, m, n);
        }
    }
    return snug_gemm_result(run->ctx, refused);
}

int64_t SNUG_KERNEL(matmul_f32_workspace)(int64_t n, int64_t k, bool transpose_b, enum snug_dtype b, int threads) {
    return is_copied(n, transpose_b, b) ? threads * scratch_floats(n, k, transpose_b) * (int64_t)sizeof(float) : 0;
}

/* db [n] = or += the column sums of dy: sums of 64 rows each, then their sum, which keeps rounding errors small. */
static void sum_columns(float *db, const float *dy, int64_t ld, int64_t t, int64_t n, bool add) {
    for (int64_t j = 0; j < n; j += VEC_LANES) {
        vec total = vec_all(0.0f);
        for (int64_t i = 0; i < t; i += 64) {
            vec sum = vec_all(0.0f);
            for (int64_t row = i; row < snug_min(i + 64, t); row++) sum += vec_load(dy + row * ld, SNUG_F32, j, n);
            total += sum;
        }
        if (add) total += vec_load(db, SNUG_F32, j, n);
        vec_store(db, SNUG_F32, j, n, total);
    }
}

/* dw [m,n] += product, which has no gaps. */
static void add_product(float *dw, int64_t ld, const float *product, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; i++, dw += ld, product += n)
        for (int64_t j = 0; j < n; j += VEC_LANES)
            vec_store(dw, SNUG_F32, j, n, vec_load(dw, SNUG_F32, j, n) + vec_load(product, SNUG_F32, j, n));
}

/* Floats of the largest tile. */
static int64_t product_floats(int64_t n, int64_t k) {
    return snug_min(WEIGHT_ROW_TILE, n) * snug_min(WEIGHT_COLUMN_TILE, k);
}

int64_t SNUG_KERNEL(weight_gradient_f32_workspace)(int64_t n, int64_t k, int threads) {
    return threads * product_floats(n, k) * (int64_t)sizeof(float);
}

snug_status SNUG_KERNEL(weight_gradient_f32)(struct snug_run *run, const struct snug_weight_gradient *p) {
    int64_t down = tiles(p->n, WEIGHT_ROW_TILE), across = tiles(p->k, WEIGHT_COLUMN_TILE);
    const float *dy = p->dy, *x = p->x;
    const bool apart = p->add && p->apart;
    bool refused = false;
    if (p->t == 0) {
        if (!p->add) memset(p->dw, 0, (size_t)(p->n * p->k) * sizeof *p->dw);
        if (!p->add && p->db) memset(p->db, 0, (size_t)p->n * sizeof *p->db);
        return SNUG_OK;
    }
#pragma omp parallel num_threads(run->threads) reduction(|| : refused)
    {
        float *product = NULL; /* no workspace is planned without accumulation */
        if (apart) product = (float *)run->workspace + omp_get_thread_num() * product_floats(p->n, p->k);
        snug_gemm_one_thread();
#pragma omp for schedule(dynamic)
        for (int64_t tile = 0; tile < down * across; tile++) {
            int64_t i = tile / across * WEIGHT_ROW_TILE, j = tile % across * WEIGHT_COLUMN_TILE;
            int64_t m = snug_min(WEIGHT_ROW_TILE, p->n - i), n = snug_min(WEIGHT_COLUMN_TILE, p->k - j);
            float *dw = p->dw + i * p->k + j, *to = apart ? product : dw;
            refused = refused || !snug_gemm_f32(to, apart ? n : p->k, dy + i, p->lddy, true, x + j, p->ldx, false, m, n,
                                                p->t, p->add && !apart);
            if (apart) add_product(dw, p->k, product, m, n);
            if (p->db && j == 0) sum_columns(p->db + i, dy + i, p->lddy, p->t, m, p->add);
        }
    }
    return snug_gemm_result(run->ctx, refused);
}
