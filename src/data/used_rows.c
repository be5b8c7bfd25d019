/* SPDX-License-Identifier: Apache-2.0 */
#include "data/used_rows.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/philox.h"
#include "data/dataset_impl.h"
#include "data/label_names.h"
#include "data/missing_labels.h"

void snug_dataset_use_first(struct snug_dataset *dataset, int64_t rows) {
    if (rows < snug_dataset_rows(dataset)) dataset->part = rows;
}

static snug_status fail_interrupted(snug_context *ctx, const struct snug_dataset *dataset) {
    return snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while the labels of %s were read", dataset->path);
}

/* ---- rows without a label ---------------------------------------------------------------------------------------- */

static bool has_label(const struct snug_dataset *dataset, const struct snug_dataset_row *row) {
    if (!row->label_count) return snug_labels_are_lists(dataset->form);
    if (snug_label_is_value(row->labels, row->label_count)) return true;
    bool left_out = false;
    for (int64_t i = 0; i < row->label_count; i++) left_out |= dataset->left_out[row->labels[i]];
    return !left_out;
}

/* Numbers of raw labels that are left out: the first of them, and whether there are more. */
static size_t first_left_out(const struct snug_dataset *dataset, bool *more) {
    size_t count = 0, first = 0;
    for (size_t i = dataset->cache.raw.count; i > 0; i--) {
        if (!dataset->left_out[i - 1]) continue;
        first = i - 1;
        count++;
    }
    *more = count > 1;
    return count ? first : SIZE_MAX;
}

static void tell(snug_context *ctx, const struct snug_dataset *dataset, int64_t left, int64_t rows) {
    char name[SNUG_NAME_SHOWN];
    bool more;
    const size_t first = first_left_out(dataset, &more);
    if (first == SIZE_MAX) {
        snug_log(ctx, SNUG_LOG_WARNING, "%s: %" PRId64 " of %" PRId64 " rows have no label and are left out",
                 dataset->path, left, rows);
        return;
    }
    snug_log(ctx, SNUG_LOG_WARNING,
             "%s: %" PRId64 " of %" PRId64 " %s left out: the label %s, first in line %" PRId64
             ",%s means that a row has no "
             "label%s",
             dataset->path, left, rows, left == 1 ? "rows is" : "rows are",
             snug_name_quote(name, snug_raw_labels_text(&dataset->cache.raw, first), false),
             dataset->cache.raw.items[first].line, more ? " as others," : "",
             dataset->missing_labels ? "" : " (give --missing_label_values none if it is the name of a class)");
}

/* Tags that are left out have no loss; their sentences are used. */
static void tell_tags(snug_context *ctx, const struct snug_dataset *dataset) {
    char name[SNUG_NAME_SHOWN];
    for (size_t i = 0; i < dataset->cache.raw.count; i++)
        if (dataset->left_out[i])
            snug_log(ctx, SNUG_LOG_WARNING, "%s: %" PRId64 " words with the tag %s have no loss", dataset->path,
                     dataset->cache.raw.items[i].rows,
                     snug_name_quote(name, snug_raw_labels_text(&dataset->cache.raw, i), false));
}

/* The rows of the cache that have a label. */
static snug_status select_labelled(snug_context *ctx, const struct snug_dataset *dataset, struct snug_selection *out) {
    struct snug_row_buffer buffer = {0};
    snug_status status = SNUG_OK;
    for (int64_t row = 0; row < dataset->cache.rows && status == SNUG_OK; row++) {
        struct snug_dataset_row text;
        status = snug_dataset_read(ctx, dataset, row, &buffer, &text);
        if (status == SNUG_OK && has_label(dataset, &text)) snug_selection_add(out, row);
        if (status == SNUG_OK && snug_stop_asked(ctx)) status = fail_interrupted(ctx, dataset);
    }
    free(buffer.data);
    snug_selection_finish(out);
    return status;
}

snug_status snug_dataset_leave_out(snug_context *ctx, struct snug_dataset *dataset) {
    const struct snug_cache *cache = &dataset->cache;
    bool more;
    if (dataset->dummy_most) return SNUG_OK;
    const bool marked = first_left_out(dataset, &more) != SIZE_MAX, words = snug_cache_has_words(cache);
    if (words) tell_tags(ctx, dataset);
    const bool all = cache->labelled == cache->rows || snug_labels_are_lists(dataset->form);
    if (words || (!marked && all)) return SNUG_OK;
    struct snug_selection labelled;
    snug_status status = snug_selection_create(ctx, cache->rows, &labelled);
    if (status == SNUG_OK) status = select_labelled(ctx, dataset, &labelled);
    const int64_t left = cache->rows - labelled.count;
    if (status == SNUG_OK && !labelled.count)
        status = snug_fail(ctx, SNUG_E_INPUT, "%s: no row has a label", dataset->path);
    if (status == SNUG_OK && left) {
        dataset->selection = labelled;
        tell(ctx, dataset, left, cache->rows);
        return SNUG_OK;
    }
    snug_selection_free(&labelled);
    return status;
}

/* ---- the split --------------------------------------------------------------------------------------------------- */

/* The rows of a class, and how many of them are evaluated on. */
struct share {
    int64_t class, rows, wanted;
    double rest; /* of its exact share, what whole rows do not give it */
};

static int compare_rests(const void *a, const void *b) {
    const struct share *x = a, *y = b;
    return x->rest != y->rest ? (x->rest < y->rest) - (x->rest > y->rest)
                              : (x->class > y->class) - (x->class < y->class);
}

static int compare_classes(const void *a, const void *b) {
    const struct share *x = a, *y = b;
    return (x->class > y->class) - (x->class < y->class);
}

/* Adds rows to the shares, or takes them away, one by one, until `missing` are found or no class has room. */
static int64_t adjust(struct share *shares, size_t count, int64_t missing, bool keeps_all) {
    for (bool changed = true; missing && changed;) {
        changed = false;
        for (size_t i = 0; i < count && missing; i++) {
            struct share *share = &shares[missing > 0 ? i : count - 1 - i];
            const int64_t least = keeps_all && share->rows > 1, most = share->rows - (keeps_all && share->rows > 0);
            if (missing > 0 ? share->wanted >= most : share->wanted <= least) continue;
            const int64_t step = missing > 0 ? 1 : -1;
            share->wanted += step;
            missing -= step;
            changed = true;
        }
    }
    return missing;
}

/* That many rows of all classes together; largest remainder. Each class keeps a row in both parts if that is possible.
 */
static void divide(struct share *shares, size_t count, int64_t all, int64_t wanted) {
    int64_t missing = wanted;
    for (size_t i = 0; i < count; i++) {
        struct share *share = &shares[i];
        const double exact = (double)share->rows * (double)wanted / (double)all;
        const int64_t least = share->rows > 1;
        share->wanted = (int64_t)exact;
        share->rest = exact - (double)share->wanted;
        if (share->wanted < least) share->wanted = least;
        missing -= share->wanted;
    }
    qsort(shares, count, sizeof *shares, compare_rests);
    missing = adjust(shares, count, missing, true);
    adjust(shares, count, missing, false);
    qsort(shares, count, sizeof *shares, compare_classes);
}

struct splitting {
    snug_context *ctx;
    const struct snug_dataset *train;
    bool classes; /* each row has one class */
    struct share *shares;
    size_t count; /* of shares: classes, or 1 for all rows */
    struct snug_row_buffer buffer;
};

static snug_status share_of(struct splitting *s, int64_t row, struct share **out) {
    struct snug_dataset_row text;
    *out = s->shares;
    if (!s->classes) return SNUG_OK;
    RETURN_IF_ERROR(snug_dataset_read(s->ctx, s->train, row, &s->buffer, &text));
    *out = &s->shares[s->train->classes[text.labels[0]]];
    return SNUG_OK;
}

/* A class has the rows of its labels: each row of the file has one. */
static void count_shares(struct splitting *s) {
    const struct snug_raw_labels *raw = &s->train->cache.raw;
    if (!s->classes) s->shares->rows = snug_dataset_rows(s->train);
    for (size_t i = 0; s->classes && i < raw->count; i++)
        if (!s->train->left_out[i]) s->shares[s->train->classes[i]].rows += raw->items[i].rows;
}

/* A random number below `below`, of a row. */
static int64_t draw(uint64_t seed, int64_t row, int64_t below) {
    const struct snug_philox_block block = snug_philox((uint32_t)row, (uint32_t)((uint64_t)row >> 32), 0,
                                                       (uint32_t)SNUG_PHILOX_SPLIT << 29, snug_philox_key(seed), 0);
    const uint64_t word = (uint64_t)block.word[0] << 32 | block.word[1];
    return (int64_t)((unsigned __int128)word * (uint64_t)below >> 64);
}

/* Selection sampling (Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S): of each class exactly the
   wanted number of rows, all choices alike likely, in one pass. */
static snug_status select_rows(struct splitting *s, int64_t rows, uint64_t seed, struct snug_selection *train,
                               struct snug_selection *eval) {
    struct share *share;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t place = snug_dataset_place(s->train, row);
        RETURN_IF_ERROR(share_of(s, row, &share));
        const bool chosen = draw(seed, place, share->rows--) < share->wanted;
        share->wanted -= chosen;
        snug_selection_add(chosen ? eval : train, place);
        if (snug_stop_asked(s->ctx)) return fail_interrupted(s->ctx, s->train);
    }
    return SNUG_OK;
}

static snug_status split_rows(struct splitting *s, bool first_rows, int64_t wanted, uint64_t seed,
                              struct snug_selection *train, struct snug_selection *eval) {
    const int64_t rows = snug_dataset_rows(s->train);
    if (first_rows) {
        for (int64_t row = 0; row < rows; row++) snug_selection_add(row < wanted ? eval : train, row);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_alloc(s->ctx, s->count, sizeof *s->shares, (void **)&s->shares));
    for (size_t i = 0; i < s->count; i++) s->shares[i].class = (int64_t)i;
    count_shares(s);
    divide(s->shares, s->count, rows, wanted);
    return select_rows(s, rows, seed, train, eval);
}

static void use(struct snug_dataset *dataset, struct snug_selection *selection) {
    snug_selection_free(&dataset->selection);
    snug_selection_finish(selection);
    dataset->selection = *selection;
    dataset->part = 0;
}

snug_status snug_dataset_split(snug_context *ctx, struct snug_dataset *train, struct snug_dataset *eval,
                               const struct snug_labels *labels, int64_t rows, uint64_t seed) {
    const bool classes = labels && labels->problem == SNUG_PROBLEM_SINGLE_LABEL && !snug_cache_has_words(&train->cache);
    struct splitting s = {.ctx = ctx, .train = train, .classes = classes, .count = classes ? (size_t)labels->count : 1};
    struct snug_selection train_rows, eval_rows = {0};
    snug_status status = snug_selection_create(ctx, train->cache.rows, &train_rows);
    if (status == SNUG_OK) status = snug_selection_create(ctx, train->cache.rows, &eval_rows);
    if (status == SNUG_OK) status = split_rows(&s, !labels || train->dummy_most, rows, seed, &train_rows, &eval_rows);
    free(s.shares);
    free(s.buffer.data);
    if (status == SNUG_OK) {
        use(train, &train_rows);
        use(eval, &eval_rows);
        return SNUG_OK;
    }
    snug_selection_free(&train_rows);
    snug_selection_free(&eval_rows);
    return status;
}

snug_status snug_dataset_use_rows(snug_context *ctx, struct snug_dataset *dataset, const int64_t *rows, int64_t count) {
    struct snug_selection chosen;
    const snug_status status = snug_selection_create(ctx, dataset->cache.rows, &chosen);
    if (status != SNUG_OK) {
        snug_selection_free(&chosen);
        return status;
    }
    for (int64_t i = 0; i < count; i++) snug_selection_add(&chosen, rows[i]);
    use(dataset, &chosen);
    return SNUG_OK;
}
