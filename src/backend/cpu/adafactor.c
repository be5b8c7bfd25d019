/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAFACTOR: transformers' Adafactor. There are three passes over a parameter: sums of squares over rows and columns;
 * the norm of the update that follows from them; the update. Only the last pass reads more than the gradient, and no
 * scratch has the parameter's size. A vector is a matrix of one row without a row factor: the mean over a column of one
 * value is that value, so the columns' state is the vector's second moment.
 */
#include <math.h>

#include "backend/cpu/update.h"
#include "backend/cpu/workspace.h"

/* Columns that a thread sums at a time. */
enum { COLUMNS = 256 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Blocks of rows that are summed on their own, then in order. */
static int64_t blocks_of(int64_t rows) { return smaller(rows, SNUG_CPU_BLOCKS); }

/* One parameter of the stack, and its values in this step. */
struct segment {
    const struct snug_run *run;
    const struct snug_op *op;
    int64_t first, rows, cols, blocks; /* first: its first value in the stack */
    const float *g;
    float *row_state, *column_state, *momentum; /* row_state NULL: a vector; momentum may be NULL */
    float clip, beta2, one_minus_beta2;
    double row_mean, step, keep;
    double *column_sums; /* [blocks][cols] */
    double *block_sums;  /* [blocks] */
    float *factors;      /* factors of the columns */
};

static int64_t block_begin(const struct segment *s, int64_t block) { return s->rows * block / s->blocks; }

/* Adds the squares of a row to the columns' sums and gives their own sum: in fp32 over a few values per lane, which
   loses little precision, then in double. */
static double add_squares(double *restrict columns, const float *restrict g, float clip, int64_t n) {
    enum { LANES = 32, PART = 8 * LANES };
    double sum = 0;
    for (int64_t first = 0; first < n; first += PART) {
        const int64_t end = smaller(first + PART, n), whole = first + (end - first) / LANES * LANES;
        float lane[LANES] = {0};
        for (int64_t i = first; i < whole; i += LANES)
#pragma omp simd
            for (int j = 0; j < LANES; j++) {
                const float value = g[i + j] * clip, square = value * value;
                lane[j] += square;
                columns[i + j] += square;
            }
        for (int64_t i = whole; i < end; i++) {
            const float value = g[i] * clip, square = value * value;
            lane[i - whole] += square;
            columns[i] += square;
        }
        for (int j = 0; j < LANES; j++) sum += lane[j];
    }
    return sum;
}

static float row_factor(const struct segment *s, int64_t row) {
    return s->row_state ? (float)(1 / sqrt(s->row_state[row] / s->row_mean)) : 1.0f;
}

/* Stores sums of the block's columns in column_sums, and the rows' new means in row_state. */
static void square_block(const struct segment *s, int64_t block) {
    const double epsilon = s->run->optimizer->epsilon;
    double *columns = s->column_sums + block * s->cols;
    for (int64_t i = 0; i < s->cols; i++) columns[i] = 0;
    for (int64_t row = block_begin(s, block); row < block_begin(s, block + 1); row++) {
        const double mean = add_squares(columns, s->g + row * s->cols, s->clip, s->cols) / (double)s->cols + epsilon;
        if (s->row_state) s->row_state[row] = s->row_state[row] * s->beta2 + (float)mean * s->one_minus_beta2;
    }
}

/* Computes the new means of some columns, and their factors. */
static void finish_columns(const struct segment *s, int64_t first) {
    const int64_t end = smaller(first + COLUMNS, s->cols), count = end - first;
    double sums[COLUMNS] = {0};
    for (int64_t block = 0; block < s->blocks; block++)
        for (int64_t i = 0; i < count; i++) sums[i] += s->column_sums[block * s->cols + first + i];
    for (int64_t i = 0; i < count; i++) {
        const float mean = (float)(sums[i] / (double)s->rows + s->run->optimizer->epsilon);
        float *state = s->column_state + first + i;
        *state = *state * s->beta2 + mean * s->one_minus_beta2;
        s->factors[first + i] = 1 / sqrtf(*state);
    }
}

/* The sum of squares of the block's update, before it is scaled. */
static double measure_block(const struct segment *s, int64_t block) {
    double sum = 0;
    for (int64_t row = block_begin(s, block); row < block_begin(s, block + 1); row++) {
        const double factor = (double)row_factor(s, row) * s->clip;
        sum += factor * factor * SNUG_KERNEL(sum_of_squares)(s->g + row * s->cols, s->factors, s->cols);
    }
    return sum;
}

static double measure_parameter(const struct segment *s, int64_t block) {
    const int64_t begin = block_begin(s, block) * s->cols, end = block_begin(s, block + 1) * s->cols;
    double sum = 0;
    for (int64_t first = begin; first < end; first += SNUG_UPDATE_PART) {
        float buffer[SNUG_UPDATE_PART];
        const int64_t count = smaller(SNUG_UPDATE_PART, end - first);
        const float *p = SNUG_KERNEL(update_begin)(s->run, s->op, buffer, s->first + first, count);
        sum += SNUG_KERNEL(sum_of_squares)(p, NULL, count);
    }
    return sum;
}

static void update_part(const struct segment *s, float *restrict p, float *restrict momentum, const float *restrict g,
                        const float *restrict factors, float step, int64_t n) {
    const float keep = (float)s->keep, beta1 = (float)s->run->optimizer->beta1;
    const float one_minus_beta1 = (float)(1 - s->run->optimizer->beta1);
    if (momentum) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            momentum[i] = momentum[i] * beta1 + g[i] * factors[i] * step * one_minus_beta1;
            p[i] = p[i] * keep - momentum[i];
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) p[i] = p[i] * keep - g[i] * factors[i] * step;
    }
}

static void update_block(const struct segment *s, int64_t block) {
    for (int64_t row = block_begin(s, block); row < block_begin(s, block + 1); row++) {
        const float step = (float)(s->step * s->clip * row_factor(s, row));
        for (int64_t column = 0; column < s->cols; column += SNUG_UPDATE_PART) {
            float buffer[SNUG_UPDATE_PART];
            const int64_t count = smaller(SNUG_UPDATE_PART, s->cols - column), at = row * s->cols + column;
            float *p = SNUG_KERNEL(update_begin)(s->run, s->op, buffer, s->first + at, count);
            update_part(s, p, s->momentum ? s->momentum + at : NULL, s->g + at, s->factors + column, step, count);
            SNUG_KERNEL(update_end)(s->run, s->op, p, s->first + at, count);
        }
    }
}

/* measure() of all blocks, summed in order. */
static double add_blocks(const struct segment *s, double (*measure)(const struct segment *s, int64_t block)) {
    double sum = 0;
#pragma omp parallel for num_threads(s->run->threads) if (s->blocks > 1)
    for (int64_t block = 0; block < s->blocks; block++) s->block_sums[block] = measure(s, block);
    for (int64_t block = 0; block < s->blocks; block++) sum += s->block_sums[block];
    return sum;
}

static void update_segment(struct segment *s) {
    const struct snug_optimizer *o = s->run->optimizer;
    const double elements = (double)(s->rows * s->cols);
    double rate = s->run->learning_rate;
    if (o->scale_parameter) rate *= fmax(o->epsilon2, sqrt(add_blocks(s, measure_parameter) / elements));
#pragma omp parallel for num_threads(s->run->threads) if (s->blocks > 1)
    for (int64_t block = 0; block < s->blocks; block++) square_block(s, block);
#pragma omp parallel for num_threads(s->run->threads) if (s->blocks > 1)
    for (int64_t column = 0; column < s->cols; column += COLUMNS) finish_columns(s, column);
    s->row_mean = 0;
    for (int64_t row = 0; s->row_state && row < s->rows; row++) s->row_mean += s->row_state[row];
    s->row_mean /= (double)s->rows;
    s->step = rate / fmax(1, sqrt(add_blocks(s, measure_block) / elements) / o->clip_threshold);
    s->keep = 1 - rate * (s->op->update.decay ? o->weight_decay : 0);
#pragma omp parallel for num_threads(s->run->threads) if (s->blocks > 1)
    for (int64_t block = 0; block < s->blocks; block++) update_block(s, block);
}

snug_status SNUG_KERNEL(adafactor)(struct snug_run *run, const struct snug_op *op) {
    const double fresh = pow((double)run->step + 1, run->optimizer->decay_rate); /* 1 - beta2 of this step */
    const int64_t rows = snug_run_rows(run, op->update.g) / op->update.segments,
                  cols = snug_run_cols(run, op->update.g);
    const int column = op->update.vector ? 0 : 1; /* the first moment follows this state */
    struct segment s = {.run = run,
                        .op = op,
                        .rows = rows,
                        .cols = cols,
                        .blocks = blocks_of(rows),
                        .clip = update_clip(run, op),
                        .beta2 = (float)(1 - fresh),
                        .one_minus_beta2 = (float)fresh};
    s.column_sums = run->workspace;
    s.block_sums = s.column_sums + s.blocks * cols;
    s.factors = (float *)(s.block_sums + s.blocks);
    for (int64_t i = 0; i < op->update.segments; i++) {
        s.first = i * rows * cols;
        s.g = (const float *)snug_run_data(run, op->update.g) + s.first;
        s.row_state = op->update.vector ? NULL : (float *)snug_run_data(run, op->update.states[0]) + i * rows;
        s.column_state = (float *)snug_run_data(run, op->update.states[column]) + i * cols;
        s.momentum =
            op->update.states[column + 1] ? (float *)snug_run_data(run, op->update.states[column + 1]) + s.first : NULL;
        update_segment(&s);
    }
    return SNUG_OK;
}

int64_t SNUG_KERNEL(adafactor_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    const struct snug_tensor *g = &program->tensors[op->update.g];
    const int64_t blocks = blocks_of(g->rows / op->update.segments);
    return (int64_t)sizeof(double) * blocks * (g->cols + 1) + (int64_t)sizeof(float) * g->cols;
}
