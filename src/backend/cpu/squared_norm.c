/* SPDX-License-Identifier: Apache-2.0 */
/* SQUARED_NORM and CLIP. */
#include <math.h>

#include "backend/cpu/update.h"
#include "core/min_max.h"

/* Values of a thread's unit of work: fixed, so that sums do not depend on the number of threads, nor on where a tensor
   is split, if it is split at multiples of this. */
enum { BLOCK = SNUG_NORM_CHUNK };

static int64_t blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

/* Values summed at a time: in fp32 over a few values per lane, which loses little precision, then in double. */
enum { LANES = 32, PART = 8 * LANES };

/* sum + the squares of x. */
static double add_part(double sum, const float *x, int64_t n) {
    const int64_t whole = n / LANES * LANES;
    float lane[LANES] = {0};
    for (int64_t i = 0; i < whole; i += LANES)
#pragma omp simd
        for (int j = 0; j < LANES; j++) lane[j] += x[i + j] * x[i + j];
    for (int64_t i = whole; i < n; i++) lane[i - whole] += x[i] * x[i];
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

/* The gradient of a tensor of size values, or of the rows of a table that have a gradient: the others are 0. */
struct gradient {
    const float *values;
    int64_t cols, size;
    const struct snug_rows *rows; /* NULL: all rows */
};

/* Values first … first + n - 1: in place, or gathered in buffer; NULL if all are 0. */
static const float *part_at(const struct gradient *g, int64_t first, int64_t n, float buffer[PART]) {
    if (!g->rows) return g->values + first;
    bool any = false;
    for (int64_t row = first / g->cols; row * g->cols < first + n; row++) any |= g->rows->slots[row] >= 0;
    for (int64_t i = 0, end; any && i < n; i = end) {
        const int64_t row = (first + i) / g->cols, col = (first + i) % g->cols, slot = g->rows->slots[row];
        end = snug_min(n, i + g->cols - col);
        if (slot >= 0)
            memcpy(buffer + i, g->values + slot * g->cols + col, (size_t)(end - i) * sizeof *buffer);
        else
            memset(buffer + i, 0, (size_t)(end - i) * sizeof *buffer);
    }
    return any ? buffer : NULL;
}

static double sum_of_block(const struct gradient *g, int64_t block) {
    const int64_t end = snug_min((block + 1) * BLOCK, g->size);
    double sum = 0;
    for (int64_t first = block * BLOCK; first < end; first += PART) {
        float buffer[PART];
        const int64_t n = snug_min(PART, end - first);
        const float *part = part_at(g, first, n, buffer);
        if (part) sum = add_part(sum, part, n);
    }
    return sum;
}

static int64_t size_of(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *g = &program->tensors[op->squared_norm.g];
    const int64_t rows =
        !op->squared_norm.index ? g->rows : program->tensors[op->squared_norm.index].cols - 1 - g->rows;
    return rows * g->cols;
}

snug_status SNUG_KERNEL(squared_norm)(struct snug_run *run, const struct snug_op *op) {
    struct snug_rows rows;
    struct gradient g = {.values = snug_run_data(run, op->squared_norm.g),
                         .cols = snug_run_cols(run, op->squared_norm.g),
                         .size = size_of(run->program, op)};
    if (op->squared_norm.index) {
        rows = snug_rows_of(run, op->squared_norm.index, op->squared_norm.g);
        g.rows = &rows;
    }
    double *sums = (double *)snug_run_data(run, op->squared_norm.sums) + op->squared_norm.slot;
    double *part = op->squared_norm.chunks ? sums : run->workspace, sum = op->accumulate ? *sums : 0;
    const int64_t count = blocks(g.size);
#pragma omp parallel for num_threads(run->threads) schedule(guided) if (count > 1)
    for (int64_t b = 0; b < count; b++) part[b] = sum_of_block(&g, b);
    if (op->squared_norm.chunks) return SNUG_OK;
    for (int64_t b = 0; b < count; b++) sum += part[b];
    *sums = sum;
    return SNUG_OK;
}

int64_t SNUG_KERNEL(squared_norm_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    return blocks(size_of(program, op)) * (int64_t)sizeof(double);
}

snug_status SNUG_KERNEL(clip)(struct snug_run *run, const struct snug_op *op) {
    const double *sums = snug_run_data(run, op->clip.sums);
    float *clip = snug_run_data(run, op->clip.clip);
    int64_t n = snug_run_rows(run, op->clip.sums) * snug_run_cols(run, op->clip.sums);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += sums[i];
    double norm = sqrt(sum), scale = run->max_grad_norm / (norm + 1e-6);
    clip[0] = (float)norm;
    clip[1] = run->max_grad_norm <= 0 || scale > 1 ? 1.0f : (float)scale; /* NaN stays NaN */
    return SNUG_OK;
}
