/* SPDX-License-Identifier: Apache-2.0 */
#include "data/classes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"
#include "data/label_names.h"
#include "data/missing_labels.h"
#include "data/task.h"
#include "tokenizer/hash_map.h"

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

static snug_status fail_many(snug_context *ctx, const struct snug_dataset *train, int64_t count) {
    return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                     "%s: its labels are %" PRId64 " different classes, but a model has at most %d: give another "
                     "column with --label_column_name, or give --do_regression if they are numbers to predict",
                     train->path, count, (int)SNUG_CLASSES_MOST);
}

/* The name of a raw label's class: a whole number is its value, however it is written. Strings of JSON are names. */
static const char *class_name(const struct snug_dataset *dataset, size_t number, char whole[SNUG_WHOLE_SIZE]) {
    const char *text = snug_raw_labels_text(&dataset->cache.raw, number);
    const bool written = strpbrk(text, ".eE") && dataset->form != SNUG_LABELS_STRING;
    return written && snug_whole_number(text, whole) ? whole : text;
}

static snug_status add_name(snug_context *ctx, struct snug_labels *labels, size_t *capacity, const char *name) {
    const size_t count = (size_t)labels->count;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&labels->names, capacity, count + 1, sizeof *labels->names));
    RETURN_IF_ERROR(snug_strdup(ctx, name, &labels->names[count]));
    labels->count++;
    return SNUG_OK;
}

static void sort_names(struct snug_labels *labels, enum snug_label_form form) {
    int64_t count = 0;
    if (form == SNUG_LABELS_COLUMNS) return;
    qsort(labels->names, (size_t)labels->count, sizeof *labels->names,
          form == SNUG_LABELS_INTEGER ? compare_integers : compare_texts);
    for (int64_t i = 0; i < labels->count; i++) { /* a number that is written in several ways is one class */
        if (count && strcmp(labels->names[count - 1], labels->names[i]) == 0)
            free(labels->names[i]);
        else
            labels->names[count++] = labels->names[i];
    }
    labels->count = count;
}

static snug_status copy_names(snug_context *ctx, const struct snug_dataset *train, struct snug_labels *out) {
    const int64_t count = snug_dataset_raw_labels(train);
    size_t capacity = 0;
    char whole[SNUG_WHOLE_SIZE];
    if (out->problem == SNUG_PROBLEM_REGRESSION) return add_name(ctx, out, &capacity, "LABEL_0");
    if (count > SNUG_CLASSES_MOST) return fail_many(ctx, train, count);
    for (size_t i = 0; i < train->class_count; i++)
        RETURN_IF_ERROR(add_name(ctx, out, &capacity, train->class_names[i]));
    if (train->class_count) return SNUG_OK;
    for (size_t i = 0; i < (size_t)count; i++)
        if (!train->left_out[i]) RETURN_IF_ERROR(add_name(ctx, out, &capacity, class_name(train, i, whole)));
    sort_names(out, train->form);
    return SNUG_OK;
}

/* With one class there is nothing to learn; run_classification.py refuses it, too. */
static snug_status check_count(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *labels) {
    if (labels->problem == SNUG_PROBLEM_REGRESSION || labels->count > 1) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: all its labels are \"%s\", and classification needs at least two classes: name another "
                     "column with --label_column_name, or give --do_regression if they are numbers to predict",
                     train->path, labels->names[0]);
}

/* What to do about a label that is not a number. */
static const char *comma_text(const char *text) {
    return snug_has_number_comma(text) ? ": numbers are written with a decimal point, as in 3.5, and without other "
                                         "separators"
                                       : "";
}

/* Regression: every label must be one number. */
static snug_status check_numbers(snug_context *ctx, const struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    if (snug_labels_are_lists(dataset->form) || dataset->form == SNUG_LABELS_TAG_NUMBERS)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: its labels are lists, but regression needs one number a row",
                         dataset->path);
    for (size_t i = 0; i < raw->count; i++) {
        const char *text = snug_raw_labels_text(raw, i);
        if (dataset->left_out[i] || snug_number_kind(text) != SNUG_NUMBER_NONE) continue;
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the label \"%s\" is not a number, as regression needs%s: correct it, or give "
                         "--missing_label_values %s to leave out its rows",
                         dataset->path, raw->items[i].line, text, comma_text(text), text);
    }
    return SNUG_OK;
}

/* Words among numbers are more often damage than classes. */
static snug_status fail_mixed(snug_context *ctx, const struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    size_t i = 0;
    while (dataset->left_out[i] || snug_number_kind(snug_raw_labels_text(raw, i)) != SNUG_NUMBER_NONE)
        i++; /* the form says that there is one */
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": the label \"%s\" is among numbers, but is not a valid number: correct it or "
                     "remove the row, give --missing_label_values %s to leave out its rows, or give --do_regression "
                     "False if all labels are names of classes",
                     dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i), snug_raw_labels_text(raw, i));
}

/* Numbers with decimal commas, alone or among other numbers, are no names of classes. */
static snug_status check_commas(snug_context *ctx, const struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    size_t comma = raw->count;
    for (size_t i = raw->count; i > 0; i--) {
        const char *text = snug_raw_labels_text(raw, i - 1);
        if (dataset->left_out[i - 1] || snug_number_kind(text) != SNUG_NUMBER_NONE) continue;
        if (!snug_has_number_comma(text)) return SNUG_OK;
        comma = i - 1;
    }
    if (comma == raw->count) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64
                     ": the label \"%s\" is a number with a comma: write numbers to predict with a decimal "
                     "point, as in 3.5; give --label_separator , if it is several labels, or --do_regression False if "
                     "it is the name of a class",
                     dataset->path, raw->items[comma].line, snug_raw_labels_text(raw, comma));
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

/* What the labels are, if no argument says it. */
static snug_status check_form(snug_context *ctx, const struct snug_dataset *train) {
    const enum snug_label_form form = train->form;
    const bool single = form == SNUG_LABELS_STRING || form == SNUG_LABELS_MIXED || form == SNUG_LABELS_NONFINITE;
    if (single) RETURN_IF_ERROR(check_commas(ctx, train));
    return form == SNUG_LABELS_NONFINITE || form == SNUG_LABELS_MIXED ? fail_mixed(ctx, train) : SNUG_OK;
}

static snug_status find_problem(snug_context *ctx, struct snug_dataset *train, enum snug_regression regression,
                                struct snug_labels *out) {
    size_t left = 0;
    for (size_t i = 0; i < train->cache.raw.count; i++) left += !train->left_out[i];
    if (!left)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: no row has a label; to train without labels give --task mlm",
                         train->path);
    if (regression == SNUG_REGRESSION_AUTO && !train->class_count) RETURN_IF_ERROR(check_form(ctx, train));
    if (snug_labels_are_lists(train->form)) out->problem = SNUG_PROBLEM_MULTI_LABEL;
    if (regression == SNUG_REGRESSION_YES || (train->form == SNUG_LABELS_REAL && regression == SNUG_REGRESSION_AUTO)) {
        out->problem = SNUG_PROBLEM_REGRESSION;
        return check_numbers(ctx, train);
    }
    return SNUG_OK;
}

snug_status snug_labels_of(snug_context *ctx, struct snug_dataset *train, enum snug_regression regression,
                           struct snug_labels *out) {
    *out = (struct snug_labels){.problem = SNUG_PROBLEM_SINGLE_LABEL};
    snug_missing_labels_mark_given(train);
    if (regression != SNUG_REGRESSION_YES) RETURN_IF_ERROR(snug_missing_labels_mark(ctx, train));
    snug_missing_labels_find_form(train);
    RETURN_IF_ERROR(find_problem(ctx, train, regression, out));
    const bool numbered = are_numbered(train->form);
    snug_status status = numbered ? number_classes(ctx, train, out) : copy_names(ctx, train, out);
    if (status == SNUG_OK && train->form != SNUG_LABELS_TAGS && train->form != SNUG_LABELS_TAG_NUMBERS)
        status = check_count(ctx, train, out);
    if (status != SNUG_OK) snug_labels_free(out);
    return status;
}

/* ---- binding a file's labels to a model's classes ---------------------------------------------------------------- */

/* The classes by name. Whole numbers are found by their value, too. */
struct class_index {
    struct snug_hash_map names, values;
    char (*wholes)[SNUG_WHOLE_SIZE]; /* the texts of values */
};

static void free_index(struct class_index *index) {
    snug_hash_map_free(&index->names);
    snug_hash_map_free(&index->values);
    free(index->wholes);
}

/* The classes' numbers by name; the first of two classes with the same name. Freed in any case. */
static snug_status index_names(snug_context *ctx, const struct snug_labels *labels, struct class_index *out) {
    const size_t count = (size_t)labels->count;
    int32_t before;
    *out = (struct class_index){.wholes = NULL};
    RETURN_IF_ERROR(snug_hash_map_reserve(ctx, &out->names, count));
    RETURN_IF_ERROR(snug_alloc(ctx, count, sizeof *out->wholes, (void **)&out->wholes));
    for (size_t i = 0; i < count; i++) {
        const char *name = labels->names[i];
        char *whole = out->wholes[i];
        RETURN_IF_ERROR(snug_hash_map_add(ctx, &out->names, name, strlen(name), (int32_t)i, &before));
        if (strpbrk(name, ".eE") && snug_whole_number(name, whole))
            RETURN_IF_ERROR(snug_hash_map_add(ctx, &out->values, whole, strlen(whole), (int32_t)i, &before));
    }
    return SNUG_OK;
}

static int32_t find(const struct snug_hash_map *names, const char *prefix, const char *text) {
    return snug_hash_map_find(names, prefix, strlen(prefix), text, strlen(text));
}

/* Strings as the file has them; a whole number also finds another way to write it, and k finds LABEL_k, the name of a
   model that was given none. */
static int32_t find_class(const struct class_index *index, const char *text) {
    char whole[SNUG_WHOLE_SIZE];
    const int32_t exact = find(&index->names, "", text);
    if (exact >= 0 || snug_number_kind(text) != SNUG_NUMBER_INTEGER) return exact;
    const char *value = strpbrk(text, ".eE") ? whole : text; /* such an integer is whole, or it would be a fraction */
    snug_whole_number(text, whole);
    const int32_t found = find(&index->names, "", value), same = find(&index->values, "", value);
    return found >= 0 ? found : same >= 0 ? same : find(&index->names, "LABEL_", value);
}

snug_status snug_labels_match(snug_context *ctx, const struct snug_labels *a, const struct snug_labels *b, bool *out) {
    struct class_index names = {0};
    *out = a->count == b->count && a->problem == b->problem;
    snug_status status = *out ? index_names(ctx, b, &names) : SNUG_OK;
    for (int64_t i = 0; status == SNUG_OK && *out && i < a->count; i++) *out = find_class(&names, a->names[i]) >= 0;
    free_index(&names);
    return status;
}

snug_status snug_labels_serve(snug_context *ctx, const struct snug_dataset *train, const struct snug_labels *model,
                              const struct snug_labels *data, bool *out) {
    if (!are_numbered(train->form)) return snug_labels_match(ctx, model, data, out);
    *out = train->form == SNUG_LABELS_TAG_NUMBERS ? model->count >= data->count
                                                  : model->problem == data->problem && model->count == data->count;
    return SNUG_OK;
}

/* The name of a class that a person hardly tells apart from the text, and in what they differ; NULL: there is none. */
static snug_status find_alike(snug_context *ctx, const struct snug_labels *labels, const char *text, const char **name,
                              const char **how) {
    *name = *how = NULL;
    for (int64_t i = 0; i < labels->count && !*how; i++) {
        RETURN_IF_ERROR(snug_names_differ(ctx, text, labels->names[i], how));
        *name = labels->names[i];
    }
    return SNUG_OK;
}

static snug_status fail_unseen(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels,
                               size_t number) {
    const char *text = snug_raw_labels_text(&dataset->cache.raw, number), *alike, *how;
    char known[512] = "", shown[SNUG_NAME_SHOWN], hint[SNUG_NAME_SHOWN + 128] = "";
    size_t used = 0;
    for (int64_t i = 0; i < labels->count && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 snug_name_show(shown, labels->names[i]));
    RETURN_IF_ERROR(find_alike(ctx, labels, text, &alike, &how));
    if (how)
        snprintf(hint, sizeof hint, ". It differs from the class %s only %s: correct it",
                 snug_name_quote(shown, alike, true), how);
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": the label \"%s\" is not one of the model's %" PRId64
                     " classes, those seen in training: %s%s",
                     dataset->path, dataset->cache.raw.items[number].line, text, labels->count, known, hint);
}

/* The class of a further token of a word of this class: of B-X it is I-X, if there is one. */
static int32_t continued_class(const struct class_index *index, const struct snug_labels *labels, int32_t class) {
    if (class < 0 || strncmp(labels->names[class], "B-", 2) != 0) return class;
    const char *type = labels->names[class] + 2;
    const int32_t inside = find(&index->names, "I-", type);
    return inside < 0 ? class : inside;
}

/* Lists of zeros and ones of one length are multi-hot, unless the classes are called by numbers: then each of them may
   also be the classes 0 and 1, and equal counts would hide it. */
static snug_status check_hot(snug_context *ctx, const struct snug_dataset *dataset, const struct snug_labels *labels) {
    bool numbers = false;
    if (dataset->form != SNUG_LABELS_MULTI_HOT) return SNUG_OK;
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
static snug_status tell_numbers(snug_context *ctx, const struct snug_dataset *dataset,
                                const struct snug_labels *labels) {
    char text[512] = "";
    size_t used = 0;
    void *memory;
    bool named = false;
    for (int64_t i = 0; i < labels->count; i++) named |= !is_generated(labels->names[i], i);
    if (!named || dataset->dummy_words || dataset->form != SNUG_LABELS_TAG_NUMBERS) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)labels->count, sizeof(bool), &memory));
    bool *occurs = memory;
    for (size_t i = 0; i < dataset->cache.raw.count; i++) occurs[dataset->classes[i]] = true;
    for (int64_t i = 0; i < labels->count && used < sizeof text; i++)
        if (occurs[i])
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64 " = %s", used ? ", " : "", i,
                                     labels->names[i]);
    free(occurs);
    snug_log(ctx, SNUG_LOG_WARNING,
             "%s: its tags are numbers, taken for places in the model's list of %" PRId64 " classes: %s. If they "
             "number other classes, write names instead",
             dataset->path, labels->count, text);
    return SNUG_OK;
}

/* Whether each row has one label, no list and no tags. */
static bool is_single(const struct snug_dataset *dataset) {
    return !snug_labels_are_lists(dataset->form) && !snug_cache_has_words(&dataset->cache);
}

static snug_status bind_classes(snug_context *ctx, struct snug_dataset *dataset, const struct snug_labels *labels) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    if (snug_labels_are_lists(dataset->form) && labels->problem == SNUG_PROBLEM_SINGLE_LABEL)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: its labels are lists (or hold '|'), but the model gives each text one label",
                         dataset->path);
    RETURN_IF_ERROR(check_hot(ctx, dataset, labels));
    if (dataset->cache.values)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: its labels are not classes: they have over %d different numbers, some of which are "
                         "fractions",
                         dataset->path, SNUG_LABELS_NUMBERED);
    struct class_index index;
    snug_status status = index_names(ctx, labels, &index);
    for (size_t i = 0; i < raw->count && status == SNUG_OK; i++) {
        dataset->classes[i] = dataset->continued[i] = SNUG_IGNORE_LABEL;
        if (dataset->left_out[i]) continue;
        const char *text = snug_raw_labels_text(raw, i);
        const long number = are_numbered(dataset->form) ? strtol(text, NULL, 10) : -1;
        dataset->classes[i] = number < 0 ? find_class(&index, text) : number < labels->count ? (int32_t)number : -1;
        dataset->continued[i] = continued_class(&index, labels, dataset->classes[i]);
        if (dataset->classes[i] >= 0) continue;
        dataset->left_out[i] = is_single(dataset) && snug_missing_label_is_mark(dataset, i);
        if (!dataset->left_out[i]) status = fail_unseen(ctx, dataset, labels, i);
        dataset->classes[i] = SNUG_IGNORE_LABEL;
    }
    free_index(&index);
    return status == SNUG_OK ? tell_numbers(ctx, dataset, labels) : status;
}

static snug_status bind_values(snug_context *ctx, struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    RETURN_IF_ERROR(check_numbers(ctx, dataset));
    locale_t plain;
    RETURN_IF_ERROR(snug_plain_locale(ctx, &plain));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < raw->count && status == SNUG_OK; i++) {
        if (dataset->left_out[i]) continue;
        dataset->values[i] = (float)strtod_l(snug_raw_labels_text(raw, i), NULL, plain);
        if (!isfinite(dataset->values[i]))
            status = snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the label %s is too large for a 32-bit number",
                               dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i));
    }
    freelocale(plain);
    return status;
}

/* ---- classes that only the evaluation's data has ------------------------------------------------------------------
 */

/* Whether a raw label of eval is a class that labels lack. */
static snug_status is_new_class(snug_context *ctx, const struct class_index *index, const struct snug_labels *labels,
                                const struct snug_dataset *eval, size_t number, bool *out) {
    const char *text = snug_raw_labels_text(&eval->cache.raw, number), *alike, *how;
    const bool word = snug_is_missing_word(text) && !eval->missing_labels;
    *out = find_class(index, text) < 0 && !eval->left_out[number] && !word;
    if (!*out) return SNUG_OK;
    RETURN_IF_ERROR(find_alike(ctx, labels, text, &alike, &how));
    *out = !how;
    return SNUG_OK;
}

static void tell_new(snug_context *ctx, const struct snug_dataset *train, const struct snug_dataset *eval,
                     size_t number) {
    char name[SNUG_NAME_SHOWN];
    const struct snug_raw_label *label = &eval->cache.raw.items[number];
    snug_log(ctx, SNUG_LOG_WARNING, "%s:%" PRId64 ": the label %s is in no row of %s: it is added to the classes",
             eval->path, label->line, snug_name_quote(name, snug_raw_labels_text(&eval->cache.raw, number), false),
             train->path);
}

static snug_status add_new(snug_context *ctx, const struct class_index *index, const struct snug_dataset *train,
                           const struct snug_dataset *eval, struct snug_labels *labels) {
    struct snug_labels added = {0};
    size_t capacity = 0, all = 0;
    char whole[SNUG_WHOLE_SIZE];
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < eval->cache.raw.count && status == SNUG_OK; i++) {
        bool is_new;
        status = is_new_class(ctx, index, labels, eval, i, &is_new);
        if (status == SNUG_OK && is_new) {
            tell_new(ctx, train, eval, i);
            status = add_name(ctx, &added, &capacity, class_name(eval, i, whole));
        }
    }
    if (status == SNUG_OK && labels->count + added.count > SNUG_CLASSES_MOST)
        status = fail_many(ctx, eval, labels->count + added.count);
    if (status == SNUG_OK)
        status =
            snug_grow(ctx, (void **)&labels->names, &all, (size_t)(labels->count + added.count), sizeof *labels->names);
    for (int64_t i = 0; i < added.count && status == SNUG_OK; i++) {
        labels->names[labels->count++] = added.names[i];
        added.names[i] = NULL;
    }
    snug_labels_free(&added);
    return status;
}

/* Marks the labels of eval that mean that a row has none, and are no classes. */
static void mark_missing(const struct class_index *index, struct snug_dataset *eval) {
    snug_missing_labels_mark_given(eval);
    for (size_t i = 0; i < eval->cache.raw.count; i++)
        eval->left_out[i] |= is_single(eval) && snug_missing_label_is_mark(eval, i) &&
                             find_class(index, snug_raw_labels_text(&eval->cache.raw, i)) < 0;
    snug_missing_labels_find_form(eval);
}

snug_status snug_labels_add(snug_context *ctx, struct snug_labels *labels, const struct snug_dataset *train,
                            struct snug_dataset *eval) {
    struct class_index index;
    if (labels->problem == SNUG_PROBLEM_REGRESSION || are_numbered(train->form) || train->form == SNUG_LABELS_COLUMNS)
        return SNUG_OK;
    snug_status status = index_names(ctx, labels, &index);
    if (status == SNUG_OK) mark_missing(&index, eval);
    if (status == SNUG_OK && eval->form == train->form) status = add_new(ctx, &index, train, eval, labels);
    free_index(&index);
    if (status == SNUG_OK) sort_names(labels, train->form);
    return status;
}

/* ---- binding, of either problem -----------------------------------------------------------------------------------
 */

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
    snug_missing_labels_mark_given(dataset);
    RETURN_IF_ERROR(regression ? bind_values(ctx, dataset) : bind_classes(ctx, dataset, labels));
    snug_missing_labels_find_form(dataset);
    dataset->bound = dataset->form != SNUG_LABELS_NONE;
    return SNUG_OK;
}

snug_status snug_dataset_check_labels(snug_context *ctx, struct snug_dataset *dataset) {
    const struct snug_raw_labels *raw = &dataset->cache.raw;
    for (size_t i = 0; i < raw->count; i++) {
        if (!dataset->left_out[i]) continue;
        dataset->bound = false;
        return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the label \"%s\" means that the row has none",
                         dataset->path, raw->items[i].line, snug_raw_labels_text(raw, i));
    }
    return SNUG_OK;
}

snug_status snug_classes_count(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, int64_t counts[], int64_t *items) {
    struct snug_row_buffer buffer = {0};
    snug_status status = SNUG_OK;
    *items = 0;
    for (int64_t row = 0; row < snug_dataset_rows(dataset) && status == SNUG_OK; row++) {
        struct snug_dataset_row text;
        if (snug_stop_asked(ctx))
            status = snug_fail(ctx, SNUG_E_INTERRUPTED, "interrupted while the classes of %s were counted",
                               snug_dataset_path(dataset));
        if (status == SNUG_OK) status = snug_dataset_read(ctx, dataset, row, &buffer, &text);
        if (status == SNUG_OK) *items += snug_task_info(options->task)->classes(dataset, options, &text, counts);
    }
    free(buffer.data);
    return status;
}
