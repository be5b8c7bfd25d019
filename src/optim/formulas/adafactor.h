/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adafactor's formulas, and the order of its sums: see optimizers/adafactor.c, and formula.h. All backends but the
 * reference sum in this order, which suits a warp as well as vectors; only a GPU that updates its weights one by one
 * divides a matrix into more parts:
 * - a row is summed by SNUG_ADAFACTOR_LANES lanes. Lane i adds values i, i + 32, … in fp32, 8 at a time, and these sums
 *   in double; then the lanes are added as a tree: lanes i and i + 16, then i and i + 8, …
 * - a matrix is divided into parts of rows (snug_adafactor_parts). A column is summed over a part in fp32, row by row,
 *   then over the parts in double.
 * - a sum over all elements of a part has SNUG_ADAFACTOR_SUMS sums in double: of 8 groups of lanes, to which rows are
 *   assigned in turn; or of 256 values in turn. They are added group by group, each as a tree; then the parts in order.
 */
#ifndef SNUG_OPTIM_FORMULAS_ADAFACTOR_H
#define SNUG_OPTIM_FORMULAS_ADAFACTOR_H

#include <stdint.h>

#include "optim/formulas/formula.h"

enum {
    SNUG_ADAFACTOR_LANES = 32,
    SNUG_ADAFACTOR_GROUPS = 8,
    SNUG_ADAFACTOR_SUMS = SNUG_ADAFACTOR_GROUPS * SNUG_ADAFACTOR_LANES,
    SNUG_ADAFACTOR_EACH = 8, /* values that a lane adds in fp32 */
};

/* Parts of a matrix of `rows` rows. A part's columns are summed in fp32, and each part has a row of scratch. */
static inline int32_t snug_adafactor_parts(int64_t rows) {
    const int64_t parts = (rows + 31) / 32;
    return (int32_t)(parts < 256 ? parts : 256);
}
/* The first row of a part; of part number `parts`, the end. */
static inline int64_t snug_adafactor_begin(int64_t rows, int64_t parts, int64_t part) { return rows * part / parts; }

/* A second moment: the old one and a mean of squares. */
static inline float snug_adafactor_average(const struct snug_adafactor_numbers *s, float state, float mean) {
    return state * s->kept + mean * s->fresh;
}
/* The mean of n squares, from their sum. */
static inline float snug_adafactor_mean(const struct snug_adafactor_numbers *s, double sum, int64_t n) {
    return (float)(sum / (double)n + (double)s->epsilon);
}
static inline float snug_adafactor_row_factor(float row_state, double mean_of_rows) {
    return (float)(1 / sqrt((double)row_state / mean_of_rows));
}
static inline float snug_adafactor_column_factor(float column_state) { return 1 / sqrtf(column_state); }
/* The update of an element before it is scaled; row: the row's factor times the gradient's clip factor. */
static inline float snug_adafactor_direction(float g, float row, float column) { return g * row * column; }
/* As snug_adafactor_direction(), of an element of a vector. */
static inline float snug_adafactor_vector_direction(float g, float state) { return g / sqrtf(state); }

/* Factors that all elements of a parameter share: of the update, and of p. */
struct snug_adafactor_scales {
    float step, keep;
};
/* From the sums of squares of p, which is 0 unless `scales`, and of the update. */
static inline struct snug_adafactor_scales snug_adafactor_scales(const struct snug_adafactor_numbers *s, double size,
                                                                 double square, int64_t elements) {
    struct snug_adafactor_scales scales;
    double rate = (double)s->rate;
    if (s->scales) rate *= fmax((double)s->epsilon2, sqrt(size / (double)elements));
    scales.step = (float)(rate / fmax(1.0, sqrt(square / (double)elements) / (double)s->threshold));
    scales.keep = (float)(1 - rate * (double)s->decay);
    return scales;
}
/* The new p of an element with direction u. */
static inline float snug_adafactor_step(const struct snug_adafactor_scales *s, float p, float u) {
    return p * s->keep - u * s->step;
}
/* As snug_adafactor_step(), with a first moment. */
static inline float snug_adafactor_momentum_step(const struct snug_adafactor_numbers *n,
                                                 const struct snug_adafactor_scales *s, float p, float u, float *m) {
    *m = *m * n->beta1 + u * s->step * n->rest1;
    return p * s->keep - *m;
}

#endif
