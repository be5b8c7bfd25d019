/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of BF16 tensors. The right operand is packed as the blocks' kernels want it, by all threads, then blocks of
 * 32 x 32 results are computed, each whole by one thread and in the order of the inner dimension: the same bits however
 * the work is divided. oneDNN is not used here: its C API has bf16 products only as primitives, one for each number of
 * tokens, and with tiles of a fixed shape they would pack the weights anew in every call.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/vec.h"

enum {
    BLOCK = SNUG_BLOCK,
    BLOCK_SIZE = SNUG_BLOCK_SIZE,
    SLAB = 64,        /* panels of 32 columns packed at a time: with 384 rows, 1.5 MiB */
    UNIT_ROWS = 64,   /* a thread's next piece of work: rows … */
    UNIT_PANELS = 8,  /* … and panels */
    CHUNK_ROWS = 1024 /* rows of dy and x packed at a time */
};

static int64_t blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- packing ------------------------------------------------------------------------------------------------------
 */

typedef uint32_t words __attribute__((vector_size(64))); /* 16 pairs of BF16 */
typedef uint16_t halves __attribute__((vector_size(32)));

#define EXCHANGE(step)                                                                                                 \
    for (int i = 0; i < 16; i++)                                                                                       \
        if (!(i & (step))) {                                                                                           \
            words a = r[i], b = r[i + (step)];                                                                         \
            r[i] = __builtin_shufflevector(a, b, LOW_##step);                                                          \
            r[i + (step)] = __builtin_shufflevector(a, b, HIGH_##step);                                                \
        }
#define LOW_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31

/* Row i, word j <-> row j, word i: exchanges the off-diagonal quarters, then those of the quarters, and so on. */
static inline __attribute__((always_inline)) void transpose(words r[16]) {
    EXCHANGE(8)
    EXCHANGE(4)
    EXCHANGE(2)
    EXCHANGE(1)
}

/* The 32 x 32 elements at *p, or where fewer rows or columns are left a copy filled up with zeros in spare. */
static const uint16_t *whole(const uint16_t *p, int64_t *ld, int64_t rows, int64_t columns, uint16_t *spare) {
    if (rows >= BLOCK && columns >= BLOCK) return p;
    memset(spare, 0, BLOCK_SIZE * sizeof *spare);
    for (int64_t i = 0; i < smaller(rows, BLOCK); i++)
        memcpy(spare + i * BLOCK, p + i * *ld, (size_t)smaller(columns, BLOCK) * sizeof *p);
    *ld = BLOCK;
    return spare;
}

/* Step of a packed panel from rows that are its columns: a weight [n,k] that multiplies x [.,k]. */
static void pack_turned(uint16_t *packed, const uint16_t *p, int64_t ld, int64_t rows, int64_t columns) {
    uint16_t spare[BLOCK_SIZE];
    p = whole(p, &ld, rows, columns, spare);
    for (int half = 0; half < 2; half++, packed += BLOCK_SIZE / 2) {
        words r[16];
        for (int i = 0; i < 16; i++) memcpy(&r[i], p + (half * 16 + i) * ld, sizeof r[i]);
        transpose(r);
        memcpy(packed, r, sizeof r);
    }
}

/* Words of rows 2i and 2i + 1, columns half * 16 …: the pairs of a step. */
static inline void pair(words *w, const uint16_t *p, int64_t ld, int i, int half) {
    halves even, odd;
    memcpy(&even, p + 2 * i * ld + half * 16, sizeof even);
    memcpy(&odd, p + (2 * i + 1) * ld + half * 16, sizeof odd);
    *w = __builtin_convertvector(even, words) | __builtin_convertvector(odd, words) << 16;
}

/* Step of a packed panel from rows that are its rows: a weight [n,k] that multiplies dy [.,n]. */
static void pack_straight(uint16_t *packed, const uint16_t *p, int64_t ld, int64_t rows, int64_t columns) {
    uint16_t spare[BLOCK_SIZE];
    p = whole(p, &ld, rows, columns, spare);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 16; i++, packed += 32) {
            words w;
            pair(&w, p, ld, i, half);
            memcpy(packed, &w, sizeof w);
        }
}

/* Step of a left operand from its transpose: [32 columns of p][32 rows of p]. */
static void pack_left(uint16_t *packed, const uint16_t *p, int64_t ld, int64_t rows, int64_t columns) {
    uint16_t spare[BLOCK_SIZE];
    p = whole(p, &ld, rows, columns, spare);
    for (int half = 0; half < 2; half++, packed += BLOCK_SIZE / 2) {
        words r[16];
        for (int i = 0; i < 16; i++) pair(&r[i], p, ld, i, half);
        transpose(r);
        memcpy(packed, r, sizeof r);
    }
}

/* ---- blocks -------------------------------------------------------------------------------------------------------
 */

static void nothing(void) {}

/* The contract of snug_block_fn in the compiler's vectors: four rows at a time. */
static void portable_block(float *c, int64_t ldc, const uint16_t *a, int64_t lda, int64_t a_step, const uint16_t *b,
                           int64_t steps, bool add) {
    enum { ROWS = 4 };
    for (int64_t row = 0; row < BLOCK; row += ROWS, a += ROWS * lda, c += ROWS * ldc)
        for (int64_t j = 0; j < BLOCK; j += VEC_LANES) {
            vec sum[ROWS];
            for (int r = 0; r < ROWS; r++) sum[r] = add ? vec_read(c + r * ldc + j) : vec_all(0.0f);
            const uint16_t *column = b + j / 16 * (BLOCK_SIZE / 2) + j % 16 * 2;
            for (int64_t s = 0; s < steps; s++)
                for (int i = 0; i < 16; i++) {
                    vec_uint two;
                    memcpy(&two, column + s * BLOCK_SIZE + i * 32, sizeof two);
                    for (int r = 0; r < ROWS; r++) {
                        const uint16_t *p = a + s * a_step + r * lda + 2 * i;
                        sum[r] = vec_fma(vec_all(snug_bf16_to_f32(p[0])), (vec)(two << 16), sum[r]);
                        sum[r] = vec_fma(vec_all(snug_bf16_to_f32(p[1])), (vec)(two & 0xffff0000u), sum[r]);
                    }
                }
            for (int r = 0; r < ROWS; r++) vec_write(c + r * ldc + j, sum[r]);
        }
}

static const struct snug_block_kernel portable = {"portable", portable_block, nothing, nothing};

/* The processor's own goes with the widest instruction set only, so that forcing another one tests the portable one. */
static const struct snug_block_kernel *block_kernel(const struct snug_run *run) {
#ifdef __AVX512F__
    const struct snug_cpu *cpu = run->backend_state;
    if (cpu->block) return cpu->block;
#endif
    (void)run;
    return &portable;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------
 */

/* A finished block, with bias, into y: inlined once for each type and for whole blocks, since it takes as long as the
   products of a few steps. */
static inline __attribute__((always_inline)) void put(const struct snug_rows_product *p, enum snug_dtype dtype,
                                                      const float *c, int64_t row, int64_t column, int64_t columns) {
    int64_t rows = smaller(BLOCK, p->m - row), size = snug_dtype_size(dtype);
    uint8_t *y = (uint8_t *)p->y + (row * p->n + column) * size;
    vec bias[BLOCK / VEC_LANES];
    for (int64_t j = 0; j < columns; j += VEC_LANES)
        bias[j / VEC_LANES] = p->bias ? vec_load(p->bias + column, SNUG_F32, j, columns) : vec_all(0.0f);
    for (int64_t i = 0; i < rows; i++, c += BLOCK, y += p->n * size)
        for (int64_t j = 0; j < columns; j += VEC_LANES) {
            vec v = vec_read(c + j) + bias[j / VEC_LANES];
            if (p->add) v += vec_load(y, dtype, j, columns);
            vec_store(y, dtype, j, columns, v);
        }
}

static void put_block(const struct snug_rows_product *p, const float *c, int64_t row, int64_t column) {
    int64_t columns = p->n - column;
    if (columns >= BLOCK && p->y_dtype == SNUG_BF16)
        put(p, SNUG_BF16, c, row, column, BLOCK);
    else if (columns >= BLOCK)
        put(p, SNUG_F32, c, row, column, BLOCK);
    else
        put(p, p->y_dtype, c, row, column, columns);
}

/* Rows row … row + 31 of panels first … end - 1; packed holds those from panel slab on. Where the inner dimension is no
   multiple of 32, the last step's left operand is copied, filled up with zeros. */
static void run_strip(const struct snug_rows_product *p, snug_block_fn *block, const uint16_t *packed, int64_t slab,
                      int64_t row, int64_t first, int64_t end) {
    const uint16_t *a = (const uint16_t *)p->a + row * p->k;
    uint16_t spare[BLOCK_SIZE] __attribute__((aligned(64)));
    float c[BLOCK_SIZE] __attribute__((aligned(64)));
    int64_t steps = p->k / BLOCK, left = p->k % BLOCK, ld = p->k;
    if (left) whole(a + steps * BLOCK, &ld, p->m - row, left, spare);
    for (int64_t panel = first; panel < end; panel++) {
        const uint16_t *b = packed + (panel - slab) * blocks(p->k) * BLOCK_SIZE;
        if (steps) block(c, BLOCK, a, p->k, BLOCK, b, steps, false);
        if (left) block(c, BLOCK, spare, BLOCK, 0, b + steps * BLOCK_SIZE, 1, steps > 0);
        put_block(p, c, row, panel * BLOCK);
    }
}

static void pack_panel(uint16_t *packed, const struct snug_rows_product *p, int64_t panel) {
    const uint16_t *b = p->b;
    int64_t column = panel * BLOCK;
    for (int64_t step = 0; step < p->k; step += BLOCK, packed += BLOCK_SIZE) {
        if (p->turn_b)
            pack_turned(packed, b + column * p->k + step, p->k, p->n - column, p->k - step);
        else
            pack_straight(packed, b + step * p->n + column, p->n, p->k - step, p->n - column);
    }
}

snug_status SNUG_KERNEL(rows_product_bf16)(struct snug_run *run, const struct snug_rows_product *p) {
    const struct snug_block_kernel *kernel = block_kernel(run);
    uint16_t *packed = run->workspace;
    int64_t down = (p->m + UNIT_ROWS - 1) / UNIT_ROWS, panels = blocks(p->n);
#pragma omp parallel num_threads(run->threads)
    {
        kernel->begin();
        for (int64_t slab = 0; slab < panels; slab += SLAB) {
            int64_t end = smaller(slab + SLAB, panels), across = (end - slab + UNIT_PANELS - 1) / UNIT_PANELS;
#pragma omp for
            for (int64_t panel = slab; panel < end; panel++)
                pack_panel(packed + (panel - slab) * blocks(p->k) * BLOCK_SIZE, p, panel);
#pragma omp for schedule(dynamic)
            for (int64_t unit = 0; unit < down * across; unit++) {
                int64_t row = unit % down * UNIT_ROWS, first = slab + unit / down * UNIT_PANELS;
                for (int64_t i = row; i < smaller(row + UNIT_ROWS, p->m); i += BLOCK)
                    run_strip(p, kernel->run, packed, slab, i, first, smaller(first + UNIT_PANELS, end));
            }
        }
        kernel->end();
    }
    return SNUG_OK;
}

int64_t SNUG_KERNEL(rows_product_bf16_workspace)(int64_t n, int64_t k) {
    return smaller(blocks(n), SLAB) * blocks(k) * BLOCK_SIZE * (int64_t)sizeof(uint16_t);
}

/* ---- weights ------------------------------------------------------------------------------------------------------
 */

/* Rows start … end - 1 of 32 columns of dy as left operand, and their sums into db. */
static void pack_dy(uint16_t *packed, const struct snug_weight_product *p, int64_t start, int64_t end, int64_t column) {
    const uint16_t *dy = (const uint16_t *)p->dy + column;
    int64_t columns = smaller(BLOCK, p->n - column);
    for (int64_t t = start; t < end; t += BLOCK, packed += BLOCK_SIZE)
        pack_left(packed, dy + t * p->n, p->n, end - t, p->n - column);
    if (!p->db) return;
    for (int64_t j = 0; j < columns; j += VEC_LANES) {
        vec total = start || p->add ? vec_load(p->db + column, SNUG_F32, j, columns) : vec_all(0.0f);
        for (int64_t t = start; t < end; t += BLOCK) {
            vec sum = vec_all(0.0f);
            for (int64_t i = t; i < smaller(t + BLOCK, end); i++) sum += vec_load(dy + i * p->n, SNUG_BF16, j, columns);
            total += sum;
        }
        vec_store(p->db + column, SNUG_F32, j, columns, total);
    }
}

/* Block of dw at row, column; one that hangs over the edge goes through a copy. */
static void run_weight_block(const struct snug_weight_product *p, snug_block_fn *block, const uint16_t *dy,
                             const uint16_t *x, int64_t steps, int64_t row, int64_t column, bool add) {
    float *dw = p->dw + row * p->k + column, c[BLOCK_SIZE] __attribute__((aligned(64)));
    int64_t rows = smaller(BLOCK, p->n - row), columns = smaller(BLOCK, p->k - column);
    if (rows == BLOCK && columns == BLOCK) {
        block(dw, p->k, dy, BLOCK, BLOCK_SIZE, x, steps, add);
        return;
    }
    memset(c, 0, sizeof c);
    for (int64_t i = 0; add && i < rows; i++) memcpy(c + i * BLOCK, dw + i * p->k, (size_t)columns * sizeof *c);
    block(c, BLOCK, dy, BLOCK, BLOCK_SIZE, x, steps, true);
    for (int64_t i = 0; i < rows; i++) memcpy(dw + i * p->k, c + i * BLOCK, (size_t)columns * sizeof *c);
}

snug_status SNUG_KERNEL(weight_product_bf16)(struct snug_run *run, const struct snug_weight_product *p) {
    const struct snug_block_kernel *kernel = block_kernel(run);
    int64_t down = blocks(p->n), across = blocks(p->k), groups = (across + UNIT_PANELS - 1) / UNIT_PANELS;
    if (p->t == 0 && !p->add) {
        memset(p->dw, 0, (size_t)(p->n * p->k) * sizeof *p->dw);
        if (p->db) memset(p->db, 0, (size_t)p->n * sizeof *p->db);
    }
#pragma omp parallel num_threads(run->threads)
    {
        kernel->begin();
        for (int64_t start = 0; start < p->t; start += CHUNK_ROWS) {
            int64_t end = smaller(start + CHUNK_ROWS, p->t), steps = blocks(end - start), size = steps * BLOCK_SIZE;
            uint16_t *dy = run->workspace, *x = dy + down * size;
#pragma omp for
            for (int64_t panel = 0; panel < down + across; panel++) {
                if (panel < down) {
                    pack_dy(dy + panel * size, p, start, end, panel * BLOCK);
                    continue;
                }
                int64_t column = (panel - down) * BLOCK;
                uint16_t *to = x + (panel - down) * size;
                for (int64_t t = start; t < end; t += BLOCK, to += BLOCK_SIZE)
                    pack_straight(to, (const uint16_t *)p->x + t * p->k + column, p->k, end - t, p->k - column);
            }
#pragma omp for schedule(dynamic)
            for (int64_t unit = 0; unit < down * groups; unit++) {
                int64_t row = unit / groups, first = unit % groups * UNIT_PANELS;
                for (int64_t panel = first; panel < smaller(first + UNIT_PANELS, across); panel++)
                    run_weight_block(p, kernel->run, dy + row * size, x + panel * size, steps, row * BLOCK,
                                     panel * BLOCK, start || p->add);
            }
        }
        kernel->end();
    }
    return SNUG_OK;
}

int64_t SNUG_KERNEL(weight_product_bf16_workspace)(int64_t t, int64_t n, int64_t k) {
    return (blocks(n) + blocks(k)) * blocks(smaller(t, CHUNK_ROWS)) * BLOCK_SIZE * (int64_t)sizeof(uint16_t);
}
