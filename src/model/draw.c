/* SPDX-License-Identifier: Apache-2.0 */
#include "model/draw.h"

#include <string.h>

#include "core/min_max.h"
#include "core/normal.h"
#include "core/philox.h"

/* FNV-1a */
struct snug_draw snug_draw_of(const char *name, uint64_t seed) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return (struct snug_draw){hash, seed};
}

/* Words for elements first … first + count - 1, and up to three more. */
static void draw_words(const struct snug_draw *draw, int64_t first, int64_t count, uint32_t words[SNUG_DRAW_MOST]) {
    for (int64_t i = 0; i < count; i += 4) {
        const int64_t number = (first + i) / 4;
        const struct snug_philox_block block =
            snug_philox((uint32_t)number, (uint32_t)(number >> 32), draw->name, (uint32_t)SNUG_PHILOX_INIT << 29,
                        (uint32_t)draw->seed, (uint32_t)(draw->seed >> 32));
        memcpy(words + i, block.word, sizeof block);
    }
}

void snug_draw_normal(const struct snug_draw *draw, int64_t first, int64_t count, double deviation, float *values) {
    uint32_t words[SNUG_DRAW_MOST];
    draw_words(draw, first, count, words);
    snug_normal(values, words, count, deviation);
}

void snug_draw_uniform(const struct snug_draw *draw, int64_t first, int64_t count, double bound, float *values) {
    uint32_t words[SNUG_DRAW_MOST];
    draw_words(draw, first, count, words);
    for (int64_t i = 0; i < count; i++) values[i] = (float)(bound * (2 * (double)snug_philox_uniform(words[i]) - 1));
}

/* ---- rows of new tokens ----------------------------------------------------------------------------------------- */

/* Old rows that are made at a time: a multiple of 4. */
static int64_t rows_of_part(int64_t cols) {
    enum { VALUES = 1 << 18 };
    const int64_t rows = VALUES / cols / 4 * 4;
    return rows > 4 ? rows : 4;
}

int64_t snug_new_rows_part(int64_t cols) { return rows_of_part(cols) * cols; }

snug_status snug_new_rows_begin(struct snug_new_rows *rows) {
    const int64_t cols = rows->cols, step = rows_of_part(cols);
    for (int64_t c = 0; c < cols; c++) rows->mean[c] = 0;
    for (int64_t r = 0; r < rows->rows; r += step) {
        const int64_t n = snug_min(step, rows->rows - r);
        RETURN_IF_ERROR(rows->old(rows->user, r * cols, n * cols, rows->part));
        for (int64_t i = 0; i < n * cols; i++) rows->mean[i % cols] += (double)rows->part[i];
    }
    for (int64_t c = 0; c < cols; c++) rows->mean[c] /= (double)rows->rows;
    return SNUG_OK;
}

/* sum[begin … end - 1] += the deviations of old rows first … first + count - 1, which are in part, with the weights of
   new row number `row`. */
static void add_deviations(const struct snug_new_rows *rows, int64_t row, int64_t first, int64_t count, int64_t begin,
                           int64_t end, float *sum) {
    enum { WEIGHTS = 256 };
    const int64_t stride = (rows->rows + 3) / 4 * 4;
    float weights[WEIGHTS];
    for (int64_t i = 0; i < count; i += WEIGHTS) {
        const int64_t n = snug_min(WEIGHTS, count - i);
        snug_draw_normal(&rows->draw, row * stride + first + i, n, rows->deviation, weights);
        for (int64_t k = 0; k < n; k++) {
            const float *old = rows->part + (i + k) * rows->cols, weight = weights[k];
            for (int64_t c = begin; c < end; c++) sum[c - begin] += weight * (old[c] - (float)rows->mean[c]);
        }
    }
}

snug_status snug_new_rows_make(const void *user, int64_t first, int64_t count, void *values) {
    const struct snug_new_rows *rows = user;
    const int64_t cols = rows->cols, step = rows_of_part(cols), last = (first + count - 1) / cols;
    float *out = values;
    memset(out, 0, (size_t)count * sizeof *out);
    for (int64_t r = 0; r < rows->rows; r += step) {
        const int64_t n = snug_min(step, rows->rows - r);
        RETURN_IF_ERROR(rows->old(rows->user, r * cols, n * cols, rows->part));
#pragma omp parallel for num_threads(rows->threads) schedule(static) if (count > SNUG_DRAW_MOST)
        for (int64_t row = first / cols; row <= last; row++) {
            const int64_t begin = row == first / cols ? first % cols : 0;
            const int64_t end = row == last ? (first + count - 1) % cols + 1 : cols;
            add_deviations(rows, row, r, n, begin, end, out + row * cols + begin - first);
        }
    }
    for (int64_t i = 0; i < count; i++) out[i] += (float)rows->mean[(first + i) % cols];
    return SNUG_OK;
}
