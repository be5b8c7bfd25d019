/* SPDX-License-Identifier: Apache-2.0 */
#include "text/classes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/dataset_impl.h"
#include "text/hash_map.h"
#include "text/task.h"

/* ---- classes --------------------------------------------------------------------------------------------------- */

static int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int compare_integers(const void *a, const void *b) {
    long long x = strtoll(*(char *const *)a, NULL, 10), y = strtoll(*(char *const *)b, NULL, 10);
    return x != y ? (x > y) - (x < y) : compare_texts(a, b);
}

void snug_labels_free(struct snug_labels *labels) {
    for (int64_t i = 0; labels->names && i < labels->count; i++) free(labels->names[i]);
    free(labels->names);
    *labels = (struct snug_labels){0};
}

static snug_status copy_names(snug_context *ctx, const struct snug_dataset *train, struct snug_labels *out) {
    void *names;
    int64_t count = out->problem == SNUG_PROBLEM_REGRESSION ? 1 : snug_dataset_raw_labels(train);
    if (count > SNUG_CLASSES_MOST)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s: its labels are %" PRId64 " different classes, but a model has at most %d: give another "
                         "column with --label_column_name, or give --do_regression if they are numbers to predict",
                         train->path, count, (int)SNUG_CLASSES_MOST);
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)count, sizeof *out->names, &names));
    out->names = names;
    out->count = count;
    for (int64_t i = 0; i < count; i++) {
        const char *name =
            out->problem == SNUG_PROBLEM_REGRESSION ? "LABEL_0" : snug_dataset_raw_label(train, (uint32_t)i);
        RETURN_IF_ERROR(snug_strdup(ctx, name, &out->names[i]));
    }
    return SNUG_OK;
}

/* With one class there is nothing to learn; run_classification.py refuses it, too. */
static snug_status check_count(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *labels) {
    if (labels->problem == SNUG_PROBLEM_REGRESSION || labels->count > 1) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: all its labels are \"%s\", and classification needs at least two classes: name another "
                     "column with --label_column_name, or give --do_regression if they are numbers to predict",
                     train->path, snug_dataset_raw_label(train, 0));
}

/* Regression: every label must be one number. */
static snug_status check_numbers(snug_context *ctx, const struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    if (snug_labels_are_lists(dataset->cache.form) || dataset->cache.form == SNUG_LABELS_TAG_NUMBERS)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: its labels are lists, but regression needs one number a row",
                         dataset->path);
    for (size_t i = 0; i < raw->count; i++)
        if (snug_number_kind(snug_raw_labels_text(raw, i)) == SNUG_NUMBER_NONE)
            return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the label \"%s\" is not a number, as regression needs",
                             dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i));
    return SNUG_OK;
}

/* Words among numbers are more often damage than classes. */
static snug_status fail_mixed(snug_context *ctx, const struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    size_t i = 0;
    while (snug_number_kind(snug_raw_labels_text(raw, i)) != SNUG_NUMBER_NONE)
        i++; /* the form says that there is one */
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": the label \"%s\" is among numbers, but is not a valid number: correct it or "
                     "remove the row, or give --do_regression False if all labels are names of classes",
                     dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i));
}

/* Whether a raw label is the number of a class, from 0. */
static bool are_numbered(enum snug_label_form form) {
    return form == SNUG_LABELS_TAG_NUMBERS || form == SNUG_LABELS_MULTI_HOT;
}

/* Numbers of classes without names: the highest one gives their count. */
static snug_status number_classes(snug_context *ctx, const struct snug_dataset *train, struct snug_labels *out) {
    const struct snug_raw_labels *raw = &train->cache.raw;
    long highest = 0;
    void *names;
    for (size_t i = 0; i < raw->count; i++) {
        const long number = strtol(snug_raw_labels_text(raw, i), NULL, 10);
        if (number > highest) highest = number;
    }
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)highest + 1, sizeof *out->names, &names));
    out->names = names;
    out->count = highest + 1;
    for (int64_t i = 0; i < out->count; i++) RETURN_IF_ERROR(snug_format(ctx, &out->names[i], "LABEL_%" PRId64, i));
    return SNUG_OK;
}

snug_status snug_labels_of(snug_context *ctx, const struct snug_dataset *train, enum snug_regression regression,
                           struct snug_labels *out) {
    enum snug_label_form form = train->cache.form;
    *out = (struct snug_labels){.problem = SNUG_PROBLEM_SINGLE_LABEL};
    if (train->cache.raw.count == 0)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: no row has a label; to train without labels give --task mlm",
                         train->path);
    if ((form == SNUG_LABELS_NONFINITE || form == SNUG_LABELS_MIXED) && regression == SNUG_REGRESSION_AUTO)
        return fail_mixed(ctx, train);
    if (snug_labels_are_lists(form)) out->problem = SNUG_PROBLEM_MULTI_LABEL;
    if (regression == SNUG_REGRESSION_YES || (form == SNUG_LABELS_REAL && regression == SNUG_REGRESSION_AUTO)) {
        out->problem = SNUG_PROBLEM_REGRESSION;
        RETURN_IF_ERROR(check_numbers(ctx, train));
    }
    const bool numbered = are_numbered(form);
    snug_status status = numbered ? number_classes(ctx, train, out) : copy_names(ctx, train, out);
    if (status == SNUG_OK && form != SNUG_LABELS_TAGS && form != SNUG_LABELS_TAG_NUMBERS)
        status = check_count(ctx, train, out);
    if (status == SNUG_OK && numbered) return SNUG_OK;
    if (status != SNUG_OK) {
        snug_labels_free(out);
        return status;
    }
    qsort(out->names, (size_t)out->count, sizeof *out->names,
          form == SNUG_LABELS_INTEGER && out->problem == SNUG_PROBLEM_SINGLE_LABEL ? compare_integers : compare_texts);
    return SNUG_OK;
}

/* ---- binding a file's labels to a model's classes ---------------------------------------------------------------- */

/* The classes' numbers by name; the first of two classes with the same name. */
static snug_status index_names(snug_context *ctx, const struct snug_labels *labels, struct snug_hash_map *out) {
    int32_t before;
    RETURN_IF_ERROR(snug_hash_map_reserve(ctx, out, (size_t)labels->count));
    for (int64_t i = 0; i < labels->count; i++)
        RETURN_IF_ERROR(snug_hash_map_add(ctx, out, labels->names[i], strlen(labels->names[i]), (int32_t)i, &before));
    return SNUG_OK;
}

/* Strings as the file has them; an integer k also finds LABEL_k, the name of a model that was given none. */
static int32_t find_class(const struct snug_hash_map *names, const char *text) {
    const int32_t found = snug_hash_map_find(names, "", 0, text, strlen(text));
    return found >= 0 || snug_number_kind(text) != SNUG_NUMBER_INTEGER
               ? found
               : snug_hash_map_find(names, "LABEL_", 6, text, strlen(text));
}

snug_status snug_labels_match(snug_context *ctx, const struct snug_labels *a, const struct snug_labels *b, bool *out) {
    struct snug_hash_map names = {0};
    *out = a->count == b->count && a->problem == b->problem;
    snug_status status = *out ? index_names(ctx, b, &names) : SNUG_OK;
    for (int64_t i = 0; status == SNUG_OK && *out && i < a->count; i++)
        *out = snug_hash_map_find(&names, "", 0, a->names[i], strlen(a->names[i])) >= 0;
    snug_hash_map_free(&names);
    return status;
}

snug_status snug_labels_serve(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *model,
                              const struct snug_labels *data, bool *out) {
    if (!are_numbered(train->cache.form)) return snug_labels_match(ctx, model, data, out);
    *out = train->cache.form == SNUG_LABELS_TAG_NUMBERS
               ? model->count >= data->count
               : model->problem == data->problem && model->count == data->count;
    return SNUG_OK;
}

static snug_status fail_unseen(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                               size_t number) {
    char known[512] = "";
    size_t used = 0;
    for (int64_t i = 0; i < labels->count && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", labels->names[i]);
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": the label \"%s\" is not one of the model's %" PRId64
                     " classes, those seen in training: %s",
                     dataset->path, raw->items[number].line, snug_raw_labels_text(raw, number), labels->count, known);
}

/* The class of a further token of a word of this class: of B-X it is I-X, if there is one. */
static int32_t continued_class(const struct snug_hash_map *names, const struct snug_labels *labels, int32_t class) {
    if (class < 0 || strncmp(labels->names[class], "B-", 2) != 0) return class;
    const char *type = labels->names[class] + 2;
    const int32_t inside = snug_hash_map_find(names, "I-", 2, type, strlen(type));
    return inside < 0 ? class : inside;
}

/* Lists of zeros and ones of one length are multi-hot, unless the classes are called by numbers: then each of them may
   also be the classes 0 and 1, and equal counts would hide it. */
static snug_status check_hot(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels) {
    bool numbers = false;
    if (dataset->cache.form != SNUG_LABELS_MULTI_HOT) return SNUG_OK;
    for (int64_t i = 0; i < labels->count; i++)
        numbers |= strcmp(labels->names[i], "0") == 0 || strcmp(labels->names[i], "1") == 0;
    if (numbers)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: its labels are lists of %zu zeros and ones: either a zero or one for each class, or the "
                         "numbers 0 and 1, which are names of the model's classes: write names as text, as in \"0|1\", "
                         "and give --label_separator \"|\"",
                         dataset->path, dataset->cache.raw.count);
    if ((int64_t)dataset->cache.raw.count == labels->count) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: its labels are lists of %zu zeros and ones, but the model has %" PRId64 " classes",
                     dataset->path, dataset->cache.raw.count, labels->count);
}

static bool is_generated(const char *name, int64_t number) {
    char text[32];
    snprintf(text, sizeof text, "LABEL_%" PRId64, number);
    return strcmp(name, text) == 0;
}

/* Tags that are numbers may number the classes of another list than the model's: says what each one is taken for. */
static void tell_numbers(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    char text[512] = "";
    size_t used = 0;
    int64_t shown = 0;
    bool named = false;
    for (int64_t i = 0; i < labels->count; i++) named |= !is_generated(labels->names[i], i);
    if (!named || dataset->dummy_words || dataset->cache.form != SNUG_LABELS_TAG_NUMBERS) return;
    for (int64_t i = 0; i < labels->count && used < sizeof text; i++)
        for (size_t k = 0; k < raw->count; k++)
            if (dataset->classes[k] == i && used < sizeof text)
                used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64 " = %s", shown++ ? ", " : "", i,
                                         labels->names[i]);
    snug_log(ctx, SNUG_LOG_WARNING,
             "%s: its tags are numbers, taken for places in the model's list of %" PRId64
             " classes: %s. If they number "
             "other classes, write names instead",
             dataset->path, labels->count, text);
}

static snug_status bind_classes(snug_context *ctx, struct snug_dataset *dataset, const struct snug_labels *labels) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    if (snug_labels_are_lists(dataset->cache.form) && labels->problem == SNUG_PROBLEM_SINGLE_LABEL)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: its labels are lists (or hold '|'), but the model gives each text one label",
                         dataset->path);
    RETURN_IF_ERROR(check_hot(ctx, dataset, labels));
    if (dataset->cache.values)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: its labels are not classes: they have over %d different numbers, some of which are "
                         "fractions",
                         dataset->path, SNUG_LABELS_NUMBERED);
    struct snug_hash_map names = {0};
    snug_status status = index_names(ctx, labels, &names);
    for (size_t i = 0; i < raw->count && status == SNUG_OK; i++) {
        const char *text = snug_raw_labels_text(raw, i);
        const long number = are_numbered(dataset->cache.form) ? strtol(text, NULL, 10) : -1;
        dataset->classes[i] = number < 0 ? find_class(&names, text) : number < labels->count ? (int32_t)number : -1;
        dataset->continued[i] = continued_class(&names, labels, dataset->classes[i]);
        if (dataset->classes[i] < 0) status = fail_unseen(ctx, dataset, labels, i);
    }
    snug_hash_map_free(&names);
    if (status == SNUG_OK) tell_numbers(ctx, dataset, labels);
    return status;
}

static snug_status bind_values(snug_context *ctx, struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    RETURN_IF_ERROR(check_numbers(ctx, dataset));
    locale_t plain;
    RETURN_IF_ERROR(snug_plain_locale(ctx, &plain));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < raw->count && status == SNUG_OK; i++) {
        dataset->values[i] = (float)strtod_l(snug_raw_labels_text(raw, i), NULL, plain);
        if (!isfinite(dataset->values[i]))
            status = snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the label %s is too large for a 32-bit number",
                               dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i));
    }
    freelocale(plain);
    return status;
}

snug_status snug_dataset_bind_labels(snug_context *ctx, struct snug_dataset *dataset,
                                     const struct snug_labels *labels) {
    bool regression = labels->problem == SNUG_PROBLEM_REGRESSION;
    void *values, *classes;
    RETURN_IF_ERROR(snug_alloc(ctx, regression ? dataset->cache.raw.count : 0, sizeof *dataset->values, &values));
    free(dataset->values);
    dataset->values = values;
    RETURN_IF_ERROR(snug_alloc(ctx, regression ? 0 : dataset->cache.raw.count, sizeof *dataset->classes, &classes));
    free(dataset->classes);
    dataset->classes = classes;
    RETURN_IF_ERROR(snug_alloc(ctx, regression ? 0 : dataset->cache.raw.count, sizeof *dataset->continued, &classes));
    free(dataset->continued);
    dataset->continued = classes;
    dataset->bound = false;
    RETURN_IF_ERROR(regression ? bind_values(ctx, dataset) : bind_classes(ctx, dataset, labels));
    dataset->bound = dataset->cache.form != SNUG_LABELS_NONE;
    return SNUG_OK;
}

snug_status snug_classes_count(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, int64_t counts[], int64_t *items) {
    struct snug_row_buffer buffer = {0};
    snug_status status = SNUG_OK;
    *items = 0;
    for (int64_t row = 0; row < snug_dataset_rows(dataset) && status == SNUG_OK; row++) {
        struct snug_dataset_row text;
        if (snug_stop_asked(ctx)) /* untested: a signal at this moment */
            status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while the classes of %s were counted",
                               snug_dataset_path(dataset));
        if (status == SNUG_OK) status = snug_dataset_read(ctx, dataset, row, &buffer, &text);
        if (status == SNUG_OK) *items += snug_task_info(options->task)->classes(dataset, options, &text, counts);
    }
    free(buffer.data);
    return status;
}
