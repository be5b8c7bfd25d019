/* SPDX-License-Identifier: Apache-2.0 */
#include "data/label_checks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"
#include "data/label_names.h"
#include "data/missing_labels.h"

enum {
    PAIRS_TOLD = 5, /* of classes that look alike */
    IDS_LEAST = 10, /* classes that may be identifiers */
};

static const char *text_of(const struct snug_dataset *dataset, size_t number) {
    return snug_raw_labels_text(&dataset->cache.raw, number);
}

/* ---- classes that look alike ------------------------------------------------------------------------------------- */

struct folded {
    char *text;
    int64_t class;
};

static int compare_folded(const void *a, const void *b) {
    const struct folded *x = a, *y = b;
    const int order = strcmp(x->text, y->text);
    return order ? order : (x->class > y->class) - (x->class < y->class);
}

/* Rows of a class; of tags, words. */
static int64_t rows_of(const struct snug_dataset *dataset, int64_t class) {
    int64_t rows = 0;
    for (size_t i = 0; i < dataset->cache.raw.count; i++)
        rows += dataset->classes[i] == class ? dataset->cache.raw.items[i].rows : 0;
    return rows;
}

static snug_status tell_pair(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                             int64_t a, int64_t b) {
    char name[2][SNUG_NAME_SHOWN];
    const char *how;
    RETURN_IF_ERROR(snug_names_differ(ctx, labels->names[a], labels->names[b], &how));
    if (!how) return SNUG_OK;
    const bool words = snug_cache_has_words(&dataset->cache), ascii = strstr(how, "form") != NULL;
    snug_log(ctx, SNUG_LOG_WARNING,
             "%s: the classes %s (%s: %" PRId64 ") and %s (%" PRId64 ") differ only %s: correct the labels if they are "
             "meant to be one class",
             dataset->path, snug_name_quote(name[0], labels->names[a], ascii), words ? "words" : "rows",
             rows_of(dataset, a), snug_name_quote(name[1], labels->names[b], ascii), rows_of(dataset, b), how);
    return SNUG_OK;
}

static snug_status find_alike(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                              struct folded *folded) {
    const size_t count = (size_t)labels->count;
    int64_t told = 0, left = 0;
    for (size_t i = 0; i < count; i++) {
        folded[i].class = (int64_t)i;
        RETURN_IF_ERROR(snug_name_fold(ctx, labels->names[i], &folded[i].text));
    }
    qsort(folded, count, sizeof *folded, compare_folded);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(folded[i - 1].text, folded[i].text) != 0) continue;
        if (told == PAIRS_TOLD) left++;
        if (told < PAIRS_TOLD) {
            told++;
            RETURN_IF_ERROR(tell_pair(ctx, dataset, labels, folded[i - 1].class, folded[i].class));
        }
    }
    if (left)
        snug_log(ctx, SNUG_LOG_WARNING, "%s: %" PRId64 " more classes differ as little from another one", dataset->path,
                 left);
    return SNUG_OK;
}

static snug_status check_alike(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_labels *labels) {
    struct folded *folded;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)labels->count, sizeof *folded, (void **)&folded));
    const snug_status status = find_alike(ctx, dataset, labels, folded);
    for (int64_t i = 0; i < labels->count; i++) free(folded[i].text);
    free(folded);
    return status;
}

/* ---- labels that are no classes ---------------------------------------------------------------------------------- */

/* Nearly each row has a class of its own. */
static void check_identifiers(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels) {
    int64_t rows = 0;
    for (size_t i = 0; i < dataset->cache.raw.count; i++) rows += dataset->cache.raw.items[i].rows;
    if (labels->count < IDS_LEAST || labels->count <= rows / 2) return;
    snug_log(ctx, SNUG_LOG_WARNING,
             "%s: its labels are %" PRId64 " classes in %" PRId64 " rows: if they are identifiers, name the column of "
             "the labels with --label_column_name; if they are numbers to predict, give --do_regression",
             dataset->path, labels->count, rows);
}

/* run_glue.py takes them for numbers to predict. */
static void check_points(snug_context *ctx, const struct snug_dataset *dataset) {
    char whole[SNUG_WHOLE_SIZE];
    if (dataset->form != SNUG_LABELS_INTEGER) return;
    for (size_t i = 0; i < dataset->cache.raw.count; i++) {
        const char *text = text_of(dataset, i);
        if (!strpbrk(text, ".eE")) continue;
        snug_whole_number(text, whole); /* the form says that it is one */
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%s: all labels are whole numbers: they are taken for classes, %s for the class %s; give "
                 "--do_regression if they are numbers to predict",
                 dataset->path, text, whole);
        return;
    }
}

static void check_tags(snug_context *ctx, const struct snug_dataset *dataset) {
    char name[SNUG_NAME_SHOWN];
    for (size_t i = 0; i < dataset->cache.raw.count; i++) {
        const char *text = text_of(dataset, i);
        if (dataset->missing_labels || (!snug_missing_label_is_mark(dataset, i) && !snug_is_missing_word(text)))
            continue;
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%s: the tag %s of %" PRId64 " words is taken for the name of a class: give --missing_label_values %s "
                 "if it means that a word has no tag",
                 dataset->path, snug_name_quote(name, text, false), dataset->cache.raw.items[i].rows, text);
    }
}

snug_status snug_labels_check(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *labels) {
    const bool words = snug_cache_has_words(&train->cache);
    if (train->dummy_most || labels->problem == SNUG_PROBLEM_REGRESSION) return SNUG_OK;
    if (words) check_tags(ctx, train);
    if (!words && labels->problem == SNUG_PROBLEM_SINGLE_LABEL) {
        check_identifiers(ctx, train, labels);
        check_points(ctx, train);
    }
    return check_alike(ctx, train, labels);
}

/* ---- classes without rows ---------------------------------------------------------------------------------------- */

/* The rows of each class, or the words of each tag. */
static snug_status count_rows(snug_context *ctx, const struct snug_dataset *dataset,
                              const struct snug_loader_options *options, bool whole, int64_t counts[]) {
    int64_t items;
    if (!whole || dataset->selection.bits) return snug_classes_count(ctx, dataset, options, counts, &items);
    for (size_t i = 0; i < dataset->cache.raw.count; i++) {
        if (dataset->classes[i] < 0) continue; /* a tag that is left out */
        counts[dataset->classes[i]] += dataset->cache.raw.items[i].rows;
    }
    return SNUG_OK;
}

static void tell_absent(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                        const int64_t counts[]) {
    char names[1024] = "", name[SNUG_NAME_SHOWN];
    int64_t absent = 0, shown = 0;
    for (int64_t i = 0; i < labels->count; i++) {
        const size_t used = strlen(names);
        if (counts[i]) continue;
        absent++;
        if (used + SNUG_NAME_SHOWN + sizeof ", …" > sizeof names) continue;
        snprintf(names + used, sizeof names - used, "%s%s", shown++ ? ", " : "",
                 snug_name_quote(name, labels->names[i], false));
    }
    if (absent)
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%s: %" PRId64 " of %" PRId64 " classes %s no row to train on and cannot be learnt: %s%s",
                 dataset->path, absent, labels->count, absent == 1 ? "has" : "have", names,
                 shown < absent ? ", …" : "");
}

static void tell_only(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                      const int64_t counts[]) {
    char name[SNUG_NAME_SHOWN];
    int64_t present = 0, only = 0;
    for (int64_t i = 0; i < labels->count; i++) {
        if (!counts[i]) continue;
        present++;
        only = i;
    }
    if (present == 1)
        snug_log(
            ctx, SNUG_LOG_WARNING,
            "%s: all that is evaluated on has the class %s: its metrics do not show whether classes are told apart",
            dataset->path, snug_name_quote(name, labels->names[only], false));
}

snug_status snug_classes_check(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                               const struct snug_loader_options *options, bool whole, bool trains) {
    int64_t *counts;
    if (dataset->dummy_most || labels->problem == SNUG_PROBLEM_REGRESSION) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)labels->count, sizeof *counts, (void **)&counts));
    const snug_status status = count_rows(ctx, dataset, options, whole, counts);
    if (status == SNUG_OK && trains) tell_absent(ctx, dataset, labels, counts);
    if (status == SNUG_OK && !trains && labels->problem == SNUG_PROBLEM_SINGLE_LABEL)
        tell_only(ctx, dataset, labels, counts);
    free(counts);
    return status;
}
