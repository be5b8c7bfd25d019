/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: see struct snug_rotation. Cosines and sines of the batch's positions are computed once, in double,
   for all heads. */
#include <math.h>

#include "backend/cpu/rows.h"

/* Whether the table has a row for each token, since these are fewer than the positions, as in generation. */
static bool is_by_token(const struct snug_batch *batch) { return batch->tokens <= batch->longest; }

/* table [positions or tokens, 2 pairs]: the cosines, then the sines. */
static void make_table(const struct snug_run *run, const struct snug_rotation *r, bool back, float *table) {
    const struct snug_batch *batch = run->batch;
    const bool by_token = is_by_token(batch);
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < (by_token ? batch->tokens : batch->longest); row++) {
        float *cosines = table + row * 2 * r->pairs, *sines = cosines + r->pairs;
        const int64_t position = by_token ? batch->positions[row] : row;
        const double factor = snug_rotation_factor(r, position);
        for (int64_t c = 0; c < r->pairs; c++) {
            const double angle = (double)position * r->frequencies[c];
            cosines[c] = (float)(factor * cos(angle));
            sines[c] = (float)(factor * (back ? -sin(angle) : sin(angle)));
        }
    }
}

/* Rotates a head in scratch. */
static void rotate_head(const struct snug_rotation *r, float *x, const float *cosines) {
    const int64_t n = r->pairs;
    const float *sines = cosines + n;
    for (int64_t c = 0; r->neighbours && c < n; c++) {
        const float a = x[2 * c], b = x[2 * c + 1];
        x[2 * c] = a * cosines[c] - b * sines[c];
        x[2 * c + 1] = b * cosines[c] + a * sines[c];
    }
    for (int64_t c = 0; !r->neighbours && c < n; c += VEC_LANES) {
        const vec a = vec_load(x, SNUG_F32, c, n), b = vec_load(x + n, SNUG_F32, c, n);
        const vec cosine = vec_load(cosines, SNUG_F32, c, n), sine = vec_load(sines, SNUG_F32, c, n);
        vec_store(x, SNUG_F32, c, n, a * cosine - b * sine);
        vec_store(x + n, SNUG_F32, c, n, b * cosine + a * sine);
    }
}

/* y = x in `heads` heads from `column` on. */
static void rotate_heads(struct snug_run *run, const struct snug_rotation *r, struct snug_matrix y,
                         struct snug_matrix x, int32_t tensor, int64_t column, int64_t heads, int64_t d,
                         const float *table) {
    const bool by_token = is_by_token(run->batch), apart = x.data != y.data;
    const int64_t rest = heads * d, size = snug_dtype_size(x.dtype);
#pragma omp parallel for num_threads(run->threads) schedule(guided)
    for (int64_t row = 0; row < x.rows; row++) {
        const int64_t token = snug_run_token(run, tensor, row);
        const int64_t place = by_token ? token : run->batch->positions[token];
        const float *cosines = table + place * 2 * r->pairs;
        float *copy = scratch_rows(run, 1, d);
        for (int64_t head = 0; head < heads; head++) {
            const void *from = matrix_at(x, row, column + head * d);
            for (int64_t c = 0; c < d; c += VEC_LANES) vec_write(copy + c, vec_load(from, x.dtype, c, d));
            rotate_head(r, copy, cosines);
            for (int64_t c = 0; c < d; c += VEC_LANES)
                vec_store(matrix_at(y, row, column + head * d), y.dtype, c, d, vec_read(copy + c));
        }
        if (apart) memcpy(matrix_at(y, row, rest), matrix_at(x, row, rest), (size_t)((x.cols - rest) * size));
    }
}

static float *table_of(const struct snug_run *run, int64_t d) {
    return (float *)run->workspace + run->threads * snug_cpu_padded(d);
}

snug_status SNUG_KERNEL(rotate)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_rotate *o = &op->rotate;
    const struct snug_rotation *r = &run->program->rotations[o->rotation];
    float *table = table_of(run, o->head_dim);
    make_table(run, r, o->back, table);
    rotate_heads(run, r, snug_matrix_of(run, o->y), snug_matrix_of(run, o->x), o->x, 0, o->heads, o->head_dim, table);
    return SNUG_OK;
}

void SNUG_KERNEL(rotate_new_rows)(struct snug_run *run, const struct snug_cache_rows *c) {
    struct snug_rotation r = run->program->rotations[c->rotation];
    const struct snug_matrix q = snug_matrix_of(run, c->q), k = snug_matrix_of(run, c->k);
    const bool both = c->q == c->k; /* then nothing grows: growth is of queries alone */
    float *table = table_of(run, c->head_dim);
    make_table(run, &r, false, table);
    rotate_heads(run, &r, q, q, c->q, 0, c->heads + (both ? c->kv_heads : 0), c->head_dim, table);
    if (both) return;
    if (r.growth != 0) {
        r.growth = 0;
        make_table(run, &r, false, table);
    }
    rotate_heads(run, &r, k, k, c->k, c->column[0], c->kv_heads, c->head_dim, table);
}
