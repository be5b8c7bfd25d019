/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAFACTOR: transformers' Adafactor. There are three passes over a matrix: sums of squares over rows and columns; the
 * norm of the update that follows from them; the update. Only the last pass reads more than the gradient, and no
 * scratch has the parameter's size. The order of all sums is that of optim/formulas/adafactor.h. A vector has a second
 * moment for each value.
 */
#include "optim/formulas/adafactor.h"

#include "backend/cpu/update.h"
#include "core/min_max.h"

enum {
    LANES = SNUG_ADAFACTOR_LANES,
    GROUPS = SNUG_ADAFACTOR_GROUPS,
    SUMS = SNUG_ADAFACTOR_SUMS,
    CHUNK = SNUG_ADAFACTOR_EACH * LANES, /* values of a row that its lanes add in fp32 */
    COLUMNS = 256,                       /* that a thread sums at a time */
};

/* One parameter of the stack. */
struct segment {
    const struct snug_run *run;
    const struct snug_op *op;
    struct snug_adafactor_numbers numbers;
    int64_t first, rows, cols, parts; /* first: its first value in the stack */
    const float *g;
    float *row_state, *column_state, *momentum; /* vectors have column_state only; momentum may be NULL */
    float clip;
    double mean_of_rows;
    struct snug_adafactor_scales scales;
    double *part_sums;            /* [parts] */
    float *column_sums, *factors; /* [parts][cols]; factors of the columns */
};

/* ---- sums ------------------------------------------------------------------------------------------------------ */

/* Adds x^2, or (x row factors)^2 where factors is not NULL, of n <= CHUNK values to the lanes' sums. Inlined for each.
 */
static inline __attribute__((always_inline)) void add_chunk(double lanes[LANES], const float *restrict x, float row,
                                                            const float *restrict factors, int64_t n) {
    const int64_t whole = n / LANES * LANES;
    float part[LANES] = {0};
    for (int64_t i = 0; i < whole; i += LANES)
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            const float value = factors ? snug_adafactor_direction(x[i + j], row, factors[i + j]) : x[i + j] * row;
            part[j] += value * value;
        }
    for (int64_t i = whole; i < n; i++) {
        const float value = factors ? snug_adafactor_direction(x[i], row, factors[i]) : x[i] * row;
        part[i - whole] += value * value;
    }
    for (int j = 0; j < LANES; j++) lanes[j] += part[j];
}

static double sum_lanes(double lanes[LANES]) {
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] += lanes[j + half];
    return lanes[0];
}

static double sum_groups(double sums[SUMS]) {
    double sum = 0;
    for (int group = 0; group < GROUPS; group++) sum += sum_lanes(sums + group * LANES);
    return sum;
}

/* Adds the squares of n values of the parameter, from its value first on, to the sums, value i to sum i % SUMS. */
static void add_parameter(const struct segment *s, double sums[SUMS], int64_t first, int64_t n) {
    for (int64_t done = 0; done < n; done += SNUG_UPDATE_PART) {
        float buffer[SNUG_UPDATE_PART];
        const int64_t count = snug_min(SNUG_UPDATE_PART, n - done);
        const float *p = SNUG_KERNEL(update_begin)(s->run, s->op, buffer, s->first + first + done, count);
        for (int64_t at = 0; at < count; at += SUMS)
#pragma omp simd
            for (int64_t i = at; i < snug_min(at + SUMS, count); i++) sums[i - at] += (double)p[i] * (double)p[i];
    }
}

static int64_t begin_of(const struct segment *s, int64_t part) { return snug_adafactor_begin(s->rows, s->parts, part); }

static double measure_parameter(const struct segment *s, int64_t part) {
    double sums[SUMS] = {0};
    const int64_t begin = begin_of(s, part) * s->cols;
    add_parameter(s, sums, begin, begin_of(s, part + 1) * s->cols - begin);
    return sum_groups(sums);
}

static float row_factor(const struct segment *s, int64_t row) {
    return snug_adafactor_row_factor(s->row_state[row], s->mean_of_rows) * s->clip;
}

/* The sum of squares of a part's update, before it is scaled. */
static double measure_update(const struct segment *s, int64_t part) {
    double sums[SUMS] = {0};
    const int64_t begin = begin_of(s, part);
    for (int64_t row = begin; row < begin_of(s, part + 1); row++)
        for (int64_t c = 0; c < s->cols; c += CHUNK)
            add_chunk(sums + (row - begin) % GROUPS * LANES, s->g + row * s->cols + c, row_factor(s, row),
                      s->factors + c, snug_min(CHUNK, s->cols - c));
    return sum_groups(sums);
}

/* measure() of all parts, summed in order. */
static double add_parts(const struct segment *s, double (*measure)(const struct segment *s, int64_t part)) {
    double sum = 0;
#pragma omp parallel for num_threads(s->run->threads) schedule(guided) if (s->parts > 1)
    for (int64_t part = 0; part < s->parts; part++) s->part_sums[part] = measure(s, part);
    for (int64_t part = 0; part < s->parts; part++) sum += s->part_sums[part];
    return sum;
}

/* ---- matrices -------------------------------------------------------------------------------------------------- */

/* Stores sums of the part's columns in column_sums, and the rows' new means in row_state. */
static void square_part(const struct segment *s, int64_t part) {
    float *restrict columns = s->column_sums + part * s->cols;
    for (int64_t i = 0; i < s->cols; i++) columns[i] = 0;
    for (int64_t row = begin_of(s, part); row < begin_of(s, part + 1); row++) {
        const float *restrict g = s->g + row * s->cols;
        double lanes[LANES] = {0};
        for (int64_t c = 0; c < s->cols; c += CHUNK) {
            const int64_t n = snug_min(CHUNK, s->cols - c);
            add_chunk(lanes, g + c, s->clip, NULL, n);
#pragma omp simd
            for (int64_t i = c; i < c + n; i++) {
                const float value = g[i] * s->clip;
                columns[i] += value * value;
            }
        }
        const float mean = snug_adafactor_mean(&s->numbers, sum_lanes(lanes), s->cols);
        s->row_state[row] = snug_adafactor_average(&s->numbers, s->row_state[row], mean);
    }
}

/* Computes the new means of some columns, and their factors. */
static void finish_columns(const struct segment *s, int64_t first) {
    const int64_t end = snug_min(first + COLUMNS, s->cols), count = end - first;
    double sums[COLUMNS] = {0};
    for (int64_t part = 0; part < s->parts; part++)
        for (int64_t i = 0; i < count; i++) sums[i] += (double)s->column_sums[part * s->cols + first + i];
    for (int64_t i = 0; i < count; i++) {
        const float mean = snug_adafactor_mean(&s->numbers, sums[i], s->rows);
        float *state = s->column_state + first + i;
        *state = snug_adafactor_average(&s->numbers, *state, mean);
        s->factors[first + i] = snug_adafactor_column_factor(*state);
    }
}

static double mean_of_rows(const struct segment *s) {
    double sums[SUMS] = {0};
    for (int64_t row = 0; row < s->rows; row++) sums[row % SUMS] += (double)s->row_state[row];
    return sum_groups(sums) / (double)s->rows;
}

static void update_row(const struct segment *s, float *restrict p, float *restrict momentum, const float *restrict g,
                       const float *restrict factors, float row, int64_t n) {
    const struct snug_adafactor_numbers numbers = s->numbers;
    const struct snug_adafactor_scales scales = s->scales;
    if (momentum) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            p[i] = snug_adafactor_momentum_step(&numbers, &scales, p[i],
                                                snug_adafactor_direction(g[i], row, factors[i]), &momentum[i]);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            p[i] = snug_adafactor_step(&scales, p[i], snug_adafactor_direction(g[i], row, factors[i]));
    }
}

static void update_part(const struct segment *s, int64_t part) {
    for (int64_t row = begin_of(s, part); row < begin_of(s, part + 1); row++)
        for (int64_t column = 0; column < s->cols; column += SNUG_UPDATE_PART) {
            float buffer[SNUG_UPDATE_PART];
            const int64_t count = snug_min(SNUG_UPDATE_PART, s->cols - column), at = row * s->cols + column;
            float *p = SNUG_KERNEL(update_begin)(s->run, s->op, buffer, s->first + at, count);
            update_row(s, p, s->momentum ? s->momentum + at : NULL, s->g + at, s->factors + column, row_factor(s, row),
                       count);
            SNUG_KERNEL(update_end)(s->run, s->op, p, s->first + at, count);
        }
}

static void update_matrix(struct segment *s) {
    const double size = s->numbers.scales ? add_parts(s, measure_parameter) : 0;
#pragma omp parallel for num_threads(s->run->threads) schedule(guided) if (s->parts > 1)
    for (int64_t part = 0; part < s->parts; part++) square_part(s, part);
#pragma omp parallel for num_threads(s->run->threads) schedule(guided) if (s->parts > 1)
    for (int64_t column = 0; column < s->cols; column += COLUMNS) finish_columns(s, column);
    s->mean_of_rows = mean_of_rows(s);
    s->scales = snug_adafactor_scales(&s->numbers, size, add_parts(s, measure_update), s->rows * s->cols);
#pragma omp parallel for num_threads(s->run->threads) schedule(guided) if (s->parts > 1)
    for (int64_t part = 0; part < s->parts; part++) update_part(s, part);
}

/* ---- vectors --------------------------------------------------------------------------------------------------- */

static void update_vector(struct segment *s) {
    double squares[SUMS] = {0}, sizes[SUMS] = {0};
    for (int64_t i = 0; i < s->cols; i++) {
        const float g = s->g[i] * s->clip;
        float *state = s->column_state + i;
        *state = snug_adafactor_average(&s->numbers, *state, g * g + s->numbers.epsilon);
        const float u = snug_adafactor_vector_direction(g, *state);
        squares[i % SUMS] += (double)u * (double)u;
    }
    if (s->numbers.scales) add_parameter(s, sizes, 0, s->cols);
    s->scales = snug_adafactor_scales(&s->numbers, sum_groups(sizes), sum_groups(squares), s->cols);
    for (int64_t first = 0; first < s->cols; first += SNUG_UPDATE_PART) {
        float buffer[SNUG_UPDATE_PART];
        const int64_t count = snug_min(SNUG_UPDATE_PART, s->cols - first);
        float *p = SNUG_KERNEL(update_begin)(s->run, s->op, buffer, s->first + first, count);
        for (int64_t i = 0; i < count; i++) {
            const float u = snug_adafactor_vector_direction(s->g[first + i] * s->clip, s->column_state[first + i]);
            p[i] = s->momentum ? snug_adafactor_momentum_step(&s->numbers, &s->scales, p[i], u, s->momentum + first + i)
                               : snug_adafactor_step(&s->scales, p[i], u);
        }
        SNUG_KERNEL(update_end)(s->run, s->op, p, s->first + first, count);
    }
}

/* ---- the operation --------------------------------------------------------------------------------------------- */

snug_status SNUG_KERNEL(adafactor)(struct snug_run *run, const struct snug_op *op) {
    const int64_t rows = snug_run_rows(run, op->update.g) / op->update.segments,
                  cols = snug_run_cols(run, op->update.g);
    const int column = op->update.vector ? 0 : 1; /* the first moment follows this state */
    struct segment s = {.run = run,
                        .op = op,
                        .numbers = update_numbers(run, op, run->step - run->skipped, run->learning_rate).adafactor,
                        .rows = rows,
                        .cols = cols,
                        .parts = snug_adafactor_parts(rows),
                        .clip = update_clip(run, op)};
    s.part_sums = run->workspace;
    s.column_sums = (float *)(s.part_sums + s.parts);
    s.factors = s.column_sums + s.parts * cols;
    for (int64_t i = 0; i < op->update.segments; i++) {
        s.first = i * rows * cols;
        s.g = (const float *)snug_run_data(run, op->update.g) + s.first;
        s.row_state = op->update.vector ? NULL : (float *)snug_run_data(run, op->update.states[0]) + i * rows;
        s.column_state = (float *)snug_run_data(run, op->update.states[column]) + i * cols;
        s.momentum =
            op->update.states[column + 1] ? (float *)snug_run_data(run, op->update.states[column + 1]) + s.first : NULL;
        if (op->update.vector)
            update_vector(&s);
        else
            update_matrix(&s);
    }
    return SNUG_OK;
}

int64_t SNUG_KERNEL(adafactor_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    const struct snug_tensor *g = &program->tensors[op->update.g];
    const int64_t parts = snug_adafactor_parts(g->rows / op->update.segments);
    return (int64_t)sizeof(double) * parts + (int64_t)sizeof(float) * (parts + 1) * g->cols;
}
