/* SPDX-License-Identifier: Apache-2.0 */
#include "data/missing_labels.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"
#include "data/label_names.h"

static const char *text_of(const struct snug_dataset *dataset, size_t number) {
    return snug_raw_labels_text(&dataset->cache.raw, number);
}

static void mark(struct snug_dataset *dataset, size_t number) { dataset->left_out[number] = true; }

/* What is among the labels that are not marked, but for one. */
struct others {
    size_t words, numbers;   /* distinct ones */
    bool plus, negative;     /* "+"; a number below 0 */
    bool fraction, counting; /* the numbers are 0, 1, 2, …, each once */
};

static struct others look(const struct snug_dataset *dataset, size_t but) {
    struct others others = {.counting = true};
    const size_t count = dataset->cache.raw.count;
    long highest = -1;
    for (size_t i = 0; i < count; i++) {
        char whole[SNUG_WHOLE_SIZE];
        const char *text = text_of(dataset, i);
        const enum snug_number_kind kind = snug_number_kind(text);
        if (i == but || dataset->left_out[i]) continue;
        others.plus |= strcmp(text, "+") == 0;
        others.words += kind == SNUG_NUMBER_NONE;
        others.numbers += kind != SNUG_NUMBER_NONE;
        others.negative |= kind != SNUG_NUMBER_NONE && *text == '-';
        others.fraction |= kind == SNUG_NUMBER_REAL;
        if (kind == SNUG_NUMBER_NONE) continue;
        const long number = snug_whole_number(text, whole) ? strtol(whole, NULL, 10) : -1;
        if (number > highest) highest = number;
        others.counting &= number >= 0;
    }
    /* Distinct texts may be the same number: then they are fewer numbers than the highest says. */
    others.counting &= highest + 1 == (long)others.numbers;
    return others;
}

/* -1 as a number, however it is written, or "-". */
static bool is_mark(const char *text) {
    char whole[SNUG_WHOLE_SIZE];
    return strcmp(text, "-") == 0 || (snug_whole_number(text, whole) && strcmp(whole, "-1") == 0);
}

enum meaning { A_CLASS, ASKED, NO_LABEL };

static enum meaning meaning_of(const struct snug_dataset *dataset, size_t number) {
    const struct others others = look(dataset, number);
    if (strcmp(text_of(dataset, number), "-") == 0) {
        if (others.plus || others.fraction) return A_CLASS; /* among fractions it is refused as a word */
        return others.words + others.numbers > 1 ? NO_LABEL : others.numbers ? A_CLASS : ASKED;
    }
    if (others.negative || others.fraction) return A_CLASS;
    if (!others.numbers) return others.words > 1 ? NO_LABEL : ASKED;
    return !others.words && others.counting && others.numbers > 2 ? NO_LABEL : ASKED;
}

static const char *rows_text(int64_t rows) { return rows == 1 ? "row" : "rows"; }

static void ask(snug_context *ctx, const struct snug_dataset *dataset, size_t number) {
    char name[SNUG_NAME_SHOWN];
    const int64_t rows = dataset->cache.raw.items[number].rows;
    snug_log(ctx, SNUG_LOG_WARNING,
             "%s: the label %s of %" PRId64
             " %s is taken for the name of a class: give --missing_label_values %s if it "
             "means that a row has no label",
             dataset->path, snug_name_quote(name, text_of(dataset, number), false), rows, rows_text(rows),
             text_of(dataset, number));
}

/* What pandas reads as missing, and so datasets, and "?". */
bool snug_is_missing_word(const char *text) {
    static const char *const words[] = {"#N/A", "#N/A N/A", "#NA",  "-NaN", "-nan", "<NA>", "N/A", "NA",
                                        "NULL", "NaN",      "None", "n/a",  "nan",  "null", "?"};
    size_t i = 0;
    while (i < sizeof words / sizeof *words && strcmp(words[i], text) != 0) i++;
    return i < sizeof words / sizeof *words;
}

static snug_status check_word(snug_context *ctx, const struct snug_dataset *dataset, size_t number) {
    const char *text = text_of(dataset, number);
    const struct snug_raw_label *label = &dataset->cache.raw.items[number];
    if (!snug_is_missing_word(text)) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": the label \"%s\" (of %" PRId64 " %s) is what programs write for a missing value: "
                     "correct it, give --missing_label_values %s to leave these rows out, or --missing_label_values "
                     "none if it is the name of a class",
                     dataset->path, label->line, text, label->rows, rows_text(label->rows), text);
}

/* What were numbers and words may be numbers, or words, without some of them. */
void snug_missing_labels_find_form(struct snug_dataset *dataset) {
    const enum snug_label_form form = dataset->cache.form;
    dataset->form = form;
    if (form != SNUG_LABELS_MIXED && form != SNUG_LABELS_NONFINITE) return;
    const struct others others = look(dataset, SIZE_MAX);
    if (others.words && others.numbers) return;
    dataset->form = others.words ? SNUG_LABELS_STRING : others.fraction ? SNUG_LABELS_REAL : SNUG_LABELS_INTEGER;
}

/* Where a program has named the classes, a number below 0 is the only other text. */
static void mark_undeclared(struct snug_dataset *dataset) {
    for (size_t i = 0; i < dataset->cache.raw.count; i++) {
        size_t class = 0;
        while (class < dataset->class_count && strcmp(dataset->class_names[class], text_of(dataset, i)) != 0) class ++;
        if (class == dataset->class_count) mark(dataset, i);
    }
}

snug_status snug_missing_labels_mark(snug_context *ctx, struct snug_dataset *dataset) {
    const enum snug_label_form form = dataset->cache.form;
    if (dataset->class_count) {
        mark_undeclared(dataset);
        return SNUG_OK;
    }
    if (dataset->missing_labels || dataset->dummy_most || snug_labels_are_lists(form) || form == SNUG_LABELS_TAGS ||
        form == SNUG_LABELS_TAG_NUMBERS)
        return SNUG_OK;
    for (size_t i = 0; i < dataset->cache.raw.count; i++) {
        RETURN_IF_ERROR(check_word(ctx, dataset, i));
        if (!is_mark(text_of(dataset, i))) continue;
        const enum meaning meaning = meaning_of(dataset, i);
        if (meaning == NO_LABEL) mark(dataset, i);
        if (meaning == ASKED) ask(ctx, dataset, i);
    }
    return SNUG_OK;
}

bool snug_missing_label_is_mark(const struct snug_dataset *dataset, size_t number) {
    return !dataset->missing_labels && is_mark(text_of(dataset, number));
}

void snug_missing_labels_mark_given(struct snug_dataset *dataset) {
    const bool given = snug_missing_labels_given(dataset->missing_labels);
    for (size_t i = 0; i < dataset->cache.raw.count; i++) {
        const char *text = text_of(dataset, i);
        dataset->left_out[i] = false;
        for (const char *value = given ? dataset->missing_labels : NULL; value; value = strchr(value, ',')) {
            value += *value == ',';
            if (strcspn(value, ",") == strlen(text) && memcmp(value, text, strlen(text)) == 0) mark(dataset, i);
        }
    }
}
