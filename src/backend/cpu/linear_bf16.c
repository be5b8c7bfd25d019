/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmuls of BF16 tensors. All threads pack the right operand into the layout of the micro-kernel. Then each block of
 * 32 x 32 results is computed by one thread, in the order of the inner dimension, so the bits do not depend on how the
 * work is divided. oneDNN is not used here: its C API has bf16 matmuls only as primitives, one for each number of
 * tokens, and with tiles of a fixed shape they would pack the weights again in every call.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/vec.h"
#include "core/min_max.h"

enum {
    BLOCK = SNUG_BLOCK,
    BLOCK_SIZE = SNUG_BLOCK_SIZE,
    SLAB = 64,        /* panels of 32 columns packed at a time: with 384 rows, 1.5 MiB */
    UNIT_ROWS = 64,   /* a thread's unit of work: rows … */
    UNIT_PANELS = 8,  /* … and panels */
    CHUNK_ROWS = 1024 /* rows of dy and x packed at a time */
};

static int64_t blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

/* ---- packing ----------------------------------------------------------------------------------------------------- */

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

/* The 32 x 32 elements at p; where fewer rows or columns are left, a zero-padded copy in spare. */
static const uint16_t *whole(const uint16_t *p, int64_t *ld, int64_t rows, int64_t columns, uint16_t *spare) {
    if (rows >= BLOCK && columns >= BLOCK) return p;
    memset(spare, 0, BLOCK_SIZE * sizeof *spare);
    for (int64_t i = 0; i < snug_min(rows, BLOCK); i++)
        memcpy(spare + i * BLOCK, p + i * *ld, (size_t)snug_min(columns, BLOCK) * sizeof *p);
    *ld = BLOCK;
    return spare;
}

/* One step of a panel of b, which is stored transposed: a weight [n,k] that multiplies x [.,k]. */
static void pack_b_transposed(uint16_t *packed, const uint16_t *p, int64_t ld, int64_t rows, int64_t columns) {
    uint16_t spare[BLOCK_SIZE];
    p = whole(p, &ld, rows, columns, spare);
    for (int half = 0; half < 2; half++, packed += BLOCK_SIZE / 2) {
        words r[16];
        for (int i = 0; i < 16; i++) memcpy(&r[i], p + (half * 16 + i) * ld, sizeof r[i]);
        transpose(r);
        memcpy(packed, r, sizeof r);
    }
}

/* Elements of rows 2i and 2i + 1, interleaved, columns half * 16 …: the pairs of a step. */
static inline void pair(words *w, const uint16_t *p, int64_t ld, int i, int half) {
    halves even, odd;
    memcpy(&even, p + 2 * i * ld + half * 16, sizeof even);
    memcpy(&odd, p + (2 * i + 1) * ld + half * 16, sizeof odd);
    *w = __builtin_convertvector(even, words) | __builtin_convertvector(odd, words) << 16;
}

/* One step of a panel of b: a weight [n,k] that multiplies dy [.,n]. */
static void pack_b(uint16_t *packed, const uint16_t *p, int64_t ld, int64_t rows, int64_t columns) {
    uint16_t spare[BLOCK_SIZE];
    p = whole(p, &ld, rows, columns, spare);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 16; i++, packed += 32) {
            words w;
            pair(&w, p, ld, i, half);
            memcpy(packed, &w, sizeof w);
        }
}

/* One step of a, which is stored transposed: [32 columns of p][32 rows of p]. */
static void pack_a_transposed(uint16_t *packed, const uint16_t *p, int64_t ld, int64_t rows, int64_t columns) {
    uint16_t spare[BLOCK_SIZE];
    p = whole(p, &ld, rows, columns, spare);
    for (int half = 0; half < 2; half++, packed += BLOCK_SIZE / 2) {
        words r[16];
        for (int i = 0; i < 16; i++) pair(&r[i], p, ld, i, half);
        transpose(r);
        memcpy(packed, r, sizeof r);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void nothing(void) {}

/* snug_microkernel_fn with the compiler's vector types: four rows at a time. */
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

static const struct snug_microkernel portable = {"portable", portable_block, nothing, nothing};

/* The processor's own is used with the widest instruction set only: tests that force another set test the portable one.
 */
static const struct snug_microkernel *microkernel(const struct snug_run *run) {
#if defined(__AVX512F__) || defined(__aarch64__)
    const struct snug_cpu *cpu = run->backend_state;
    if (cpu->microkernel) return cpu->microkernel;
#endif
    (void)run;
    return &portable;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Stores a finished block, with bias, in y. Inlined once for each type and for whole blocks, because it takes as long
   as a few steps of the micro-kernel. */
static inline __attribute__((always_inline)) void put(const struct snug_matmul *p, enum snug_dtype dtype,
                                                      const float *c, int64_t row, int64_t column, int64_t columns) {
    int64_t rows = snug_min(BLOCK, p->m - row), size = snug_dtype_size(dtype);
    uint8_t *y = (uint8_t *)p->y + (row * p->ldy + column) * size;
    vec bias[BLOCK / VEC_LANES];
    for (int64_t j = 0; j < columns; j += VEC_LANES)
        bias[j / VEC_LANES] = p->bias ? vec_load(p->bias + column, SNUG_F32, j, columns) : vec_all(0.0f);
    for (int64_t i = 0; i < rows; i++, c += BLOCK, y += p->ldy * size)
        for (int64_t j = 0; j < columns; j += VEC_LANES) {
            vec v = vec_read(c + j) + bias[j / VEC_LANES];
            if (p->add) v += vec_load(y, dtype, j, columns);
            vec_store(y, dtype, j, columns, v);
        }
}

static void put_block(const struct snug_matmul *p, const float *c, int64_t row, int64_t column) {
    int64_t columns = p->n - column;
    if (columns >= BLOCK && p->y_dtype == SNUG_BF16)
        put(p, SNUG_BF16, c, row, column, BLOCK);
    else if (columns >= BLOCK)
        put(p, SNUG_F32, c, row, column, BLOCK);
    else
        put(p, p->y_dtype, c, row, column, columns);
}

/* Rows row … row + 31 of panels first … end - 1; packed holds the panels from slab on. Where the inner dimension is not
   a multiple of 32, the last step's left operand is a zero-padded copy. */
static void run_strip(const struct snug_matmul *p, snug_microkernel_fn *kernel, const uint16_t *packed, int64_t slab,
                      int64_t row, int64_t first, int64_t end) {
    const uint16_t *a = (const uint16_t *)p->a + row * p->lda;
    uint16_t spare[BLOCK_SIZE] __attribute__((aligned(64)));
    float c[BLOCK_SIZE] __attribute__((aligned(64)));
    int64_t steps = p->k / BLOCK, left = p->k % BLOCK, ld = p->lda;
    if (left) whole(a + steps * BLOCK, &ld, p->m - row, left, spare);
    for (int64_t panel = first; panel < end; panel++) {
        const uint16_t *b = packed + (panel - slab) * blocks(p->k) * BLOCK_SIZE;
        if (steps) kernel(c, BLOCK, a, p->lda, BLOCK, b, steps, false);
        if (left) kernel(c, BLOCK, spare, BLOCK, 0, b + steps * BLOCK_SIZE, 1, steps > 0);
        put_block(p, c, row, panel * BLOCK);
    }
}

static void pack_panel(uint16_t *packed, const struct snug_matmul *p, int64_t panel) {
    const uint16_t *b = p->b;
    int64_t column = panel * BLOCK;
    for (int64_t step = 0; step < p->k; step += BLOCK, packed += BLOCK_SIZE) {
        if (p->transpose_b)
            pack_b_transposed(packed, b + column * p->k + step, p->k, p->n - column, p->k - step);
        else
            pack_b(packed, b + step * p->n + column, p->n, p->k - step, p->n - column);
    }
}

/* In a generation of few sequences the weights are read as they are stored. This depends on the run, not on the step
   alone: a row's bits are the same whatever the others are. */
static bool has_few_rows(const struct snug_run *run, const struct snug_matmul *p) {
    const struct snug_program *program = run->program;
    return p->m <= SNUG_CPU_FEW_LOW_ROWS && program->cache_pages &&
           program->capacity[SNUG_EXTENT_SEQUENCES] <= SNUG_CPU_FEW_LOW_ROWS;
}

/* The rows are widened once, into a part of the workspace: they take less than a panel of the weights. */
static snug_status multiply_few_rows(struct snug_run *run, const struct snug_matmul *p) {
    struct snug_matmul wide = *p;
    float *rows = run->workspace;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->k; j += VEC_LANES)
            vec_store(rows + i * p->k, SNUG_F32, j, p->k,
                      vec_load((const uint16_t *)p->a + i * p->lda, SNUG_BF16, j, p->k));
    wide.a = rows;
    wide.lda = p->k;
    return (p->transpose_b ? SNUG_KERNEL(matmul_few_rows) : SNUG_KERNEL(matmul_few_rows_across))(run, &wide);
}

snug_status SNUG_KERNEL(matmul_bf16)(struct snug_run *run, const struct snug_matmul *p) {
    const struct snug_microkernel *kernel = microkernel(run);
    if (has_few_rows(run, p)) return multiply_few_rows(run, p);
    uint16_t *packed = run->workspace;
    int64_t down = (p->m + UNIT_ROWS - 1) / UNIT_ROWS, panels = blocks(p->n);
#pragma omp parallel num_threads(run->threads)
    {
        kernel->begin();
        for (int64_t slab = 0; slab < panels; slab += SLAB) {
            int64_t end = snug_min(slab + SLAB, panels), across = (end - slab + UNIT_PANELS - 1) / UNIT_PANELS;
#pragma omp for
            for (int64_t panel = slab; panel < end; panel++)
                pack_panel(packed + (panel - slab) * blocks(p->k) * BLOCK_SIZE, p, panel);
#pragma omp for schedule(dynamic)
            for (int64_t unit = 0; unit < down * across; unit++) {
                int64_t row = unit % down * UNIT_ROWS, first = slab + unit / down * UNIT_PANELS;
                for (int64_t i = row; i < snug_min(row + UNIT_ROWS, p->m); i += BLOCK)
                    run_strip(p, kernel->run, packed, slab, i, first, snug_min(first + UNIT_PANELS, end));
            }
        }
        kernel->end();
    }
    return SNUG_OK;
}

int64_t SNUG_KERNEL(matmul_bf16_workspace)(int64_t n, int64_t k) {
    return snug_min(blocks(n), SLAB) * blocks(k) * BLOCK_SIZE * (int64_t)sizeof(uint16_t);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Packs rows start … end - 1 of 32 columns of dy as left operand, and adds the column sums to db. */
static void pack_dy(uint16_t *packed, const struct snug_weight_gradient *p, int64_t start, int64_t end,
                    int64_t column) {
    const uint16_t *dy = (const uint16_t *)p->dy + column;
    int64_t columns = snug_min(BLOCK, p->n - column);
    for (int64_t t = start; t < end; t += BLOCK, packed += BLOCK_SIZE)
        pack_a_transposed(packed, dy + t * p->lddy, p->lddy, end - t, p->n - column);
    if (!p->db) return;
    for (int64_t j = 0; j < columns; j += VEC_LANES) {
        const vec before = start || p->add ? vec_load(p->db + column, SNUG_F32, j, columns) : vec_all(0.0f);
        vec total = start ? before : vec_all(0.0f);
        for (int64_t t = start; t < end; t += BLOCK) {
            vec sum = vec_all(0.0f);
            for (int64_t i = t; i < snug_min(t + BLOCK, end); i++)
                sum += vec_load(dy + i * p->lddy, SNUG_BF16, j, columns);
            total += sum;
        }
        if (!start) total += before;
        vec_store(p->db + column, SNUG_F32, j, columns, total);
    }
}

/* Adds a whole block, which was computed apart, to dw. */
static void add_block(float *dw, int64_t ld, const float *c, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++, dw += ld, c += BLOCK)
        for (int64_t j = 0; j < columns; j += VEC_LANES)
            vec_store(dw, SNUG_F32, j, columns, vec_load(dw, SNUG_F32, j, columns) + vec_load(c, SNUG_F32, j, BLOCK));
}

/* The block of dw at row, column; a block that exceeds dw is computed in a copy. */
static void run_weight_block(const struct snug_weight_gradient *p, snug_microkernel_fn *kernel, const uint16_t *dy,
                             const uint16_t *x, int64_t steps, int64_t row, int64_t column, bool add, bool apart) {
    float *dw = p->dw + row * p->k + column, c[BLOCK_SIZE] __attribute__((aligned(64)));
    int64_t rows = snug_min(BLOCK, p->n - row), columns = snug_min(BLOCK, p->k - column);
    if (add && apart) {
        kernel(c, BLOCK, dy, BLOCK, BLOCK_SIZE, x, steps, false);
        add_block(dw, p->k, c, rows, columns);
        return;
    }
    if (rows == BLOCK && columns == BLOCK) {
        kernel(dw, p->k, dy, BLOCK, BLOCK_SIZE, x, steps, add);
        return;
    }
    memset(c, 0, sizeof c);
    for (int64_t i = 0; add && i < rows; i++) memcpy(c + i * BLOCK, dw + i * p->k, (size_t)columns * sizeof *c);
    kernel(c, BLOCK, dy, BLOCK, BLOCK_SIZE, x, steps, true);
    for (int64_t i = 0; i < rows; i++) memcpy(dw + i * p->k, c + i * BLOCK, (size_t)columns * sizeof *c);
}

snug_status SNUG_KERNEL(weight_gradient_bf16)(struct snug_run *run, const struct snug_weight_gradient *p) {
    const struct snug_microkernel *kernel = microkernel(run);
    int64_t down = blocks(p->n), across = blocks(p->k), groups = (across + UNIT_PANELS - 1) / UNIT_PANELS;
    if (p->t == 0 && !p->add) {
        memset(p->dw, 0, (size_t)(p->n * p->k) * sizeof *p->dw);
        if (p->db) memset(p->db, 0, (size_t)p->n * sizeof *p->db);
    }
#pragma omp parallel num_threads(run->threads)
    {
        kernel->begin();
        for (int64_t start = 0; start < p->t; start += CHUNK_ROWS) {
            int64_t end = snug_min(start + CHUNK_ROWS, p->t), steps = blocks(end - start), size = steps * BLOCK_SIZE;
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
                    pack_b(to, (const uint16_t *)p->x + t * p->ldx + column, p->ldx, end - t, p->k - column);
            }
#pragma omp for schedule(dynamic)
            for (int64_t unit = 0; unit < down * groups; unit++) {
                int64_t row = unit / groups, first = unit % groups * UNIT_PANELS;
                for (int64_t panel = first; panel < snug_min(first + UNIT_PANELS, across); panel++)
                    run_weight_block(p, kernel->run, dy + row * size, x + panel * size, steps, row * BLOCK,
                                     panel * BLOCK, start || p->add, p->apart && start == 0);
            }
        }
        kernel->end();
    }
    return SNUG_OK;
}

int64_t SNUG_KERNEL(weight_gradient_bf16_workspace)(int64_t t, int64_t n, int64_t k) {
    return (blocks(n) + blocks(k)) * blocks(snug_min(t, CHUNK_ROWS)) * BLOCK_SIZE * (int64_t)sizeof(uint16_t);
}
