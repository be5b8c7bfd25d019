/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retrieval, as sentence-transformers' InformationRetrievalEvaluator: for each query the most similar documents, of
 * which the judgements say which are relevant. The rows of the data are the queries, then the documents, which are
 * compared with all queries as they come, in blocks: memory holds the queries and their best documents. Of equal
 * scores the first document of the corpus is the better one; sentence-transformers compares their identifiers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "data/judgements.h"
#include "metrics/metrics_impl.h"

enum { BLOCK = 64 /* documents */, MOST = 100 /* of a query: MAP@100 reads most */ };

struct hit {
    float score;
    uint32_t document;
};

struct state {
    int64_t pending;    /* documents of the block */
    int64_t compared;   /* documents before it */
    snug_status status; /* of the comparisons */
};

/* accumulator->memory: the vectors of queries, those of a block, the hits of each query. */
struct retrieval {
    struct state *state;
    const struct snug_metric_accumulator_options *options;
    int64_t queries, size;
    float *vectors, *block;
    struct hit *hits;
};

static struct retrieval retrieval_of(const struct snug_metric_accumulator *accumulator) {
    const struct snug_metric_accumulator_options *options = &accumulator->options;
    const int64_t queries = options->judgements->queries, size = options->classes;
    struct hit *hits = accumulator->memory; /* 8 bytes each: what follows is aligned */
    float *vectors = (float *)(hits + queries * MOST);
    return (struct retrieval){.state = accumulator->state,
                              .options = options,
                              .queries = queries,
                              .size = size,
                              .vectors = vectors,
                              .block = vectors + queries * size,
                              .hits = hits};
}

static int64_t bytes(const struct snug_metric_accumulator_options *options) {
    const int64_t queries = options->judgements->queries;
    return queries * MOST * (int64_t)sizeof(struct hit) + (queries + BLOCK) * options->classes * (int64_t)sizeof(float);
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

static snug_status compare_block(void *user) {
    const struct retrieval *r = user;
    const enum snug_similarity function = r->options->similarity;
    const int64_t count = r->state->pending, before = r->state->compared;
#pragma omp parallel for schedule(dynamic, 8) num_threads(r->options->threads)
    for (int64_t query = 0; query < r->queries; query++)
        for (int64_t i = 0; i < count; i++) {
            const float score =
                snug_similarity_fast(function, r->vectors + query * r->size, r->block + i * r->size, r->size);
            offer(r->hits + query * MOST, snug_min(before + i, MOST), (struct hit){score, (uint32_t)(before + i)});
        }
    return SNUG_OK;
}

static void finish_block(struct snug_metric_accumulator *accumulator, struct retrieval *r) {
    struct state *s = r->state;
    if (s->status == SNUG_OK) s->status = snug_compute(accumulator->ctx, compare_block, r);
    s->compared += s->pending;
    s->pending = 0;
}

static void add(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                const struct snug_batch *batch) {
    struct retrieval r = retrieval_of(accumulator);
    (void)batch;
    for (int64_t i = 0; i < chunk->rows; i++) {
        const int64_t row = accumulator->rows++;
        float *vector = row < r.queries ? r.vectors + row * r.size : r.block + r.state->pending++ * r.size;
        memcpy(vector, chunk->logits + i * r.size, (size_t)r.size * sizeof *vector);
        if (r.options->similarity == SNUG_SIMILARITY_COSINE) snug_scale_to_unit(vector, r.size);
        if (r.state->pending == BLOCK) finish_block(accumulator, &r);
    }
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
    struct retrieval r = retrieval_of(accumulator);
    const struct snug_judgements *judgements = r.options->judgements;
    bool found[MOST];
    finish_block(accumulator, &r);
    const int64_t count = snug_min(r.state->compared, MOST);
    memset(values, 0, VALUES * sizeof *values);
    for (int64_t query = 0; query < r.queries; query++) {
        struct hit *hits = r.hits + query * MOST;
        qsort(hits, (size_t)count, sizeof *hits, compare_hits);
        for (int64_t i = 0; i < count; i++) found[i] = snug_judgements_has(judgements, query, hits[i].document);
        add_query(found, count, judgements->begin[query + 1] - judgements->begin[query], values);
    }
    for (int i = 0; i < VALUES; i++) values[i] /= (double)r.queries;
}

static snug_status comparisons(struct snug_metric_accumulator *accumulator, struct snug_metric_list *out) {
    const struct state *s = accumulator->state;
    (void)out;
    return s->status;
}

#define AT_CUTS(NAME, what)                                                                                            \
    "eval_" NAME "_" what "@1", "eval_" NAME "_" what "@3", "eval_" NAME "_" what "@5", "eval_" NAME "_" what "@10"
#define KIND(NAME)                                                                                                     \
    {                                                                                                                  \
        .names = {AT_CUTS(NAME, "accuracy"), AT_CUTS(NAME, "precision"), AT_CUTS(NAME, "recall"),                      \
                  "eval_" NAME "_ndcg@10",   "eval_" NAME "_mrr@10",     "eval_" NAME "_map@100"},                     \
        .main = NDCG, .state_size = sizeof(struct state), .bytes = bytes, .add = add, .logits = true,                  \
        .result = result, .more = comparisons,                                                                         \
    }

const struct snug_metric_kind snug_retrieval_metrics[SNUG_SIMILARITY_COUNT] = {KIND("cosine"), KIND("dot"),
                                                                               KIND("euclidean"), KIND("manhattan")};
