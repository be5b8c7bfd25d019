/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retrieval, as sentence-transformers' InformationRetrievalEvaluator: for each query the most similar documents, of
 * which the judgements say which are relevant. The rows of the data are the queries, then the documents, which are
 * compared with the queries as they come: memory holds the vectors of a round of batches, the queries and their best
 * documents. Several ranks embed the batches of a round, and each compares all documents with its share of the queries.
 * Of equal scores the first document of the corpus is the better one; sentence-transformers compares their identifiers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "data/judgements.h"
#include "metrics/metrics_impl.h"

enum { MOST = 100 /* documents of a query: MAP@100 reads most */ };

struct hit {
    float score;
    uint32_t document;
};

struct state {
    int64_t taken; /* rows, of all ranks */
    int64_t own;   /* vectors of this rank's batch */
};

/* accumulator->memory: the hits of each query, the vectors of queries, and of a round's batches. */
struct retrieval {
    struct state *state;
    const struct snug_metric_accumulator_options *options;
    int64_t queries, share, size; /* share: queries of a rank */
    struct hit *hits;             /* [ranks, share, MOST] */
    float *vectors, *round;       /* [queries, size]; [ranks, batch_size, size] */
};

static int64_t share_of(const struct snug_metric_accumulator_options *options) {
    return (options->judgements->queries + options->ranks - 1) / options->ranks;
}

static struct retrieval retrieval_of(const struct snug_metric_accumulator *accumulator) {
    const struct snug_metric_accumulator_options *options = &accumulator->options;
    const int64_t queries = options->judgements->queries, share = share_of(options), size = options->classes;
    struct hit *hits = accumulator->memory; /* 8 bytes each: what follows is aligned */
    float *vectors = (float *)(hits + options->ranks * share * MOST);
    return (struct retrieval){.state = accumulator->state,
                              .options = options,
                              .queries = queries,
                              .share = share,
                              .size = size,
                              .hits = hits,
                              .vectors = vectors,
                              .round = vectors + queries * size};
}

static int64_t bytes(const struct snug_metric_accumulator_options *options) {
    const int64_t vectors = options->judgements->queries + options->ranks * options->batch_size;
    return options->ranks * share_of(options) * MOST * (int64_t)sizeof(struct hit) +
           vectors * options->classes * (int64_t)sizeof(float);
}

/* ---- the best documents ------------------------------------------------------------------------------------------ */

static bool is_worse(const struct hit *a, const struct hit *b) {
    return a->score != b->score ? a->score < b->score : a->document > b->document;
}

static void swap(struct hit *a, struct hit *b) {
    const struct hit kept = *a;
    *a = *b;
    *b = kept;
}

static void sift_up(struct hit *heap, int64_t at) {
    for (int64_t parent; at > 0 && is_worse(&heap[at], &heap[parent = (at - 1) / 2]); at = parent)
        swap(&heap[at], &heap[parent]);
}

static void sift_down(struct hit *heap, int64_t count) {
    for (int64_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_worse(&heap[child + 1], &heap[child])) child++;
        if (!is_worse(&heap[child], &heap[at])) return;
        swap(&heap[at], &heap[child]);
    }
}

/* heap: the `count` best so far, the worst of them first. Documents come in their order. */
static void offer(struct hit *heap, int64_t count, struct hit hit) {
    if (count < MOST) {
        heap[count] = hit;
        sift_up(heap, count);
    } else if (hit.score > heap->score) {
        *heap = hit;
        sift_down(heap, MOST);
    }
}

/* Compares documents, of which the first is number `before`, with this rank's queries. */
static void compare(const struct retrieval *r, const float *documents, int64_t count, int64_t before) {
    const enum snug_similarity function = r->options->similarity;
    const int64_t first = r->options->rank * r->share, end = snug_min(first + r->share, r->queries);
#pragma omp parallel for schedule(dynamic, 8) num_threads(r->options->threads)
    for (int64_t query = first; query < end; query++)
        for (int64_t i = 0; i < count; i++) {
            const float score =
                snug_similarity_fast(function, r->vectors + query * r->size, documents + i * r->size, r->size);
            offer(r->hits + query * MOST, snug_min(before + i, MOST), (struct hit){score, (uint32_t)(before + i)});
        }
}

/* Takes the batches of a round, in the order of the ranks; the last rounds may have fewer. */
static snug_status take_round(void *user) {
    const struct retrieval *r = user;
    const struct snug_metric_accumulator_options *options = r->options;
    struct state *s = r->state;
    for (int rank = 0; rank < options->ranks; rank++) {
        const float *batch = r->round + rank * options->batch_size * r->size;
        const int64_t rows = snug_min(options->batch_size, options->rows - s->taken);
        const int64_t left = s->taken < r->queries ? r->queries - s->taken : 0, queries = snug_min(left, rows);
        memcpy(r->vectors + s->taken * r->size, batch, (size_t)(queries * r->size) * sizeof *batch);
        compare(r, batch + queries * r->size, rows - queries, s->taken + queries - r->queries);
        s->taken += rows;
    }
    s->own = 0;
    return SNUG_OK;
}

static void add(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                const struct snug_batch *batch) {
    const struct retrieval r = retrieval_of(accumulator);
    float *vectors = r.round + (r.options->rank * r.options->batch_size + r.state->own) * r.size;
    (void)batch;
    memcpy(vectors, chunk->logits, (size_t)(chunk->rows * r.size) * sizeof *vectors);
    for (int64_t i = 0; i < chunk->rows && r.options->similarity == SNUG_SIMILARITY_COSINE; i++)
        snug_scale_to_unit(vectors + i * r.size, r.size);
    r.state->own += chunk->rows;
    accumulator->rows += chunk->rows;
}

static snug_status share_round(struct snug_metric_accumulator *accumulator, const struct snug_process_group *group) {
    struct retrieval r = retrieval_of(accumulator);
    RETURN_IF_ERROR(snug_group_all_gather(accumulator->ctx, group, r.round,
                                          r.options->batch_size * r.size * (int64_t)sizeof *r.round));
    return snug_compute(accumulator->ctx, take_round, &r);
}

/* The hits of each rank's queries. */
static snug_status merge(struct snug_metric_accumulator *accumulator, const struct snug_process_group *group,
                         int64_t batch) {
    const struct retrieval r = retrieval_of(accumulator);
    (void)batch;
    return snug_group_all_gather(accumulator->ctx, group, r.hits, r.share * MOST * (int64_t)sizeof *r.hits);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

/* accuracy, precision and recall at 1, 3, 5 and 10 documents, then nDCG@10, MRR@10, MAP@100. */
enum { CUTS = 4, TEN = 10, ACCURACY = 0, PRECISION = CUTS, RECALL = 2 * CUTS, NDCG = 3 * CUTS, MRR, MAP, VALUES };
static const int64_t cuts[CUTS] = {1, 3, 5, TEN};

static int compare_hits(const void *a, const void *b) { return is_worse(a, b) ? 1 : -1; }

/* Adds what a query gives, whose best documents are sorted; found: whether each is relevant. */
static void add_query(const bool *found, int64_t count, int64_t relevant, double *values) {
    double gain = 0, ideal = 0, precisions = 0;
    int64_t hits = 0, first = 0;
    for (int64_t i = 0; i < count; i++) {
        hits += found[i];
        if (found[i] && !first) first = i + 1;
        if (found[i]) precisions += (double)hits / (double)(i + 1);
        if (i < TEN && found[i]) gain += 1 / log2((double)(i + 2));
    }
    for (int64_t i = 0; i < snug_min(relevant, TEN); i++) ideal += 1 / log2((double)(i + 2));
    for (int k = 0; k < CUTS; k++) {
        double within = 0;
        for (int64_t i = 0; i < snug_min(count, cuts[k]); i++) within += found[i];
        values[ACCURACY + k] += within > 0;
        values[PRECISION + k] += within / (double)cuts[k];
        values[RECALL + k] += within / (double)relevant;
    }
    values[NDCG] += gain / ideal;
    values[MRR] += first && first <= TEN ? 1 / (double)first : 0;
    values[MAP] += precisions / (double)snug_min(relevant, MOST);
}

static void result(struct snug_metric_accumulator *accumulator, double *values) {
    const struct retrieval r = retrieval_of(accumulator);
    const struct snug_judgements *judgements = r.options->judgements;
    bool found[MOST];
    const int64_t count = snug_min(r.state->taken - r.queries, MOST);
    memset(values, 0, VALUES * sizeof *values);
    for (int64_t query = 0; query < r.queries; query++) {
        struct hit *hits = r.hits + query * MOST;
        qsort(hits, (size_t)count, sizeof *hits, compare_hits);
        for (int64_t i = 0; i < count; i++) found[i] = snug_judgements_has(judgements, query, hits[i].document);
        add_query(found, count, judgements->begin[query + 1] - judgements->begin[query], values);
    }
    for (int i = 0; i < VALUES; i++) values[i] /= (double)r.queries;
}

#define AT_CUTS(NAME, what)                                                                                            \
    "eval_" NAME "_" what "@1", "eval_" NAME "_" what "@3", "eval_" NAME "_" what "@5", "eval_" NAME "_" what "@10"
#define KIND(NAME)                                                                                                     \
    {                                                                                                                  \
        .names = {AT_CUTS(NAME, "accuracy"), AT_CUTS(NAME, "precision"), AT_CUTS(NAME, "recall"),                      \
                  "eval_" NAME "_ndcg@10",   "eval_" NAME "_mrr@10",     "eval_" NAME "_map@100"},                     \
        .main = NDCG, .state_size = sizeof(struct state), .bytes = bytes, .add = add, .logits = true,                  \
        .share = share_round, .merge = merge, .result = result,                                                        \
    }

const struct snug_metric_kind snug_retrieval_metrics[SNUG_SIMILARITY_COUNT] = {KIND("cosine"), KIND("dot"),
                                                                               KIND("euclidean"), KIND("manhattan")};
