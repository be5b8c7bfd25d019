/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of reranking, as sentence-transformers' CrossEncoderRerankingEvaluator: the mean over queries of average
 * precision, of the reciprocal rank of the first relevant document, and of nDCG; and the accuracy of single scores. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"
#include "metrics/metrics_impl.h"

enum { AT = 10 }; /* documents that count for MRR and nDCG */

/* A document; the accumulator's memory holds those of all rows. */
struct ranked {
    uint64_t query, order; /* order: of the documents of a query */
    float score, target;
};

struct state {
    int64_t row, member; /* the current group, and the next one of its documents */
    struct snug_group group;
    snug_status status;
};

static int64_t document_count(const struct snug_metric_accumulator_options *options) {
    return snug_dataset_all_sequences(options->dataset);
}

static struct ranked *documents_of(const struct snug_metric_accumulator *a) { return a->memory; }

static int64_t bytes(const struct snug_metric_accumulator_options *options) {
    return document_count(options) * (int64_t)sizeof(struct ranked) + snug_dataset_row_bytes(options->dataset);
}

static void reset(struct snug_metric_accumulator *a) {
    struct state *s = a->state;
    s->row = -1;
}

/* Reads the group of a row of the data set. */
static void begin_group(struct snug_metric_accumulator *a, int64_t row) {
    struct state *s = a->state;
    struct snug_row_buffer buffer = {documents_of(a) + document_count(&a->options),
                                     (size_t)snug_dataset_row_bytes(a->options.dataset)};
    struct snug_dataset_row text;
    if (s->status == SNUG_OK) s->status = snug_dataset_read(a->ctx, a->options.dataset, row, &buffer, &text);
    s->row = row;
    s->member = 0;
    s->group = (struct snug_group){0};
    if (s->status == SNUG_OK) snug_dataset_row_group(&text, &s->group);
}

/* With margins the targets are differences to the first document, which is the relevant one. */
static float target_of(const struct snug_metric_accumulator *a, const struct snug_group *group, int64_t member) {
    if (a->options.ranking_loss == SNUG_RANKING_MARGIN) return member == 0;
    return snug_group_target(group, member);
}

static void add(struct snug_metric_accumulator *a, const struct snug_chunk *chunk, const struct snug_batch *batch) {
    struct state *s = a->state;
    for (int64_t i = 0; i < chunk->rows; i++) {
        const int64_t position = chunk->first + i, row = snug_batch_row(batch, position);
        if (row != s->row) begin_group(a, row);
        if (s->status != SNUG_OK) return;
        documents_of(a)[a->rows++] = (struct ranked){.query = s->group.query,
                                                     .order = (uint64_t)row * SNUG_GROUP_MOST + (uint64_t)s->member,
                                                     .score = chunk->logits[i],
                                                     .target = target_of(a, &s->group, s->member)};
        s->member++;
    }
}

/* All ranks get the documents of all. */
static snug_status merge(struct snug_metric_accumulator *a, const struct snug_process_group *group, int64_t batch) {
    const int ranks = snug_group_size(group);
    int64_t *counts;
    struct ranked *all;
    (void)batch;
    RETURN_IF_ERROR(snug_alloc(a->ctx, (size_t)ranks, sizeof *counts, (void **)&counts));
    counts[snug_group_rank(group)] = a->rows;
    snug_status status = snug_group_all_gather(a->ctx, group, counts, sizeof *counts);
    int64_t part = 0, total = 0;
    for (int r = 0; r < ranks; r++) {
        if (counts[r] > part) part = counts[r];
        total += counts[r];
    }
    if (status == SNUG_OK) status = snug_alloc(a->ctx, (size_t)(ranks * part + 1), sizeof *all, (void **)&all);
    if (status == SNUG_OK) {
        memcpy(all + snug_group_rank(group) * part, documents_of(a), (size_t)a->rows * sizeof *all);
        status = snug_group_all_gather(a->ctx, group, all, part * (int64_t)sizeof *all);
        int64_t at = 0;
        for (int r = 0; r < ranks && status == SNUG_OK; at += counts[r++])
            memcpy(documents_of(a) + at, all + r * part, (size_t)counts[r] * sizeof *all);
        free(all);
    }
    /* The sum over the ranks, which follows, is then that of all documents. */
    a->rows = snug_group_rank(group) == 0 ? total : 0;
    free(counts);
    return status;
}

/* ---- a query ---- */

static int compare_queries(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->query != y->query) return x->query < y->query ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static int compare_targets(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static bool is_relevant(const struct ranked *document) { return document->target >= 0.5f; }

static double discount(int64_t rank) { return rank < AT ? 1 / log2((double)rank + 2) : 0; }

/* As scikit-learn's ndcg_score: documents of equal scores have the mean of their gains. */
static double discounted_gain(const struct ranked *of, int64_t count) {
    double sum = 0;
    for (int64_t i = 0, end; i < count; i = end) {
        double gain = 0, discounts = 0;
        for (end = i; end < count && of[end].score == of[i].score; end++) {
            gain += fmax(0, (double)of[end].target);
            discounts += discount(end);
        }
        sum += gain / (double)(end - i) * discounts;
    }
    return sum;
}

/* targets: room for count of them. */
static double ideal_gain(const struct ranked *of, int64_t count, float *targets) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) targets[i] = fmaxf(0, of[i].target);
    qsort(targets, (size_t)count, sizeof *targets, compare_targets);
    for (int64_t i = 0; i < count && i < AT; i++) sum += (double)targets[i] * discount(i);
    return sum;
}

/* As scikit-learn's average_precision_score: documents of equal scores are found together. */
static double average_precision(const struct ranked *of, int64_t count) {
    double sum = 0;
    int64_t relevant = 0;
    for (int64_t i = 0, end; i < count; i = end) {
        int64_t found = 0;
        for (end = i; end < count && of[end].score == of[i].score; end++) found += is_relevant(&of[end]);
        relevant += found;
        sum += (double)found * (double)relevant / (double)end;
    }
    return relevant ? sum / (double)relevant : 0;
}

static double reciprocal_rank(const struct ranked *of, int64_t count) {
    for (int64_t i = 0; i < count && i < AT; i++)
        if (is_relevant(&of[i])) return 1 / (double)(i + 1);
    return 0;
}

static void result(struct snug_metric_accumulator *a, double *values) {
    struct ranked *documents = documents_of(a);
    struct state *s = a->state;
    int64_t queries = 0, right = 0, most = 0;
    double sums[3] = {0};
    float *targets = NULL;
    qsort(documents, (size_t)a->rows, sizeof *documents, compare_queries);
    for (int64_t i = 0, end; i < a->rows; i = end) {
        for (end = i; end < a->rows && documents[end].query == documents[i].query; end++)
            right += is_relevant(&documents[end]) == (documents[end].score > 0);
        if (end - i > most) most = end - i;
    }
    if (s->status == SNUG_OK) s->status = snug_alloc(a->ctx, (size_t)most, sizeof *targets, (void **)&targets);
    for (int64_t i = 0, end; i < a->rows && s->status == SNUG_OK; i = end) {
        for (end = i; end < a->rows && documents[end].query == documents[i].query;) end++;
        const double ideal = ideal_gain(documents + i, end - i, targets);
        sums[0] += average_precision(documents + i, end - i);
        sums[1] += reciprocal_rank(documents + i, end - i);
        sums[2] += ideal > 0 ? discounted_gain(documents + i, end - i) / ideal : 0;
        queries++;
    }
    free(targets);
    for (int i = 0; i < 3; i++) values[1 + i] = queries ? sums[i] / (double)queries : NAN;
    values[4] = a->rows ? (double)right / (double)a->rows : NAN;
}

static snug_status more(struct snug_metric_accumulator *a, struct snug_metric_list *out) {
    (void)out;
    return ((const struct state *)a->state)->status;
}

const struct snug_metric_kind snug_ranking_metrics = {
    .names = {"eval_loss", "eval_map", "eval_mrr@10", "eval_ndcg@10", "eval_accuracy"},
    .main = 3,
    .state_size = sizeof(struct state),
    .bytes = bytes,
    .reset = reset,
    .add = add,
    .logits = true,
    .merge = merge,
    .result = result,
    .more = more,
};
