/* SPDX-License-Identifier: Apache-2.0 */
/* Values of parameters that are in no file: they follow from a seed and the parameter's name. */
#ifndef SNUG_MODEL_DRAW_H
#define SNUG_MODEL_DRAW_H

#include "core/context.h"

/* A stream of random numbers; each name has its own. */
struct snug_draw {
    uint32_t name;
    uint64_t seed;
};
struct snug_draw snug_draw_of(const char *name, uint64_t seed);
/* Elements first … first + count - 1 of normal(0, deviation), at most SNUG_DRAW_MOST; first is a multiple of 4. */
enum { SNUG_DRAW_MOST = 4096 };
void snug_draw_normal(const struct snug_draw *draw, int64_t first, int64_t count, double deviation, float *values);
/* The same, uniform in [-bound, bound). */
void snug_draw_uniform(const struct snug_draw *draw, int64_t first, int64_t count, double bound, float *values);

/* Writes elements first … first + count - 1 of something to values. */
typedef snug_status snug_make_fn(const void *user, int64_t first, int64_t count, void *values);

/*
 * Rows of new tokens, as transformers' resize_token_embeddings() draws them: from the normal distribution with the mean
 * of the old rows and their covariance times 1e-9. The sum of the old rows' deviations from the mean, each with a
 * Gaussian weight, has this distribution. (Where fp32 cannot factorise the covariance, transformers takes the mean
 * alone.)
 */
struct snug_new_rows {
    snug_make_fn *old; /* makes the old rows [rows,cols], fp32 */
    const void *user;
    int64_t rows, cols;
    double deviation; /* of the sum's weights: sqrt(1e-9 / rows); of biases 1e-9 / sqrt(rows) */
    struct snug_draw draw;
    int threads;
    double *mean; /* [cols]; snug_new_rows_begin() fills it */
    float *part;  /* room for snug_new_rows_part() values */
};
int64_t snug_new_rows_part(int64_t cols);
snug_status snug_new_rows_begin(struct snug_new_rows *rows);
/* A snug_make_fn of the new rows' elements, with a struct snug_new_rows. */
snug_status snug_new_rows_make(const void *user, int64_t first, int64_t count, void *values);

#endif
