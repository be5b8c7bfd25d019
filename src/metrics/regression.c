/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of predicted values, and of the cosines of pairs of vectors. */
#include <math.h>

#include "metrics/metrics_impl.h"
#include "metrics/similarity.h"
#include "metrics/sort.h"

/* Welford's running moments of prediction x and target y, and the squared error. They are computed from the pairs, in
   the order of the rows, before these become ranks. */
struct moments {
    double mean_x, mean_y, square_x, square_y, product, squared_error;
    bool not_a_number; /* a NaN has no rank */
    bool ranked;       /* pairs are ranks now, and the moments are complete */
};

/* [rows] prediction and target as ordered words. */
static uint64_t *pairs_of(const struct snug_metric_accumulator *accumulator) { return accumulator->memory; }

static int64_t bytes(const struct snug_metric_accumulator_options *options) {
    return options->rows * (int64_t)sizeof(uint64_t);
}

/* A doubled rank must fit 32 bits. */
static snug_status check(struct snug_metric_accumulator *accumulator) {
    if (accumulator->options.rows <= INT32_MAX) return SNUG_OK;
    return snug_fail(accumulator->ctx, SNUG_E_UNSUPPORTED,
                     "%lld rows to evaluate: at most %d are ranked for eval_spearmanr",
                     (long long)accumulator->options.rows, INT32_MAX);
}

static void add_pair(struct snug_metric_accumulator *accumulator, float prediction, float target) {
    const struct moments *m = accumulator->state;
    if (m->ranked || accumulator->rows == accumulator->options.rows) {
        accumulator->misuse =
            m->ranked ? "rows were added after the result was taken" : "more rows than were announced";
        return;
    }
    pairs_of(accumulator)[accumulator->rows++] =
        (uint64_t)snug_ordered_word(prediction) << 32 | snug_ordered_word(target);
}

static void add(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                const struct snug_batch *batch) {
    const float *predictions = chunk->logits, *targets = batch->targets + chunk->first;
    for (int64_t row = 0; row < chunk->rows; row++) add_pair(accumulator, predictions[row], targets[row]);
}

/* A row has two vectors, and its score is a target of the batch. */
static void add_vectors(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                        const struct snug_batch *batch) {
    const int64_t size = accumulator->options.classes, first = chunk->first / 2, rows = chunk->rows / 2;
    for (int64_t row = 0; row < rows; row++) {
        const float *a = chunk->logits + 2 * row * size;
        add_pair(accumulator, (float)snug_cosine(a, a + size, size), batch->targets[first + row]);
    }
}

static snug_status merge(struct snug_metric_accumulator *accumulator, const struct snug_process_group *group,
                         int64_t batch) {
    return snug_metric_merge_words(accumulator, group, batch, pairs_of(accumulator));
}

/* ---- the result ------------------------------------------------------------------------------------------------- */

static void find_moments(struct snug_metric_accumulator *accumulator) {
    struct moments *m = accumulator->state;
    for (int64_t row = 0; row < accumulator->rows; row++) {
        const uint64_t pair = pairs_of(accumulator)[row];
        const double x = snug_ordered_value((uint32_t)(pair >> 32)), y = snug_ordered_value((uint32_t)pair);
        const double step_x = x - m->mean_x, step_y = y - m->mean_y;
        m->not_a_number |= isnan(x) || isnan(y);
        m->mean_x += step_x / (double)(row + 1);
        m->mean_y += step_y / (double)(row + 1);
        m->square_x += step_x * (x - m->mean_x);
        m->square_y += step_y * (y - m->mean_y);
        m->product += step_x * (y - m->mean_y);
        m->squared_error += (x - y) * (x - y);
    }
}

/* Sorts by the high words, replaces them by twice their rank from 1 (equal ones share their mean rank, which twice is
   whole), and swaps the words of each pair: called twice, both words are ranked and in their original order. */
static void rank_and_swap(uint64_t *pairs, int64_t count) {
    snug_sort_words(pairs, count);
    for (int64_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && pairs[next] >> 32 == pairs[first] >> 32;) next++;
        uint64_t twice_rank = (uint64_t)(first + 1 + next);
        for (int64_t i = first; i < next; i++) pairs[i] = pairs[i] << 32 | twice_rank;
    }
}

static double correlation(double product, double square_x, double square_y) {
    if (!(square_x > 0) || !(square_y > 0)) return NAN; /* also NaN and no rows */
    double r = product / (sqrt(square_x) * sqrt(square_y));
    return r > 1 ? 1 : r < -1 ? -1 : r;
}

static double spearman(struct snug_metric_accumulator *accumulator) {
    struct moments *m = accumulator->state;
    uint64_t *pairs = pairs_of(accumulator);
    if (m->not_a_number || accumulator->rows == 0) return NAN;
    rank_and_swap(pairs, accumulator->rows); /* ranking ranks gives the same ranks: a second result is the same */
    rank_and_swap(pairs, accumulator->rows);
    double mean = (double)accumulator->rows + 1, product = 0, square_x = 0, square_y = 0;
    for (int64_t i = 0; i < accumulator->rows; i++) {
        double x = (double)(pairs[i] >> 32) - mean, y = (double)(uint32_t)pairs[i] - mean;
        product += x * y;
        square_x += x * x;
        square_y += y * y;
    }
    return correlation(product, square_x, square_y);
}

static void result(struct snug_metric_accumulator *accumulator, double *values) {
    struct moments *m = accumulator->state;
    if (!m->ranked) find_moments(accumulator);
    m->ranked = true;
    values[1] = accumulator->rows ? m->squared_error / (double)accumulator->rows : NAN;
    values[2] = correlation(m->product, m->square_x, m->square_y);
    values[3] = spearman(accumulator);
}

const struct snug_metric_kind snug_regression_metrics = {
    .names = {"eval_loss", "eval_mse", "eval_pearson", "eval_spearmanr"},
    .main = 3,
    .state_size = sizeof(struct moments),
    .bytes = bytes,
    .open = check,
    .add = add,
    .logits = true,
    .merge = merge,
    .result = result,
};

static void vectors_result(struct snug_metric_accumulator *accumulator, double *values) {
    double all[4];
    result(accumulator, all);
    values[0] = all[2];
    values[1] = all[3];
}

/* As sentence-transformers' EmbeddingSimilarityEvaluator. */
const struct snug_metric_kind snug_embedding_metrics = {
    .names = {"eval_pearson_cosine", "eval_spearman_cosine"},
    .main = 1,
    .state_size = sizeof(struct moments),
    .bytes = bytes,
    .open = check,
    .add = add_vectors,
    .logits = true,
    .merge = merge,
    .result = vectors_result,
};
